"""Rules on the measured run itself: its outputs, its latencies, whether its threads got a core when they wanted one, and its energies."""

import math
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.run_statistics import rank_sum
from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.contract.record_figures import WIDEST_FIRST, Energy, Scope
from edgemeter.agent.contract.record_generation import SYNTHETIC
from edgemeter.agent.verdict.rule import Rules, RunFacts

# Twice the smallest difference that matters (3%), rounded down: a smaller drift cannot reverse a comparison.
DRIFT_RATIO = 0.05

# Two-sided p = 1e-4 of the rank sum: with three pairs of thirds, and queries that are not quite independent, false alarms stay rare.
DRIFT_Z = 3.9
FEWEST_IN_THIRD = 7
BOUND_RATIO = 0.10

# On a quiet machine threads wait below 0.1% of the time. Where they waited this much, latency is longer by about as much.
WAITED_RATIO = 0.03
# The wider scopes that contain each scope: a wider one measures all that a narrower one does. A GPU's board is on no module.
INSIDE: dict[Scope, tuple[Scope, ...]] = {scope: WIDEST_FIRST[:index] for index, scope in enumerate(WIDEST_FIRST)}
INSIDE["gpu-board"] = ("board-input", "wall-ac")
# Where a sensor's gain is unknown: by this much the parts of a board may exceed its total.
UNKNOWN_GAIN_RATIO = 0.10
# Six times what healthy runs grew by in 10 to 60 s: -1.5 to 2.5 MB (LiteRT, ONNX Runtime, TorchScript, PyTorch eager and compiled, JAX).
GROWN_MB = 16.0
# What keeps something of each query grows in each third. Healthy runs grew by 2.5 MB at most in all three together, mostly in the first;
# at the second limit 4 GB are full within four hours.
GROWN_IN_THIRD_MB, GROWN_IN_HOUR_MB = 1.0, 1000.0
RULES, ENERGY_RULES = Rules(), Rules()


@RULES.invalid(
    "an open loop keeps up with the rate at which queries arrive",
    "beyond it the queue grows, and latency with the length of the run",
    "lower `--rate`",
)
def _rate_not_sustained(facts: RunFacts) -> str | None:
    load = facts.measured.load
    if load is None or load.is_sustained is not False or facts.measured.steady is not None:
        return None
    dropped_by = " by Edgemeter, which had as many unanswered as it sends at once" if load.in_flight_max else ""
    unserved = f", {load.unserved} were dropped{dropped_by}" if load.unserved else ""
    arrived = "a trace's requests" if load.target_per_s is None else f"{load.target_per_s:g} queries/s"
    return f"{arrived} arrived, {load.achieved_per_s:.4g}/s were served{unserved}: lower the rate"


@RULES.invalid(
    "outputs of timed queries equal those for the same inputs later: within 0.1% of each channel's maximum, or in all boxes; of a server's "
    "text the first token",
    "a latency counts only for correct outputs; float kernels may sum in another order",
    "another backend or release of the runtime; report the wrong kernel",
)
def _outputs_differ(facts: RunFacts) -> str | None:
    check = facts.measured.output_check
    if check.differing == 0:
        return None
    return f"{check.differing} of {check.compared} outputs kept while timing differ from those for the same input later"


@RULES.suspect(
    "a server that is asked a timed prompt twice, alone, repeats itself, and the timed answer where nobody was beside it",
    "greedy generation has one answer: another one was sampled, or computed beside other load",
    "no `temperature` in the server's `extra`; end what else asks the server",
)
def _answers_vary(facts: RunFacts) -> str | None:
    check = facts.measured.output_check
    if check.varying:
        return f"asked twice alone, {_parted(check, check.varying)}: the server is not greedy, or has other load"
    return f"while timed, {_parted(check, check.changed)}: the server had other load" if check.changed else None


def _parted(check: OutputCheck, prompts: int) -> str:
    return f"{prompts} of {check.compared} prompts got other answers, from {check.common_ratio or 0:.0%} of the answer on at the earliest"


@RULES.suspect(
    "a server answers some timed queries once more afterwards",
    "else nothing shows that the model's answers were timed",
    "read the server's log",
)
def _unrepeated_answers(facts: RunFacts) -> str | None:
    return facts.measured.output_check.reason


@RULES.note(
    "a server gives the same answers beside others, and behind what it has cached, as alone",
    "it sums a batch in another order, so that the choice between tokens that are nearly alike falls otherwise",
    "nothing, unless the texts themselves count",
)
def _answers_part(facts: RunFacts) -> str | None:
    check = facts.measured.output_check
    return f"beside others or behind a cache, {_parted(check, check.parting)}" if check.parting else None


@RULES.invalid(
    "there are at least 11 queries",
    "fewer do not support a median with 99% confidence (MLPerf's early stopping)",
    "`--mode normal`, or a smaller load per query",
)
def _too_few_queries(facts: RunFacts) -> str | None:
    latency = facts.measured.latency
    return None if latency.p50_ms is not None else f"{latency.count} queries do not support a median: it needs {latency.refused['p50']}"


@RULES.suspect(
    "latency had settled before timing began",
    "it differs while caches fill and clocks rise",
    "end other programs, then measure again",
)
def _not_steady(facts: RunFacts) -> str | None:
    warm = facts.measured.warm_up
    return None if warm.steady else f"the median latency had not settled after {warm.queries} queries ({warm.duration_ms / 1000:.1f} s)"


@RULES.suspect(
    "the medians of the three thirds, less waits in line, lie within 5%, or not further apart than chance (rank sum, z < 3.9)",
    "5% is about twice the smallest difference that matters",
    "measure longer (`--mode normal`) with a fixed governor and steady cooling",
)
def _drift(facts: RunFacts) -> str | None:
    thirds = np.array_split(facts.service_ms(), 3)
    if thirds[-1].size < FEWEST_IN_THIRD:
        return None
    medians = [float(np.median(third)) for third in thirds]
    low, high = int(np.argmin(medians)), int(np.argmax(medians))
    change = medians[high] / medians[low] - 1 if medians[low] > 0 else 0.0
    if change <= DRIFT_RATIO or rank_sum_z(thirds[low], thirds[high]) < DRIFT_Z:
        return None
    medians_text = ", ".join(f"{median:.4g}" for median in medians)
    return f"median latency of the three thirds was {medians_text} ms: {change:.0%} apart"


@RULES.suspect(
    "resident memory grows by at most 16 MB during the timed part, and not by 1 MB in each third and 1 GB/h, where inputs have one shape",
    "a model that keeps what it computes fills the memory",
    "let the model release its results; keep no graph for gradients (`torch.inference_mode()`)",
)
def _memory_grows(facts: RunFacts) -> str | None:
    memory, latency = facts.measured.memory, facts.measured.latency
    # A library may keep more memory when a larger input comes.
    if memory.grown_mb is None or "timed_shapes" in facts.measured.runtime.facts:
        return None
    # Less the outputs that the benchmark keeps.
    steady_mb = min(3 * min((later - earlier for earlier, later in pairwise(memory.thirds_mb)), default=0.0), memory.grown_mb)
    timed_h = (facts.measured.timed.end_ns - facts.measured.timed.start_ns) / 3.6e12
    is_steady = steady_mb >= 3 * GROWN_IN_THIRD_MB and steady_mb > GROWN_IN_HOUR_MB * timed_h
    if memory.grown_mb <= GROWN_MB and not is_steady:
        return None
    steadily = f", some in each third, {steady_mb / timed_h / 1000:.3g} GB/h," if is_steady else ""
    return (
        f"resident memory grew by {memory.grown_mb:.3g} MB{steadily} in {latency.count} queries, "
        f"{1000 * memory.grown_mb / latency.count:.3g} kB each"
    )


def rank_sum_z(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return by how many standard errors `second` ranks above `first`; equal values share their rank."""
    above, variance = rank_sum(first, second)
    return above / math.sqrt(variance) if variance > 0 else 0.0


@RULES.suspect(
    "the 95% bounds of p50 are at most 10% of it apart; where queries depend on each other and leave it none, the middle half of them is",
    "a median with a larger uncertainty than 5% either way cannot be compared",
    "`--mode normal`; end other programs",
)
def _wide_bounds(facts: RunFacts) -> str | None:
    latency, generation = facts.measured.latency, facts.measured.generation
    latency_ms = facts.latency_ms()
    if generation is not None and generation.prompts != SYNTHETIC:
        # Each query is another: that they differ in length is no uncertainty of the measurement.
        return None
    if latency.p50_ms is not None and "p50" in latency.unbounded and latency_ms.size:
        low_ms, high_ms = np.quantile(latency_ms, (0.25, 0.75))
        is_wide = high_ms - low_ms > BOUND_RATIO * latency.p50_ms
        evidence = f"queries depend on each other and leave p50 no bounds: time about {latency.unbounded['p50']:,} queries (a longer mode)"
        return evidence if is_wide else None
    if latency.p50_ms is None or latency.p50_low_ms is None or latency.p50_high_ms is None:
        return None
    width = (latency.p50_high_ms - latency.p50_low_ms) / latency.p50_ms
    return None if width <= BOUND_RATIO else f"the 95% bounds of p50 are {width:.0%} of it apart: time more queries (a longer mode)"


@RULES.suspect(
    "its threads waited for a free core in at most 3% of the timed part (not checked beside other models, or with more threads than cores)",
    "idle machines stay below 0.1%",
    "fewer `--threads` than cores, and nothing else at work",
)
def _waited_for_core(facts: RunFacts) -> str | None:
    """Check how long threads waited for a core; a run with more threads than cores waits for itself, one beside others is to wait."""
    scheduling = facts.measured.scheduling
    threads = facts.measured.runtime.threads
    if scheduling is None or scheduling.waited_ms is None or scheduling.window_ms <= 0 or threads > scheduling.cores:
        return None
    if facts.measured.together is not None:
        return None
    share = scheduling.waited_ms / (scheduling.window_ms * min(threads, scheduling.cores))
    if share <= WAITED_RATIO:
        return None
    of_time = f"the {scheduling.window_ms:,.1f} ms that were timed" + (f", of {threads} threads" if threads > 1 else "")
    # More threads wait than are stated where a library has its own.
    part = f"{share:.0%} of" if share <= 1 else "longer than"
    return f"its threads waited {scheduling.waited_ms:,.1f} ms for a core, {part} {of_time}"


@ENERGY_RULES.suspect(
    "no power sensor of a narrower scope reads more than one of a wider scope, beyond both uncertainties (k = 2)",
    "a part cannot draw more than the whole; a sensor with unknown gain is allowed 10%",
    "check wiring and shunt of both sensors",
)
def _implausible_power(facts: RunFacts) -> str | None:
    return "; ".join(filter(None, (_contradiction(energy, other) for energy, other in combinations(facts.energies, 2)))) or None


def _contradiction(energy: Energy, other: Energy) -> str | None:
    narrow, wide = (energy, other) if other.scope in INSIDE[energy.scope] else (other, energy)
    ratio = narrow.mean_power_w / wide.mean_power_w if wide.mean_power_w else math.inf
    figures = f"{narrow.mean_power_w:.4g} W ({narrow.sensor}, {narrow.scope}) and {wide.mean_power_w:.4g} W ({wide.sensor}, {wide.scope})"
    beyond = narrow.mean_power_w - wide.mean_power_w
    if wide.scope in INSIDE[narrow.scope] and beyond > math.hypot(_u_w(narrow), _u_w(wide)):
        return f"{figures}: the part draws {ratio:.3g} times the power of the whole; check the shunt and channels of the sensors"
    alike = narrow.scope == wide.scope and set(narrow.excludes) == set(wide.excludes)
    if alike and abs(beyond) > math.hypot(_u_w(narrow), _u_w(wide)):
        return f"{figures}: two sensors of one scope differ (ratio {ratio:.3g}) by more than their uncertainties; check both"
    return None


def _u_w(energy: Energy) -> float:
    """Return the expanded uncertainty of the mean power; with an unknown gain, of what is known and an allowance."""
    per_w = energy.window_ms / max(1, energy.inferences)
    if energy.gross_u_mj is not None:
        return energy.gross_u_mj / per_w
    known_mj = [term.u_mj for term in energy.budget if term.u_mj is not None and not term.term.startswith("idle_")]
    return math.hypot(UNKNOWN_GAIN_RATIO * energy.mean_power_w, 2 * math.hypot(*known_mj) / per_w)


@ENERGY_RULES.suspect(
    "no power sensor repeats one value while the machine idles and in all its readings under load",
    "a driver or plug that hangs repeats its last value, and a coarse step may hide the load",
    "plug the sensor in again; `edgemeter sensors check`",
)
def _frozen_sensor(facts: RunFacts) -> str | None:
    frozen = [energy for energy in facts.energies if energy.sensor in facts.sensor_faults.frozen]
    evidence = (
        f"{energy.sensor} showed {energy.mean_power_w:.4g} W while idle and in every reading under load: it hangs"
        f"{f', or a step of {energy.resolution_w:.3g} W hides the load' if energy.resolution_w else ''}; "
        "restart it, and check it with a load that you know"
        for energy in frozen
    )
    return "; ".join(evidence) or None


@ENERGY_RULES.suspect(
    "no configured power sensor is absent or stops while the energy is taken from another of its scope, or a narrower one",
    "energies at the wall must not go on with a module's, which leave out a part of the board",
    "reconnect it; `edgemeter sensors` shows whether it is back",
)
def _lost_sensor(facts: RunFacts) -> str | None:
    if not facts.energies or not facts.sensor_faults.lost:
        return None
    why, instead = "; ".join(facts.sensor_faults.lost), facts.energies[0]
    return (
        f"{why}; the energy is that of {instead.sensor} ({instead.scope}) instead: "
        "repair it, or name the sensors to use as `power` in the configuration"
    )


@ENERGY_RULES.note(
    "no power sensor warns about its own figures",
    "the sensor's driver knows what may be wrong: an unconfirmed shunt, a coarse resolution",
    "do what the warning names",
)
def _power_sensor_warning(facts: RunFacts) -> str | None:
    return "; ".join(facts.power_warnings) or None
