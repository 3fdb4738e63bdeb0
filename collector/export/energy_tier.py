"""The informative energy tier: measured runs in the fields that MLCommons discusses for energies by cheap meters, as one JSON document.

The fields are a proposal that nobody has adopted. `report` holds them; what a run cannot state is null there, with the reason in `gaps`.
Without gaps it satisfies the proposal's schema. Beside it stand the meter, and apart from each other static energy (idle power over the
same time) and active energy (above it: the net energy), with uncertainties. An energy that was not measured in this run is refused.
Source: mlcommons/inference pull request 2587, `energy-reporting/mlperf_energy_schema_v6.json`; issues inference#2558, mlperf_client#19.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.contract.record_generation import Generation, GenerationEnergy, TokenEnergy
from edgemeter.agent.contract.token_moments import tokens_after_first
from edgemeter.collector.published.shelf import LEGEND

STATEMENT = (
    "Informative only: this is not an MLPerf\N{TRADE MARK SIGN} result and must not be compared with one. "
    f"Its fields follow a proposal that MLCommons has not adopted. Result not verified by MLCommons Association. {LEGEND}"
)
PROPOSAL = {
    "address": "https://github.com/mlcommons/inference/pull/2587",
    "schema": "energy-reporting/mlperf_energy_schema_v6.json",
    "revision": "439a6b1fd81242c9090811d5e3abb6e887fee264",
    "state": "proposed",
}
# How fields of the proposal are read here that leave more than one way.
READ_AS = {
    "scenario": "how queries arrive; MLPerf LoadGen was not used",
    "accelerator_count": "the processor that ran the model, a CPU too",
    "measurement_method": "external_analyzer is any meter apart from the device; none is of the class of a certified power analyzer",
    "static_power_baseline_watts": "mean of idle power before and after",
    "energy_per_token_joules": "energy after the first token of each query, by all output tokens",
    "energy_per_query_joules": "by the inference",
}
# Sensors by the names that the proposal has: a meter apart from the device is its `external_analyzer`; monitors on the board have none.
_METHODS = {
    "nvml": "nvml", "rapl": "rapl", "um25c": "external_analyzer", "fnirsi": "external_analyzer", "joulescope": "external_analyzer",
    "powerz": "external_analyzer", "shelly": "external_analyzer", "tasmota": "external_analyzer",
}  # fmt: skip
_SCENARIOS = {"single_stream": "singlestream", "offline": "offline", "poisson": "server"}
_OF_PICTURES = {"classification", "depth", "detection", "oriented-boxes", "pose", "segmentation", "semantic-segmentation"}
_LEAST_HZ = 1.0


@dataclass(frozen=True, slots=True)
class EnergyTier:
    """The document, and of the runs that are not in it their ids with the reason."""

    document: Mapping[str, Any]
    refused: tuple[str, ...]


@dataclass(slots=True)
class _Report:
    """The fields of the proposal, and why one is null or not as it wants it."""

    fields: dict[str, Any] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: Any, why_absent: str) -> None:
        self.fields[name] = value
        if value is None:
            self.gaps[name] = why_absent


def energy_tier(runs: Iterable[RunRecord]) -> EnergyTier:
    """Return the document of the runs, which need their raw samples where several tokens came together."""
    results, refused = [], []
    for run in runs:
        if why := _refusal(run):
            refused.append(f"{run.id}: {why}")
        elif run.energy is not None:
            results.append(_result(run, run.energy))
    head = {"informative_only": True, "statement": STATEMENT, "proposal": PROPOSAL, "read_as": READ_AS}
    return EnergyTier({**head, "results": results}, tuple(refused))


def _refusal(run: RunRecord) -> str | None:
    if run.energy is None:
        return f"it has no energy ({run.energy_reason or 'the record gives no reason'})"
    if (provenance := energy_provenance(run)) != "measured":
        return f"its energy is {provenance or 'not stated to be measured'}"
    return f"it is invalid ({'; '.join(run.verdict.reasons)})" if run.verdict.state == "invalid" else None


def _result(run: RunRecord, energy: Energy) -> dict[str, Any]:
    report, generation, load = _report(run, energy), run.generation, run.load
    return {
        "run": run.id,
        "device": run.device,
        "board": run.environment.board,
        "started_at_ns": run.started_at_ns,
        "model": run.model.name,
        "model_sha256": run.model.sha256,
        "precision": run.precision,
        "runtime": run.runtime.setting_text,
        "verdict": run.verdict.state,
        "verdict_reasons": run.verdict.reasons,
        "report": report.fields,
        "gaps": report.gaps,
        "meter": {
            "sensor": energy.sensor,
            "scope": energy.scope,
            "excludes": energy.excludes,
            "resolution_watts": energy.resolution_w,
            "calibrated_watts": energy.calibrated_w,
            "readings": energy.samples,
            "longest_gap_seconds": energy.longest_gap_ms / 1e3,
        },
        "window_seconds": energy.window_ms / 1e3,
        "inferences": energy.inferences,
        "per_inference": _split(energy.gross_mj, energy.gross_u_mj, _net_mj(energy), energy.net_u_mj),
        "per_token": None if generation is None else _per_token(generation, energy),
        "workload": {
            "scenario": run.scenario,
            "batch": run.batch,
            "concurrency": load.concurrency if load else None,
            "rate_per_s": load.target_per_s if load else None,
            "lengths": generation.lengths if generation else None,
            "token_counts": generation.counts if generation else None,
            "failed_queries": generation.failed_queries if generation else None,
        },
    }


def _report(run: RunRecord, energy: Energy) -> _Report:
    report, sensor = _Report(), energy.sensor.partition(":")[0]
    sides_w = [idle_w for idle_w in (energy.idle_before_w, energy.idle_after_w) if idle_w is not None]
    is_resolved = _net_mj(energy) is not None
    report.add("task_type", "llm" if run.generation else "cv" if run.model.task in _OF_PICTURES else "other", "")
    report.add("total_energy_joules", energy.gross_mj * energy.inferences / 1e3, "")
    idle_w = sum(sides_w) / len(sides_w) if sides_w and is_resolved else None
    report.add("static_power_baseline_watts", idle_w, _why_no_net(energy))
    if idle_w is not None and len(sides_w) == 1:
        absent = "after" if energy.idle_after_w is None else "before"
        report.gaps["static_power_baseline_watts"] = f"of one side: idle power {absent} the run was not measured"
    report.add("inference_active_power_watts", {"mean": energy.mean_power_w}, "")
    report.add("measurement_method", _METHODS.get(sensor), f"the proposal has no name for {sensor}")
    report.add("sampling_rate_hz", 1e3 / energy.period_ms, "")
    if 1e3 / energy.period_ms < _LEAST_HZ:
        report.gaps["sampling_rate_hz"] = f"below the {_LEAST_HZ:g} Hz that the proposal wants"
    report.add("thermal_stabilization_seconds", run.warm_up.duration_ms / 1e3, "")
    report.add("scenario", _SCENARIOS.get(run.scenario), f"the proposal has no name for {run.scenario}")
    # The proposal knows no run without an accelerator, although RAPL, of CPUs, is among its methods.
    report.add("accelerator_count", None if run.runtime.name == "served" else 1, "the server does not state it")
    report.add("software_runtime_versions", {run.runtime.package: run.runtime.version, "python": run.environment.python}, "")
    if run.generation is None:
        report.add("energy_per_query_joules", {"mean": energy.gross_mj / 1e3}, "")
    else:
        _add_tokens(report, run, run.generation, energy)
    return report


def _add_tokens(report: _Report, run: RunRecord, generation: Generation, energy: Energy) -> None:
    spent, decoded, prompt = _spent(generation, energy), _decoded_tokens(run, generation, energy), generation.mean_prompt_tokens
    is_counted = generation.counts != "estimated"
    output = round(generation.mean_output_tokens * energy.inferences) if is_counted else None
    prefill, decode = (spent.prefill_token, spent.decode_token) if spent and is_counted else (None, None)
    prefill_joules = prefill.gross_mj * prompt * energy.inferences / 1e3 if prefill and prompt else None
    decode_joules = decode.gross_mj * decoded / 1e3 if decode and decoded else None
    why_none = "its tokens are an estimate" if not is_counted else generation.energy_reason or "not recorded"
    why_no_decode = why_none if spent is None or not is_counted else spent.decode_reason or "its samples lack when tokens came"
    # As the proposal defines it: the first token of each query, which prefill made, counts too.
    per_token = {"mean": decode_joules / output} if decode_joules and output else None
    report.add("energy_per_token_joules", per_token, why_no_decode)
    report.add("prefill_energy_joules", prefill_joules, (spent.prefill_reason if spent and is_counted else None) or why_none)
    report.add("generation_energy_joules", decode_joules, why_no_decode)
    report.add("output_token_count", output, why_none)
    report.add("batch_size", run.batch, "")
    lengths = generation.prompt_lengths
    is_one_prompt = lengths is None or lengths.min_tokens == lengths.max_tokens
    report.add("input_sequence_length", round(prompt) if prompt and is_one_prompt else None, "not the same of all queries, or unknown")
    outputs = generation.output_lengths
    is_one_output = outputs.min_tokens == outputs.max_tokens if outputs else not generation.ended_early
    report.add("output_sequence_length", round(generation.mean_output_tokens) if is_one_output else None, "not the same of all queries")


def _spent(generation: Generation, energy: Energy) -> GenerationEnergy | None:
    return generation.energy if generation.energy and generation.energy.sensor == energy.sensor else None


def _decoded_tokens(run: RunRecord, generation: Generation, energy: Energy) -> float | None:
    """Return how many tokens the energy of decoding is of: all that came after the first moment of their query."""
    if generation.decodes_from_start:
        return generation.mean_output_tokens * energy.inferences
    raw = {series.name: samples.unpack(series) for series in run.samples if series.name in ("token", "output_tokens")}
    if len(raw) == 2:
        return int(tokens_after_first(raw["token"], raw["output_tokens"], is_local=generation.is_local).sum())
    return (generation.mean_output_tokens - 1) * energy.inferences if generation.stamped_tokens_max == 1 else None


def _per_token(generation: Generation, energy: Energy) -> dict[str, Any]:
    if (spent := _spent(generation, energy)) is None:
        return {"reason": generation.energy_reason or "not recorded"}
    output = {"total_joules": spent.output_token_gross_mj / 1e3, "total_u95_joules": _joules(spent.output_token_gross_u_mj)}
    return {
        "output": output,
        "prefill": _part(spent.prefill_token, spent.prefill_reason),
        "generation": _part(spent.decode_token, spent.decode_reason),
    }


def _part(part: TokenEnergy | None, reason: str | None) -> dict[str, Any]:
    return {"reason": reason} if part is None else _split(part.gross_mj, part.gross_u_mj, part.net_mj, part.net_u_mj)


def _split(gross_mj: float, gross_u_mj: float | None, net_mj: float | None, net_u_mj: float | None) -> dict[str, float | None]:
    """Return an energy and its static and active parts, J; without a net energy none is known."""
    return {
        "total_joules": gross_mj / 1e3,
        "total_u95_joules": _joules(gross_u_mj),
        "static_joules": None if net_mj is None else (gross_mj - net_mj) / 1e3,
        "active_joules": _joules(net_mj),
        "active_u95_joules": None if net_mj is None else _joules(net_u_mj),
    }


def _net_mj(energy: Energy) -> float | None:
    return energy.net_mj if energy.net_state == "resolved" else None


def _why_no_net(energy: Energy) -> str:
    if energy.net_state == "no_idle":
        return "idle power was not measured"
    return "active energy does not stand out from the uncertainty of idle power"


def _joules(energy_mj: float | None) -> float | None:
    return None if energy_mj is None else energy_mj / 1e3
