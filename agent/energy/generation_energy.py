"""Energy of generated text, prefill and decode apart: the energy within the windows of one and of the other.

A window from a query's start to its first token is prefill, from there to its last token decode. A part is given where its windows are
ten times as long as the sensor's values are apart, and three times as long as the sensor is late. Where they are not, measure prefill by
itself, with one token of output: that whole run is prefill.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import Series
from edgemeter.agent.contract.record_conditions import RuntimeInfo
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.contract.record_generation import MOST_CACHED, Generation, GenerationEnergy
from edgemeter.agent.energy import budget, query_energy
from edgemeter.agent.energy.curve import PowerCurve, curve_of
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.energy.query_energy import QuerySensor, Stretches
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.sensor_run import EnergyRun, SensorRun, sensor_renewal, settling_of
from edgemeter.agent.energy.token_moments import tokens_after_first

PREFILL, DECODE = "generation_energy_prefill_token_gross_mj", "generation_energy_decode_token_gross_mj"
THIS_HOST = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class GenerationWindows:
    """When the timed queries began, had their first and their last token, monotonic ns, int64 [n]; and how many tokens each has, [n].

    `prompt_tokens` is the mean of the prompts, `decoded_tokens` are those after the first moment, [n]; None: all but one. `overlap`: they
    were answered beside each other. `unstreamed_reason` is why the first moment is none
    of a token, `prefill_reason` why the time to it is not that of the prompt's tokens.
    """

    starts_ns: Times
    first_ns: Times
    last_ns: Times
    prompt_tokens: float | None
    output_tokens: Times
    overlap: bool = False
    decoded_tokens: Times | None = None
    unstreamed_reason: str | None = None
    prefill_reason: str | None = None

    def prefill(self) -> Stretches:
        """Return the prefill of each query."""
        return Stretches(self.starts_ns, self.first_ns)


def generation_windows(
    series: Iterable[Series], timed_start_ns: int, generation: Generation, unstreamed_reason: str | None = None
) -> GenerationWindows:
    """Return the windows of all queries from the raw samples of a run, which began at `timed_start_ns`."""
    names = {"query_start", "first_token", "latency", "output_tokens", "arrival", "token"}
    raw = {entry.name: samples.unpack(entry) for entry in series if entry.name in names}
    # Moments of an open loop count from the arrival.
    starts_ns = raw.get("arrival", raw["query_start"]) + timed_start_ns
    return GenerationWindows(
        starts_ns,
        starts_ns + raw["first_token"],
        starts_ns + raw["latency"],
        generation.mean_prompt_tokens,
        raw["output_tokens"],
        overlap="arrival" in raw or bool(np.any(raw["query_start"][1:] < (raw["query_start"] + raw["latency"])[:-1])),
        decoded_tokens=tokens_after_first(raw["token"], raw["output_tokens"], is_local=generation.is_local) if "token" in raw else None,
        unstreamed_reason=unstreamed_reason,
        prefill_reason="prompts came partly from a cache"
        if (generation.cached_tokens or 0) > MOST_CACHED
        else "the time to the first token holds reasoning that is not streamed"
        if generation.hidden_reasoning_tokens
        else None,
    )


def served_elsewhere(generation: Generation | None, runtime: RuntimeInfo) -> str | None:
    """Return why no sensor of this machine sees what ran the model: a server on another one did; None otherwise."""
    if runtime.name != "served" and (generation is None or generation.is_local):
        return None
    host = urlsplit(runtime.facts.get("server_url", "")).hostname or "unknown host"
    if host in THIS_HOST or runtime.facts.get("server_machine") == "this":
        return None
    work = "text was generated" if generation else "model was run"
    return f"the {work} by a server on {host}, which no power sensor here sees: measure on that machine"


# What is drawn at a moment is drawn by all models that run then.
SHARED = "the energy of models that run at the same time is shared: no stretch of it is of one"


def generation_energy(
    energy: Energy | None, traces: Sequence[SensorTrace], windows: GenerationWindows, run: EnergyRun
) -> tuple[GenerationEnergy | None, dict[str, str]]:
    """Return the energies per token by the sensor of the run's energy, and why there are none, or not both of its parts."""
    if energy is None:
        return None, {"generation_energy": "the run has no energy"}
    trace = next((trace for trace in traces if trace.description is not None and trace.description.id == energy.sensor), None)
    if trace is None or trace.description is None:
        return None, {"generation_energy": f"the readings of {energy.sensor} are not there"}
    curve = curve_of(trace.readings, trace.description)
    renewal = sensor_renewal(curve, run) if isinstance(curve, PowerCurve) else None
    case = SensorRun(trace, trace.description, curve, run, renewal)
    output_tokens = float(windows.output_tokens.mean())
    split = _Split(energy, case, query_energy.query_sensor(case, settling_of(case)), windows)
    (prefill_mj, prefill_u_mj), why_no_prefill = split.prefill()
    (decode_mj, decode_u_mj), why_no_decode = split.decode()
    reasons = {PREFILL: why_no_prefill, DECODE: why_no_decode}
    of_tokens = GenerationEnergy(
        output_token_gross_mj=energy.gross_mj / output_tokens,
        output_token_gross_u_mj=None if energy.gross_u_mj is None else energy.gross_u_mj / output_tokens,
        prefill_token_gross_mj=prefill_mj,
        prefill_token_gross_u_mj=prefill_u_mj,
        decode_token_gross_mj=decode_mj,
        decode_token_gross_u_mj=decode_u_mj,
    )
    return of_tokens, {name: reason for name, reason in reasons.items() if reason is not None}


# The energy per token and its expanded uncertainty, mJ; None where it is not known.
_PerToken = tuple[float | None, float | None]
_NO_ENERGY: _PerToken = (None, None)


@dataclass(frozen=True, slots=True)
class _Split:
    energy: Energy
    case: SensorRun
    sensor: QuerySensor | None
    windows: GenerationWindows

    def prefill(self) -> tuple[_PerToken, str | None]:
        """Return the energy per prompt token; of queries of one token all of it."""
        tokens, windows = self.windows.prompt_tokens, self.windows
        if tokens is None:
            return _NO_ENERGY, "the server does not state how many tokens a prompt has"
        if windows.prefill_reason:
            return _NO_ENERGY, windows.prefill_reason
        if windows.output_tokens.max() == 1:
            return _per_token(tokens, self.energy.gross_mj, self.energy.gross_u_mj), None
        return self._part("prefill", windows.prefill(), query_energy.stretches_before(windows.starts_ns, windows.last_ns), tokens)

    def decode(self) -> tuple[_PerToken, str | None]:
        """Return the energy per token after the first."""
        windows = self.windows
        tokens = windows.output_tokens - 1 if windows.decoded_tokens is None else windows.decoded_tokens
        decodes = tokens > 0
        if not decodes.any():
            return _NO_ENERGY, windows.unstreamed_reason or "queries of one token decode nothing"
        prefill = windows.prefill()
        before = Stretches(prefill.begins_ns[decodes], prefill.ends_ns[decodes])
        decode = Stretches(windows.first_ns[decodes], windows.last_ns[decodes])
        return self._part("decode", decode, before, float(tokens[decodes].mean()))

    def _part(self, name: str, part: Stretches, before: Stretches, tokens: float) -> tuple[_PerToken, str | None]:
        if self.windows.unstreamed_reason:
            return _NO_ENERGY, self.windows.unstreamed_reason
        if self.windows.overlap:
            return _NO_ENERGY, f"users overlap, so that no reading is of {name} alone: measure it in scenario single_stream"
        if self.sensor is None:
            return _NO_ENERGY, f"how late {self.energy.sensor} is does not show, and nobody states it: {_DELAY_ADVICE}"
        if part.begins_ns.size < query_energy.FEWEST_QUERIES:
            return _NO_ENERGY, f"{part.begins_ns.size} queries do not show how {name} scatters: it needs {query_energy.FEWEST_QUERIES}"
        median_ms, needed_ms = float(np.median(part.lengths_ms)), self.sensor.needed_ms()
        if median_ms < needed_ms:
            late = (
                f" and is {self.sensor.delay_s:.2g} s late" if self.sensor.delay_s * query_energy.FEWEST_DELAYS * 1000 >= needed_ms else ""
            )
            return _NO_ENERGY, (
                f"a {name} of {median_ms:,.4g} ms is too short for {self.energy.sensor}, which needs {needed_ms:,.4g} ms{late}: "
                f"{_ADVICE[name]}"
            )
        result = query_energy.part_energy(self.sensor, part, before)
        gain, zero_u_w = self.case.description.gain_u_ratio, budget.offset_u_w(self.case.description)
        gain_term = (None if gain is None else gain * abs(result.gross_mj), None)
        zero_term = (None if zero_u_w is None else zero_u_w * result.length_ms, None)
        gross_u_mj = budget.expanded([result.sampling, result.borders, result.quantisation, gain_term, zero_term])
        return _per_token(tokens, result.gross_mj, gross_u_mj), None


def _per_token(tokens: float, gross_mj: float, gross_u_mj: float | None) -> _PerToken:
    return gross_mj / tokens, None if gross_u_mj is None else gross_u_mj / tokens


_DELAY_ADVICE = "let the machine idle after the run (idle_seconds)"
_ADVICE = {
    "prefill": "use longer prompts, or measure prefill by itself with --output-tokens 1",
    "decode": "ask for more output tokens",
}
