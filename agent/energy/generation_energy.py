"""Energy of generated text, prefill and decode apart: the energy within the windows of one and of the other.

A window from a query's start to its first token is prefill, from there to its last token decode. A part is given where its windows are
ten times as long as the sensor's values are apart, and three times as long as the sensor is late. Where they are not, measure prefill by
itself, with one token of output: that whole run is prefill.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.energy_provenance import ESTIMATE_SENSOR
from edgemeter.agent.contract.record import Series
from edgemeter.agent.contract.record_conditions import RuntimeInfo
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.contract.record_generation import MOST_CACHED, Generation, GenerationEnergy, TokenEnergy
from edgemeter.agent.contract.token_moments import tokens_after_first
from edgemeter.agent.energy import budget, query_energy
from edgemeter.agent.energy.curve import curve_of
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.energy.query_energy import PartEnergy, QuerySensor, Stretches
from edgemeter.agent.energy.renewal import NOMINAL_U_RATIO, Renewal
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.sensor_run import EnergyRun, SensorRun, settling_of

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


def generation_windows(series: Iterable[Series], timed_start_ns: int, generation: Generation) -> GenerationWindows:
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
        unstreamed_reason=generation.streaming_reason,
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
) -> tuple[GenerationEnergy | None, str | None]:
    """Return the energies per token by the sensor of the run's energy; else None and why."""
    if energy is None:
        return None, "the run has no energy"
    if energy.sensor == ESTIMATE_SENSOR:
        return None, "a stated power is the same for prefill and decode"
    trace = next((trace for trace in traces if trace.description is not None and trace.description.id == energy.sensor), None)
    if trace is None or trace.description is None:
        return None, f"the readings of {energy.sensor} are not there"
    curve = curve_of(trace.readings, trace.description)
    renewal = None if energy.renewed_s is None else Renewal(energy.renewed_s * 1e9, NOMINAL_U_RATIO)
    case = SensorRun(trace, trace.description, curve, run, renewal)
    output_tokens = float(windows.output_tokens.mean())
    split = _Split(energy, case, query_energy.query_sensor(case, settling_of(case)), windows)
    prefill, why_no_prefill = split.prefill()
    decode, why_no_decode = split.decode()
    return (
        GenerationEnergy(
            sensor=energy.sensor,
            scope=energy.scope,
            output_token_gross_mj=energy.gross_mj / output_tokens,
            output_token_gross_u_mj=None if energy.gross_u_mj is None else energy.gross_u_mj / output_tokens,
            prefill_token=prefill,
            prefill_reason=why_no_prefill,
            decode_token=decode,
            decode_reason=why_no_decode,
        ),
        None,
    )


@dataclass(frozen=True, slots=True)
class _Split:
    energy: Energy
    case: SensorRun
    sensor: QuerySensor | None
    windows: GenerationWindows

    def prefill(self) -> tuple[TokenEnergy | None, str | None]:
        """Return the energy per prompt token; of queries of one token all of it."""
        tokens, windows = self.windows.prompt_tokens, self.windows
        if tokens is None:
            return None, "the server does not state how many tokens a prompt has"
        if windows.prefill_reason:
            return None, windows.prefill_reason
        if windows.output_tokens.max() == 1:
            return self._all(tokens), None
        return self._part("prefill", windows.prefill(), query_energy.stretches_before(windows.starts_ns, windows.last_ns), tokens)

    def _all(self, tokens: float) -> TokenEnergy:
        """Return the energy of a query by its tokens."""
        energy = self.energy
        return _per_token(tokens, energy.gross_mj, energy.gross_u_mj, energy.net_mj, energy.net_u_mj)

    def decode(self) -> tuple[TokenEnergy | None, str | None]:
        """Return the energy per token after the first."""
        windows = self.windows
        tokens = windows.output_tokens - 1 if windows.decoded_tokens is None else windows.decoded_tokens
        decodes = tokens > 0
        if not decodes.any():
            return None, windows.unstreamed_reason or "queries of one token decode nothing"
        prefill = windows.prefill()
        before = Stretches(prefill.begins_ns[decodes], prefill.ends_ns[decodes])
        decode = Stretches(windows.first_ns[decodes], windows.last_ns[decodes])
        return self._part("decode", decode, before, float(tokens[decodes].mean()))

    def _part(self, name: str, part: Stretches, before: Stretches, tokens: float) -> tuple[TokenEnergy | None, str | None]:
        if self.windows.unstreamed_reason:
            return None, self.windows.unstreamed_reason
        if self.windows.overlap:
            return None, f"users overlap, so that no reading is of {name} alone: measure it in scenario single_stream"
        if self.sensor is None:
            return None, f"how late {self.energy.sensor} is does not show, and nobody states it: {_DELAY_ADVICE}"
        if part.begins_ns.size < query_energy.FEWEST_QUERIES:
            return None, f"{part.begins_ns.size} queries do not show how {name} scatters: it needs {query_energy.FEWEST_QUERIES}"
        median_ms, needed_ms = float(np.median(part.lengths_ms)), self.sensor.needed_ms()
        if median_ms < needed_ms:
            late = (
                f" and is {self.sensor.delay_s:.2g} s late" if self.sensor.delay_s * query_energy.FEWEST_DELAYS * 1000 >= needed_ms else ""
            )
            return None, (
                f"a {name} of {median_ms:,.4g} ms is too short for {self.energy.sensor}, which needs {needed_ms:,.4g} ms{late}: "
                f"{_ADVICE[name]}"
            )
        result = query_energy.part_energy(self.sensor, part, before)
        gross_u_mj = self._expanded_mj(result, result.gross_mj, budget.offset_u_w(self.case.description))
        net_mj, net_u_mj = self._net(result)
        return _per_token(tokens, result.gross_mj, gross_u_mj, net_mj, net_u_mj), None

    def _expanded_mj(self, result: PartEnergy, energy_mj: float, zero_u_w: float | None) -> float | None:
        """Return the expanded uncertainty with those of the gain and of the zero; None where a term is not known."""
        gain = self.case.description.gain_u_ratio
        gain_term = (None if gain is None else gain * abs(energy_mj), None)
        zero_term = (None if zero_u_w is None else zero_u_w * result.length_ms, None)
        return budget.expanded([result.sampling, result.borders, result.quantisation, gain_term, zero_term])[0]

    def _net(self, result: PartEnergy) -> tuple[float | None, float | None]:
        """Return the energy of a part above idle power, and its expanded uncertainty; the gain acts on the difference, the zero cancels."""
        sides = [idle_w for idle_w in (self.energy.idle_before_w, self.energy.idle_after_w) if idle_w is not None]
        if self.energy.net_state != "resolved" or not sides:
            return None, None
        idle_terms = [term.u_mj for term in self.energy.budget if term.term.startswith("idle_")]
        known_mj = [u_mj for u_mj in idle_terms if u_mj is not None]
        idle_u_w = math.hypot(*known_mj) * self.energy.inferences / self.energy.window_ms if len(known_mj) == len(idle_terms) else None
        net_mj = result.gross_mj - sum(sides) / len(sides) * result.length_ms
        return net_mj, self._expanded_mj(result, net_mj, idle_u_w)


def _per_token(tokens: float, gross_mj: float, gross_u_mj: float | None, net_mj: float | None, net_u_mj: float | None) -> TokenEnergy:
    return TokenEnergy(
        gross_mj=gross_mj / tokens,
        gross_u_mj=None if gross_u_mj is None else gross_u_mj / tokens,
        net_mj=None if net_mj is None else net_mj / tokens,
        net_u_mj=None if net_u_mj is None else net_u_mj / tokens,
    )


_DELAY_ADVICE = "let the machine idle after the run (idle_seconds)"
_ADVICE = {
    "prefill": "use longer prompts, or measure prefill by itself with --output-tokens 1",
    "decode": "ask for more output tokens",
}
