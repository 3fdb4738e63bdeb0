"""Energy per inference: what the readings around a run support, or the reason why they support none."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.contract.energy_provenance import sensor_provenance
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.energy import budget, gaps, refusals, sensor_run
from edgemeter.agent.energy.accelerators import excluded
from edgemeter.agent.energy.budget import UncertaintyTerm
from edgemeter.agent.energy.curve import PowerCurve, curve_of
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
EnergyOrReason = tuple[Energy | None, str | None]
Budget = tuple[UncertaintyTerm, ...]


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
    energy, reason, _ = assess_with_budget(trace, run)
    return energy, reason


def assess_with_budget(trace: SensorTrace, run: EnergyRun) -> tuple[Energy | None, str | None, Budget]:
    """Return the same, and the budget of the energy's uncertainty."""
    trace = refusals.without_nothing(trace, run)
    description = trace.description
    if description is None or len(trace.readings) < 2:
        short_of = None if description is None or trace.ended or trace.failures else refusals.too_short(description, run, None)
        return None, f"{trace.name}: {short_of or trace.ended or 'it gave no two readings'}{refusals.failures_text(trace)}", ()
    curve = curve_of(trace.readings, description)
    renewal = sensor_run.sensor_renewal(curve, run) if isinstance(curve, PowerCurve) else None
    if renewal is None:
        # The phase of a reading in its query is known where the sensor looks when it is read.
        curve = curve_of(trace.readings, description, run.queries)
    case = SensorRun(trace, description, curve, run, renewal)
    refusal = refusals.refusal_of(case)
    if refusal:
        return None, f"{trace.name}: {refusal}", ()
    if _is_short(case):
        block = short_block(case)
        if isinstance(block, str):
            return None, f"{trace.name}: {block}", ()
        return _energy(case, block.idling, block.settling, block.terms)
    settling = settling_of(case)
    why = (
        refusals.unsettled(case, settling) if settling is not None and refusals.lacks(case, settling) else refusals.in_step(case, settling)
    )
    if why:
        return None, f"{trace.name}: {why}", ()
    before, after = (_usable(case, window, settling) for window in (run.idle_before, run.idle_after))
    return _energy(case, budget.idle(curve, run.timed, before, after), settling)


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
) -> tuple[Energy | None, str | None, Budget]:
    run, description = case.run, case.description
    whole_mj, whole_ms = case.curve.energy_mj(run.timed) + (0.0 if settling is None else settling.late_mj), run.timed.length_ns / NS_PER_MS
    idle_w, length_ms = 0.0 if idling is None else idling.mean_w, gaps.own_ms(case)
    energy_mj, between_u_mj = gaps.between_term(whole_mj, whole_ms, length_ms, idle_w, gaps.highest_w(case, whole_mj, idle_w))
    terms = budget.terms(case, idling, settling, block_terms or {})
    if between_u_mj:
        terms = (*terms, UncertaintyTerm(term="between", u_mj=between_u_mj / run.inferences))
    power_w, gross_mj = energy_mj / length_ms, energy_mj / run.inferences
    net_mj = None if idling is None else gross_mj - idling.mean_w * length_ms / run.inferences
    # More than three uncertainties of idle power, and more than its own (k = 2), but for the gain's.
    clears_idle = idling is not None and power_w - idling.mean_w > RESOLVABLE * idling.u_w
    # The gain only stretches the net energy, and the offset cancels.
    hiding_mj = [term.u_mj or 0.0 for term in terms if term.term not in {"gain", "offset"}]
    lost_mj = max(COVERAGE_FACTOR * math.hypot(*hiding_mj), ROUNDING_RATIO * gross_mj)
    resolved = clears_idle and net_mj is not None and net_mj > lost_mj
    energy = Energy(
        sensor=description.id,
        scope=description.scope,
        excludes=excluded(description, run.attached),
        gross_mj=gross_mj,
        gross_u_mj=budget.gross(terms),
        net_mj=net_mj if resolved else None,
        net_u_mj=None if net_mj is None else budget.net(terms, gross_mj, net_mj),
        mean_power_w=power_w,
        idle_before_w=idling.before_w if idling else None,
        idle_after_w=idling.after_w if idling else None,
        window_ms=length_ms,
        interval_reason=budget.unknown_reason(terms),
    )
    return energy, None, terms
