"""Energy per inference: what the readings around a run support, or the reason why they support none."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.contract.energy_provenance import ESTIMATE_SENSOR, sensor_provenance
from edgemeter.agent.contract.record_figures import Energy, UncertaintyTerm
from edgemeter.agent.energy import budget, refusals, sensor_run
from edgemeter.agent.energy.accelerators import excluded
from edgemeter.agent.energy.curve import PowerCurve, curve_of
from edgemeter.agent.energy.query_energy import QueriesEnergy, queries_energy
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.sensor_run import EnergyRun, SensorRun, seconds, settling_of
from edgemeter.agent.energy.settling import Settling
from edgemeter.agent.energy.short_block import settled_ns, short_block
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power.detect import NO_SENSOR, scope_rank

FEWEST_IDLE_VALUES = 5
RESOLVABLE = 3.0
# A short block is worth so much idle: a sensor that lags by 5 s has settled, and one that never does is no reason for minutes.
LONGEST_IDLE_S = 30.0
COVERAGE_FACTOR = 2.0
# Of sums of float64 over a long trace.
ROUNDING_RATIO = 1e-9
# Nobody idles a board for longer to see a net energy.
_LONGEST_S = 86_400.0
# A mean absolute error of 1% of a normal distribution.
SUFFICIENT_U_RATIO = 0.01 * math.sqrt(math.pi / 2)
EnergyOrReason = tuple[Energy | None, str | None]


def estimated_energy(power_w: float, run: EnergyRun) -> Energy:
    """Return the estimated energy of an inference from a stated input power; it is never ranked with measurements."""
    timed_ms, queries = run.timed.length_ns / NS_PER_MS, run.long_queries
    window_ms = timed_ms if queries is None else float(queries.durations_ns.sum()) / NS_PER_MS
    return Energy(
        sensor=ESTIMATE_SENSOR,
        scope="board-input",
        excludes=(),
        gross_mj=power_w * window_ms / max(1, run.inferences),
        gross_u_mj=None,
        net_mj=None,
        net_u_mj=None,
        net_state="no_idle",
        mean_power_w=power_w,
        idle_before_w=None,
        idle_after_w=None,
        inferences=run.inferences,
        window_ms=window_ms,
        between_ms=None if queries is None else timed_ms - window_ms,
        samples=0,
        period_ms=0.0,
        resolution_w=None,
        longest_gap_ms=window_ms,
        interval_reason="the power was stated, not measured: name a power sensor (--power)",
    )


@dataclass(frozen=True, slots=True)
class Energies:
    """The energies of a run: that of the widest scope, or why there is none; the others, and why some sensors gave none.

    `frozen` holds the ids of those sensors that repeated one value through idle and load.
    """

    energy: Energy | None
    reason: str | None
    others: tuple[Energy, ...] = ()
    refused: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()

    def all(self) -> tuple[Energy, ...]:
        """Return all energies, that of the widest scope first."""
        return () if self.energy is None else (self.energy, *self.others)


def energies_of(traces: Iterable[SensorTrace], run: EnergyRun) -> Energies:
    """Return the energies that the readings of all sensors support, each by itself; a measured one goes before a replayed one."""
    energies: list[Energy] = []
    reasons: list[str] = []
    frozen: list[str] = []
    for trace in ranked(traces):
        energy, reason = assess(trace, run)
        if energy is None:
            reasons.append(reason or "")
            continue
        energies.append(energy)
        if refusals.is_frozen(trace, run.timed, run.idle_before, run.idle_after):
            frozen.append(energy.sensor)
    if not energies:
        return Energies(None, "; ".join(reasons) or NO_SENSOR)
    return Energies(energies[0], None, tuple(energies[1:]), tuple(reasons), tuple(frozen))


def ranked(traces: Iterable[SensorTrace]) -> list[SensorTrace]:
    """Return the traces in the order in which their energies are given: that of the widest scope first."""

    def order(trace: SensorTrace) -> tuple[bool, int]:
        description = trace.description
        if description is None:
            return False, -1
        # What the sensor did not measure here stands behind what another one did, however wide its scope.
        is_measured = sensor_provenance(description.id, "measured") == "measured"
        return not is_measured, scope_rank(description.scope)

    return sorted(traces, key=order)


def assess(trace: SensorTrace, run: EnergyRun) -> EnergyOrReason:
    """Return the energy per inference of the timed part, from one sensor's readings; else None, and the reason."""
    trace = refusals.without_nothing(trace, run)
    description = trace.description
    if description is None or len(trace.readings) < 2:
        short_of = None if description is None or trace.ended or trace.failures else refusals.too_short(description, run, None)
        return None, f"{trace.name}: {short_of or trace.ended or 'it gave no two readings'}{refusals.failures_text(trace)}"
    curve = curve_of(trace.readings, description)
    renewal = sensor_run.sensor_renewal(curve, run) if isinstance(curve, PowerCurve) else None
    if renewal is None:
        # The phase of a reading in its query is known where the sensor looks when it is read.
        curve = curve_of(trace.readings, description, run.queries)
    case = SensorRun(trace, description, curve, run, renewal)
    refusal = refusals.refusal_of(case)
    if refusal:
        return None, f"{trace.name}: {refusal}"
    if _is_short(case):
        block = short_block(case)
        if isinstance(block, str):
            return None, f"{trace.name}: {block}"
        return _energy(case, block.idling, block.settling, block.terms)
    settling = settling_of(case)
    why = (
        refusals.unsettled(case, settling) if settling is not None and refusals.lacks(case, settling) else refusals.in_step(case, settling)
    )
    if why:
        return None, f"{trace.name}: {why}"
    before, after = (_usable(case, window, settling) for window in (run.idle_before, run.idle_after))
    energy, why = _energy(case, budget.idle(curve, run.timed, before, after), settling)
    return energy, why and f"{trace.name}: {why}"


def more_idle_s(traces: Iterable[SensorTrace], run: EnergyRun) -> float:
    """Return how much longer the machine would have to idle after the timed part for all sensors to show it to its end; 0 if they do."""
    cases = [
        SensorRun(trace, trace.description, curve_of(trace.readings, trace.description), run)
        for trace in traces
        if trace.description is not None and len(trace.readings) > 1
    ]
    idled_s = 0.0 if run.idle_after is None else seconds(run.idle_after)
    short, long = ([case for case in cases if _is_short(case) is is_short] for is_short in (True, False))
    settlings = [(case, settling) for case in long if (settling := settling_of(case)) is not None]
    idles_s = [refusals.settling_idle_s(case, settling) for case, settling in settlings if refusals.lacks(case, settling)]
    idles_s += [min(refusals.LONGER * idled_s, LONGEST_IDLE_S) for case in short if settled_ns(case) == math.inf]
    return max((idle_s - idled_s for idle_s in idles_s), default=0.0)


def _is_short(case: SensorRun) -> bool:
    """Return whether a watched block is shorter than a run would have to be."""
    return not case.run.counts_inferences and seconds(case.run.timed) < sensor_run.needed_s(case.description, case.run, case.renewal)


def _usable(case: SensorRun, window: Window | None, settling: Settling | None) -> Window | None:
    """Return the usable part of an idle stretch; None where it is too short, or readings are missing."""
    if window is None:
        return None
    calm = sensor_run.quiet(case, window, 0.0 if settling is None else settling.settles_s)
    if calm.length_ns < sensor_run.FEWEST_IDLE_PERIODS * case.description.period_ms * NS_PER_MS:
        return None
    if sensor_run.misses_readings(case, calm):
        return None
    # A counter of coarse steps hardly moves while the machine idles, and what it does between two moves is not known.
    return calm if case.curve.values(calm) >= FEWEST_IDLE_VALUES else None


def _energy(
    case: SensorRun, idling: budget.IdlePower | None, settling: Settling | None, block_terms: Mapping[str, budget.Term] | None = None
) -> EnergyOrReason:
    timed, description = case.run.timed, case.description
    energy_mj = case.curve.energy_mj(timed) + (0.0 if settling is None else settling.late_mj)
    terms = budget.terms(case, idling, settling, block_terms or {})
    of_queries, why = queries_energy(case, settling, energy_mj, None if idling is None else idling.mean_w, terms)
    if why:
        return None, why
    timed_energy = of_queries or _without_pauses(case, energy_mj, idling, terms)
    length_ms, terms = timed_energy.length_ms, timed_energy.budget
    power_w = timed_energy.energy_mj / length_ms
    gross_mj = timed_energy.energy_mj / case.run.inferences
    net_mj = None if idling is None else gross_mj - idling.mean_w * length_ms / case.run.inferences
    gross_u_mj, gross_k = budget.gross(terms)
    net_u_mj, net_k = (None, None) if net_mj is None else budget.net(terms, gross_mj, net_mj)
    # More than three uncertainties of idle power, and more than its own (k = 2), but for the gain's.
    clears_idle = idling is not None and power_w - idling.mean_w > RESOLVABLE * idling.u_w
    lost_mj = max(COVERAGE_FACTOR * math.hypot(*_net_terms(terms).values()), ROUNDING_RATIO * gross_mj)
    resolved = clears_idle and net_mj is not None and net_mj > lost_mj
    energy = Energy(
        sensor=description.id,
        scope=description.scope,
        excludes=excluded(description, case.run.attached),
        gross_mj=gross_mj,
        gross_u_mj=gross_u_mj,
        net_mj=net_mj if resolved else None,
        net_u_mj=net_u_mj,
        net_state="no_idle" if idling is None else "resolved" if resolved else "not_resolvable",
        mean_power_w=power_w,
        idle_before_w=idling.before_w if idling else None,
        idle_after_w=idling.after_w if idling else None,
        inferences=case.run.inferences,
        window_ms=length_ms,
        between_ms=None if of_queries is None else timed.length_ns / NS_PER_MS - length_ms,
        samples=sum(timed.start_ns <= reading.taken_ns <= timed.end_ns for reading in case.trace.readings),
        period_ms=description.period_ms,
        resolution_w=description.resolution_w,
        longest_gap_ms=sensor_run.gaps_ns(case, timed)[0] / NS_PER_MS,
        budget=terms,
        gross_k=gross_k,
        net_k=net_k,
        interval_reason=budget.unknown_reason(terms),
        resolving_window_s=None if resolved or idling is None else _resolving_window_s(case, idling, power_w - idling.mean_w, terms),
        sufficient_window_s=_sufficient_window_s(case, terms, gross_mj),
        follows_queries=case.curve.follows_queries,
        # Of a short block the readings show how much comes late, and not how late it comes.
        delay_s=None if settling is None or block_terms is not None else settling.delay_s,
        renewed_s=None if case.renewal is None else case.renewal.interval_ns / 1e9,
    )
    return energy, None


def _without_pauses(
    case: SensorRun, energy_mj: float, idling: budget.IdlePower | None, terms: tuple[UncertaintyTerm, ...]
) -> QueriesEnergy:
    """Return the energy of the timed part without that of the random pauses between queries, and its budget.

    Their power lies between idle power and that of the timed part: GUM 4.3.7. Readings within them would not show it where the sensor lags.
    """
    length_ms = case.run.timed.length_ns / NS_PER_MS
    paused_ms = 0.0 if case.run.queries is None else case.run.queries.paused_ns / NS_PER_MS
    if not paused_ms:
        return QueriesEnergy(energy_mj, length_ms, terms)
    power_w, idle_w = energy_mj / length_ms, 0.0 if idling is None else idling.mean_w
    u_mj = abs(power_w - idle_w) / math.sqrt(12) * paused_ms / case.run.inferences
    paused_mj = (idle_w + power_w) / 2 * paused_ms
    return QueriesEnergy(energy_mj - paused_mj, length_ms - paused_ms, (*terms, UncertaintyTerm(term="pauses", u_mj=u_mj)))


def _net_terms(terms: Iterable[UncertaintyTerm]) -> dict[str, float]:
    """Return the known terms of a net energy that could hide it: the gain only stretches it, and the offset cancels."""
    return {term.term: term.u_mj or 0.0 for term in terms if term.term not in {"gain", "offset"}}


def _resolving_window_s(case: SensorRun, idling: budget.IdlePower, net_w: float, terms: Iterable[UncertaintyTerm]) -> float | None:
    """Return how long idle and load would have to be measured for the net power to be resolved; None where no day would do."""
    load_s = seconds(case.run.timed)
    seen_w = {name: u_mj * case.run.inferences / load_s / 1000 for name, u_mj in _net_terms(terms).items()}
    # What comes from scatter shrinks with the root of the length.
    by_idle = (net_w / RESOLVABLE) ** 2 - idling.lasting_u_w**2
    by_all = (net_w / COVERAGE_FACTOR) ** 2 - idling.lasting_u_w**2 - seen_w["quantisation"] ** 2
    if net_w <= ROUNDING_RATIO * idling.mean_w or by_idle <= 0 or by_all <= 0:
        return None
    idle_scatter = idling.length_s * idling.sampling.u_w**2
    load_scatter = load_s * (seen_w["sampling"] ** 2 + seen_w["edges"] ** 2 + seen_w.get("averaging", 0.0) ** 2 + idling.wander_u_w**2)
    window_s = max(idle_scatter / by_idle, (idle_scatter + load_scatter) / by_all, load_s)
    return window_s if window_s <= _LONGEST_S else None


def _sufficient_window_s(case: SensorRun, terms: Iterable[UncertaintyTerm], gross_mj: float) -> float | None:
    """Return how long a timed part suffices for the energy to be off by less than 1% on average; None where no length would do."""
    terms_mj = {term.term: term.u_mj or 0.0 for term in terms}
    allowed = (SUFFICIENT_U_RATIO * gross_mj) ** 2 - sum(terms_mj[name] ** 2 for name in ("gain", "offset", "quantisation"))
    if allowed <= 0:
        return None
    # PowerScatter shrinks with the root of the length; what the edges contribute shrinks faster.
    return max(
        sensor_run.needed_s(case.description, case.run, case.renewal),
        seconds(case.run.timed) * (terms_mj["sampling"] ** 2 + terms_mj["edges"] ** 2) / allowed,
    )
