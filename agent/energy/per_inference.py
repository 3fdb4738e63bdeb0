"""Energy per inference: what the readings around a run support, or the reason why they support none."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgemeter.agent.contract.energy_provenance import ESTIMATE_SENSOR, sensor_provenance
from edgemeter.agent.contract.record_figures import Energy, UncertaintyTerm
from edgemeter.agent.energy import budget
from edgemeter.agent.energy.accelerators import Link, accelerator_refusal, excluded
from edgemeter.agent.energy.curve import NS_PER_MS, CounterCurve, Curve, PowerCurve, curve_of, mean_w
from edgemeter.agent.energy.frozen_sensor import is_frozen
from edgemeter.agent.energy.impossible_power import power_refusal
from edgemeter.agent.energy.queries import Queries
from edgemeter.agent.energy.renewal import (
    LOCKED,
    NOMINAL_U_RATIO,
    Renewal,
    described_renewal,
    keeps_step,
    renewal_of,
    unseen_phases_ns,
    unseen_renewal,
)
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.settling import Settling, settling_after
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description
from edgemeter.agent.power.detect import NO_SENSOR, scope_rank

# The version of what follows: one more whenever the same readings give another energy, uncertainty or refusal.
METHOD = 2
# Source: MLPerf Tiny (10 s); 50 periods keep the edges below 2 % of the window.
SHORTEST_S = 10.0
FEWEST_PERIODS = 50
# Of a sensor that renews its value less often than it is read; the budget knows how few they are.
FEWEST_RENEWALS = 10
FEWEST_INFERENCES = 100
# The timed part begins with its first query, a little after its clock was started.
TOLERANCE_RATIO = 0.01
GAP_PERIODS = 3
LARGEST_GAP_RATIO = 0.05
LARGEST_STEP_RATIO = 0.02
FEWEST_IDLE_PERIODS = 10
FEWEST_IDLE_VALUES = 5
IDLE_MARGIN_PERIODS = 2
# Of a sensor that has not settled when idle ends, so much may be missing, as a share of the energy.
LARGEST_LATE_RATIO = 0.01
# How much longer it has to idle then: how slow the sensor is was not seen to its end.
LONGER = 3.0
RESOLVABLE = 3.0
COVERAGE_FACTOR = 2.0
# A mean absolute error of 1 % of a normal distribution.
SUFFICIENT_U_RATIO = 0.01 * math.sqrt(math.pi / 2)
EnergyOrReason = tuple[Energy | None, str | None]


def estimated_energy(power_w: float, timed: Window, inferences: int) -> Energy:
    """Return the energy of an inference from a stated input power, which nobody measured; it never ranks with measurements."""
    window_ms = timed.length_ns / NS_PER_MS
    return Energy(
        sensor=ESTIMATE_SENSOR,
        scope="board-input",
        excludes=(),
        gross_mj=power_w * window_ms / max(1, inferences),
        gross_u_mj=None,
        net_mj=None,
        net_u_mj=None,
        net_state="no_idle",
        mean_power_w=power_w,
        idle_before_w=None,
        idle_after_w=None,
        inferences=inferences,
        window_ms=window_ms,
        samples=0,
        period_ms=0.0,
        resolution_w=None,
        longest_gap_ms=window_ms,
    )


def shortest_window_s(description: Description, inference_s: float = 0.0) -> float:
    """Return the shortest timed part that a sensor's energy is given for, where an inference takes so long."""
    return max(SHORTEST_S, FEWEST_PERIODS * description.period_ms / 1000, FEWEST_INFERENCES * inference_s)


def shortest_idle_s(description: Description) -> float:
    """Return the shortest idle stretch that gives an idle power, where the sensor shows what it measures without delay."""
    return (FEWEST_IDLE_PERIODS + 2 * IDLE_MARGIN_PERIODS) * description.period_ms / 1000


@dataclass(frozen=True, slots=True)
class EnergyRun:
    """When and what was measured: the timed part, the idle stretches, the inferences; `queries` where their times are known.

    `accelerator` is how the device that it runs on is attached, `attached` all that is, as in the environment.
    What is watched besides runs counts no inferences: then `inferences` is the number of work units, 1 for the whole.
    """

    timed: Window
    idle_before: Window | None
    idle_after: Window | None
    inferences: int
    queries: Queries | None = None
    accelerator: Link | None = None
    attached: Sequence[str] = ()
    counts_inferences: bool = True


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


@dataclass(frozen=True, slots=True)
class _SensorRun:
    trace: SensorTrace
    description: Description
    curve: Curve
    run: EnergyRun
    renewal: Renewal | None = None

    @property
    def timed(self) -> Window:
        return self.run.timed

    @property
    def inferences(self) -> int:
        return self.run.inferences


def energies_of(traces: Iterable[SensorTrace], run: EnergyRun) -> Energies:
    """Return the energies that the readings of all sensors support, each by itself; a measured one goes before a modelled one."""
    found: list[Energy] = []
    reasons: list[str] = []
    frozen: list[str] = []
    for trace in ranked(traces):
        energy, reason = assess(trace, run)
        if energy is None:
            reasons.append(reason or "")
            continue
        found.append(energy)
        if is_frozen(trace, run.timed, run.idle_before, run.idle_after):
            frozen.append(energy.sensor)
    if not found:
        return Energies(None, "; ".join(reasons) or NO_SENSOR)
    return Energies(found[0], None, tuple(found[1:]), tuple(reasons), tuple(frozen))


def ranked(traces: Iterable[SensorTrace]) -> list[SensorTrace]:
    """Return the traces in the order in which their energies are given: that of the widest scope first."""
    return sorted(traces, key=_place)


def _place(trace: SensorTrace) -> tuple[bool, int]:
    description = trace.description
    if description is None:
        return False, -1
    # What the sensor did not measure here stands behind what another one did, however wide its scope.
    is_measured = sensor_provenance(description.id, "measured", is_modelled=description.is_modelled) == "measured"
    return not is_measured, scope_rank(description.scope)


def assess(trace: SensorTrace, run: EnergyRun) -> EnergyOrReason:
    """Return the energy per inference of the timed part, from one sensor's readings; else None, and the reason."""
    description = trace.description
    if description is None or len(trace.readings) < 2:
        too_short = None if description is None or trace.ended or trace.failures else _too_short(description, run, None)
        return None, f"{trace.name}: {too_short or trace.ended or 'it gave no two readings'}{_failures(trace)}"
    curve = curve_of(trace.readings, description)
    renewal = _renewal(curve, run) if isinstance(curve, PowerCurve) else None
    if renewal is None:
        # The phase of a reading in its query is known where the sensor looks when it is read.
        curve = curve_of(trace.readings, description, run.queries)
    case = _SensorRun(trace, description, curve, run, renewal)
    refusal = _refusal(case)
    if refusal:
        return None, f"{trace.name}: {refusal}"
    settling = _settling(case)
    if settling is not None and _lacks(case, settling):
        return None, f"{trace.name}: {_unsettled(case, settling)}"
    if in_step := _in_step(case, settling):
        return None, f"{trace.name}: {in_step}"
    before, after = (_usable(case, window, settling) for window in (run.idle_before, run.idle_after))
    return _energy(case, budget.idle(curve, run.timed, before, after), settling), None


def _renewal(curve: PowerCurve, run: EnergyRun) -> Renewal | None:
    """Return the sensor's own clock, from the readings of the timed part; where these are too few, from those of idle too."""
    found = renewal_of(*curve.readings(run.timed), curve.spacing_ns, _cycle_ns(run))
    if found is not None:
        return found
    stretches = [window for window in (run.idle_before, run.timed, run.idle_after) if window is not None]
    whole = Window(min(one.start_ns for one in stretches), max(one.end_ns for one in stretches))
    # Coarse values repeat while the machine idles and while it works, whatever the sensor's clock: without queries only fine ones count.
    found = renewal_of(*curve.readings(whole), curve.spacing_ns, None)
    if found is not None or run.queries is None:
        return found
    return unseen_renewal(*curve.readings(run.timed), curve.spacing_ns, run.queries)


def _cycle_ns(run: EnergyRun) -> float | None:
    """Return the mean time from one query to the next; None where their times are unknown."""
    queries = run.queries
    return None if queries is None else float(queries.end_ns - queries.starts_ns[0]) / queries.starts_ns.size


def _in_step(case: _SensorRun, settling: Settling | None) -> str | None:
    """Return why a sensor by its own clock may see one part of each query only."""
    queries, averaging, cycle_ns = case.run.queries, case.description.averaging, _cycle_ns(case.run)
    if queries is None or cycle_ns is None:
        return None
    renewal = described_renewal(averaging, case.renewal)
    known = renewal is not None and keeps_step(queries, renewal)
    renewal = renewal if known else _unseen_in_step(case, queries)
    if renewal is None:
        return None
    sees_a_part = averaging is not None and averaging.seen_ratio is not None
    # What it looked at a moment ago it would show within one interval, and its readings show that to half of the two periods that may lie
    # between them: one that is later averages, and over more than that.
    if not sees_a_part and settling is not None and settling.least_delay_s * 1e9 > renewal.interval_ns + case.curve.spacing_ns:
        return None
    renews, clock = ("renews", "its own clock") if known else ("may renew", "a clock that readings as far apart do not show")
    return (
        f"it {renews} its value every {_short(renewal.interval_ns / NS_PER_MS)} ms by {clock}, in step with queries every "
        f"{_short(cycle_ns / NS_PER_MS)} ms: it may see the same part of each; time them at another rate (scenario poisson, rate_per_s), "
        "or use a sensor that counts energy"
    )


def _unseen_in_step(case: _SensorRun, queries: Queries) -> Renewal | None:
    """Return a clock in step with the queries that the readings can neither show nor rule out."""
    curve, averaging = case.curve, case.description.averaging
    if isinstance(curve, CounterCurve) or case.renewal is not None or curve.follows_queries:
        # A sensor that follows the queries looked when it was read.
        return None
    if averaging is not None and (
        averaging.seen_ratio == 1 or max(averaging.window_s or 0.0, averaging.lag_s or 0.0) * 1e9 >= curve.spacing_ns
    ):
        return None
    renewal = Renewal(curve.spacing_ns, NOMINAL_U_RATIO)
    if not keeps_step(queries, renewal, LOCKED):
        return None
    return renewal if unseen_phases_ns(*curve.readings(case.timed), curve.spacing_ns) else None


def more_idle_s(traces: Iterable[SensorTrace], run: EnergyRun) -> float:
    """Return how much longer the machine would have to idle after the timed part for all sensors to show it to its end; 0 if they do."""
    cases = [
        _SensorRun(trace, trace.description, curve_of(trace.readings, trace.description), run)
        for trace in traces
        if trace.description is not None and len(trace.readings) > 1
    ]
    found = [(case, settling) for case in cases if (settling := _settling(case)) is not None]
    idled_s = 0.0 if run.idle_after is None else _seconds(run.idle_after)
    return max((_settling_idle_s(case, settling) - idled_s for case, settling in found if _lacks(case, settling)), default=0.0)


def _lacks(case: _SensorRun, settling: Settling) -> bool:
    """Return whether a part of the energy that matters may come after the idle stretch."""
    return not settling.is_reached and settling.u_mj > LARGEST_LATE_RATIO * abs(case.curve.energy_mj(case.timed))


def _settling_idle_s(case: _SensorRun, settling: Settling) -> float:
    after = case.run.idle_after
    return LONGER * max(settling.settles_s, 0.0 if after is None else _seconds(after))


def _settling(case: _SensorRun) -> Settling | None:
    """Return how the readings fall after the timed part, where there is an idle stretch whose readings show it."""
    after, curve = case.run.idle_after, case.curve
    if isinstance(curve, CounterCurve) or after is None or _gaps(case, after)[1] > LARGEST_GAP_RATIO * after.length_ns:
        return None
    margin_ns = round(IDLE_MARGIN_PERIODS * case.description.period_ms * NS_PER_MS)
    return settling_after(curve, case.timed, Window(after.start_ns, after.end_ns - margin_ns))


def _unsettled(case: _SensorRun, settling: Settling) -> str:
    after = case.run.idle_after
    waited_s = 0.0 if after is None else _seconds(after)
    setting = "idle_seconds" if case.run.counts_inferences else "--idle"
    return (
        f"it still shows the load when the {waited_s:.3g} s of idle after it end (it lags by {settling.delay_s:.2g} s or more): "
        f"let it idle for at least {_short(_settling_idle_s(case, settling))} s ({setting})"
    )


def _refusal(case: _SensorRun) -> str | None:
    """Return the first reason not to give an energy."""
    counter = _counter_refusal(case, case.curve) if isinstance(case.curve, CounterCurve) else None
    blocked = case.description.blocked or accelerator_refusal(case.description, case.run.accelerator) or _impossible(case)
    return blocked or _too_short(case.description, case.run, case.renewal) or counter or _calibration_refusal(case) or _missing(case)


def _impossible(case: _SensorRun) -> str | None:
    """Return why the power over a stretch cannot be that of a machine; what a counter does not count has a reason of its own."""
    if isinstance(case.curve, CounterCurve):
        return None
    idle = [window for window in (case.run.idle_before, case.run.idle_after) if window is not None and case.curve.values(window)]
    # Of a stretch that is all edge, the whole is looked at.
    quiet = [inner if (inner := _quiet(case, window)).length_ns > 0 and case.curve.values(inner) else window for window in idle]
    stretches = [(case.timed, "over the timed part"), *((window, "while idle") for window in quiet)]
    means = ((mean_w(case.curve, window), when) for window, when in stretches if window.length_ns > 0 and case.curve.values(window))
    return next((why for power_w, when in means if (why := power_refusal(case.description, power_w, when))), None)


def _too_short(description: Description, run: EnergyRun, renewal: Renewal | None) -> str | None:
    window_s, needed_s = _seconds(run.timed), _needed_s(description, run, renewal)
    if window_s * (1 + TOLERANCE_RATIO) >= needed_s:
        return None
    every = f"a reading every {_short(description.period_ms)} ms"
    if renewal is not None:
        every += f", renewed every {_short(renewal.interval_ns / 1e9)} s"
    if run.counts_inferences:
        few = f"{run.inferences} inferences in {window_s:.3g} s are too few for an energy from {every}"
        return f"{few}: time at least {_short(needed_s)} s of them (a longer mode)"
    return f"{window_s:.3g} s are too short for an energy from {every}: watch at least {_short(needed_s)} s of it (repeat the work)"


def _missing(case: _SensorRun) -> str | None:
    window_s = _seconds(case.timed)
    _, missing_ns = _gaps(case, case.timed)
    if missing_ns <= LARGEST_GAP_RATIO * case.timed.length_ns:
        return None
    gone = f"; {case.trace.ended}" if case.trace.ended else ""
    allowed = f"at most {LARGEST_GAP_RATIO:.0%} may be: find what keeps them from coming, and measure again"
    return (
        f"readings are missing in {missing_ns / 1e9:.3g} s of the {window_s:.3g} s that were timed{_failures(case.trace)} ({allowed}){gone}"
    )


def _calibration_refusal(case: _SensorRun) -> str | None:
    power_w, valid_w = mean_w(case.curve, case.timed), case.description.valid_w
    if valid_w is None or valid_w[0] <= power_w <= valid_w[1]:
        return None
    return f"{power_w:.3g} W is outside the range of its calibration ({valid_w[0]:.3g} to {valid_w[1]:.3g} W): calibrate it under this load"


def _counter_refusal(case: _SensorRun, curve: CounterCurve) -> str | None:
    if curve.went_back:
        return "the energy counter went backwards: it was reset while measuring, measure again"
    energy_mj = curve.energy_mj(case.timed)
    if energy_mj <= 0:
        return (
            "the energy counter did not move while inferences were timed: it does not measure this load, or one of its steps exceeds "
            "the whole energy; time much longer, or use a sensor that shows power"
        )
    if curve.step_mj is not None and curve.step_mj > LARGEST_STEP_RATIO * energy_mj:
        share = curve.step_mj / energy_mj
        needed_s = _seconds(case.timed) * share / LARGEST_STEP_RATIO
        step = f"{_short(curve.step_mj / 1000)} J, {share:.1%} of the measured energy"
        return f"one step of the energy counter is {step}: time at least {_short(needed_s)} s"
    return None


def _usable(case: _SensorRun, window: Window | None, settling: Settling | None) -> Window | None:
    """Return the usable part of an idle stretch; None where it is too short, or readings are missing."""
    if window is None:
        return None
    quiet = _quiet(case, window, 0.0 if settling is None else settling.settles_s)
    if quiet.length_ns < FEWEST_IDLE_PERIODS * case.description.period_ms * NS_PER_MS:
        return None
    if _gaps(case, quiet)[1] > LARGEST_GAP_RATIO * quiet.length_ns:
        return None
    # A counter of coarse steps hardly moves while the machine idles, and what it does between two moves is not known.
    return quiet if case.curve.values(quiet) >= FEWEST_IDLE_VALUES else None


def _quiet(case: _SensorRun, window: Window, settles_s: float = 0.0) -> Window:
    """Return an idle stretch without its edges; its length may be negative."""
    # Beside its edges a line leads up to the power of the load, and a slow sensor still shows the load that has ended.
    margin_ns = IDLE_MARGIN_PERIODS * round(case.description.period_ms * NS_PER_MS)
    return Window(window.start_ns + max(margin_ns, round(settles_s * 1e9)), window.end_ns - margin_ns)


def _energy(case: _SensorRun, idling: budget.IdlePower | None, settling: Settling | None) -> Energy:
    timed, description = case.timed, case.description
    energy_mj = case.curve.energy_mj(timed) + (0.0 if settling is None else settling.late_mj)
    power_w = energy_mj * NS_PER_MS / timed.length_ns
    gross_mj = energy_mj / case.inferences
    terms = budget.terms(case.curve, description, timed, case.inferences, idling, settling, case.renewal)
    net_mj = None if idling is None else gross_mj - idling.mean_w * timed.length_ns / NS_PER_MS / case.inferences
    gross_u = budget.gross(terms)
    net_u = None if net_mj is None else budget.net(terms, gross_mj, net_mj)
    resolved = idling is not None and net_mj is not None and _is_resolved(idling, power_w - idling.mean_w, terms, net_mj)
    return Energy(
        sensor=description.id,
        scope=description.scope,
        excludes=excluded(description, case.run.attached),
        gross_mj=gross_mj,
        gross_u_mj=gross_u.u_mj if gross_u else None,
        net_mj=net_mj if resolved else None,
        net_u_mj=net_u.u_mj if net_u else None,
        net_state="no_idle" if idling is None else "resolved" if resolved else "not_resolvable",
        mean_power_w=power_w,
        idle_before_w=idling.before_w if idling else None,
        idle_after_w=idling.after_w if idling else None,
        inferences=case.inferences,
        window_ms=timed.length_ns / NS_PER_MS,
        samples=sum(timed.start_ns <= reading.taken_ns <= timed.end_ns for reading in case.trace.readings),
        period_ms=description.period_ms,
        resolution_w=description.resolution_w,
        longest_gap_ms=_gaps(case, timed)[0] / NS_PER_MS,
        budget=terms,
        is_modelled=description.is_modelled,
        gross_k=gross_u.k if gross_u else None,
        net_k=net_u.k if net_u else None,
        resolving_window_s=None if resolved or idling is None else _resolving_window_s(case, idling, power_w - idling.mean_w, terms),
        sufficient_window_s=_sufficient_window_s(case, terms, gross_mj),
        follows_queries=case.curve.follows_queries,
        calibrated_w=description.calibrated_w,
        delay_s=None if settling is None else settling.delay_s,
        renewed_s=None if case.renewal is None else case.renewal.interval_ns / 1e9,
    )


def _is_resolved(idling: budget.IdlePower, net_w: float, terms: Iterable[UncertaintyTerm], net_mj: float) -> bool:
    """Return whether the net energy is more than three uncertainties of idle power, and more than its own (k = 2), but for the gain's."""
    return net_w > RESOLVABLE * idling.u_w and net_mj > COVERAGE_FACTOR * math.hypot(*_net_terms(terms).values())


def _net_terms(terms: Iterable[UncertaintyTerm]) -> dict[str, float]:
    """Return the known terms of a net energy that could hide it: the gain only stretches it, and the offset cancels."""
    return {term.term: term.u_mj or 0.0 for term in terms if term.term not in {"gain", "offset"}}


def _resolving_window_s(case: _SensorRun, idling: budget.IdlePower, net_w: float, terms: Iterable[UncertaintyTerm]) -> float | None:
    """Return how long idle and load would have to be measured for the net power to be resolved; None where that would not help."""
    load_s = _seconds(case.timed)
    seen_w = {name: u_mj * case.inferences / load_s / 1000 for name, u_mj in _net_terms(terms).items()}
    # What comes from scatter shrinks with the root of the length.
    by_idle = (net_w / RESOLVABLE) ** 2 - idling.lasting_u_w**2
    by_all = (net_w / COVERAGE_FACTOR) ** 2 - idling.lasting_u_w**2 - seen_w["quantisation"] ** 2
    if net_w <= 0 or by_idle <= 0 or by_all <= 0:
        return None
    idle_scatter = idling.length_s * idling.sampling.u_w**2
    load_scatter = load_s * (seen_w["sampling"] ** 2 + seen_w["edges"] ** 2 + seen_w.get("averaging", 0.0) ** 2 + idling.wander_u_w**2)
    return max(idle_scatter / by_idle, (idle_scatter + load_scatter) / by_all, load_s)


def _sufficient_window_s(case: _SensorRun, terms: Iterable[UncertaintyTerm], gross_mj: float) -> float | None:
    """Return how long a timed part suffices for the energy to be off by less than 1 % on average; None where no length would do."""
    seen = {term.term: term.u_mj or 0.0 for term in terms}
    allowed = (SUFFICIENT_U_RATIO * gross_mj) ** 2 - sum(seen[name] ** 2 for name in ("gain", "offset", "quantisation"))
    if allowed <= 0:
        return None
    # PowerScatter shrinks with the root of the length; what the edges contribute shrinks faster.
    return max(
        _needed_s(case.description, case.run, case.renewal), _seconds(case.timed) * (seen["sampling"] ** 2 + seen["edges"] ** 2) / allowed
    )


def _needed_s(description: Description, run: EnergyRun, renewal: Renewal | None) -> float:
    """Return the shortest timed part that an energy is given for."""
    inference_s = _seconds(run.timed) / max(run.inferences, 1) if run.counts_inferences else 0.0
    for_renewals_s = 0.0 if renewal is None else FEWEST_RENEWALS * renewal.interval_ns / 1e9
    return max(shortest_window_s(description, inference_s), for_renewals_s)


def _gaps(case: _SensorRun, window: Window) -> tuple[float, float]:
    return case.curve.gaps_ns(window, GAP_PERIODS * case.description.period_ms * NS_PER_MS)


def _seconds(window: Window) -> float:
    return window.length_ns / 1e9


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _failures(trace: SensorTrace) -> str:
    return f" ({trace.failures} reads failed)" if trace.failures else ""
