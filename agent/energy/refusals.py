"""Why readings support no energy, each reason in a sentence that names what would give one; and which sensor repeats one value."""

import dataclasses

import numpy as np

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy import sensor_run
from edgemeter.agent.energy.accelerators import accelerator_refusal
from edgemeter.agent.energy.curve import CounterCurve, increasing, mean_w
from edgemeter.agent.energy.queries import Array, Queries, Times
from edgemeter.agent.energy.renewal import LOCKED, NOMINAL_U_RATIO, Renewal, described_renewal, keeps_step, unseen_phases_ns
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.sensor_faults import FEWEST_EQUAL, Fault, clipping, hangs, nothing_shown, overstays, spikes
from edgemeter.agent.energy.sensor_run import EnergyRun, SensorRun, seconds
from edgemeter.agent.energy.settling import Settling
from edgemeter.agent.energy.window import Window
from edgemeter.agent.machine.power_range import ANY_MACHINE, READING_RATIO, PowerRange
from edgemeter.agent.power import Description

# The timed part begins with its first query, a little after its clock was started.
TOLERANCE_RATIO = 0.01
LARGEST_STEP_RATIO = 0.02
# How far beside the rate of frames another one is looked for, in percent.
OTHER_RATES = (-1, 1, -2, 2, -3, 3, -5, 5)
# Of a sensor that has not settled when idle ends, so much may be missing, as a share of the energy.
LARGEST_LATE_RATIO = 0.01
# How much longer it has to idle then: how slow the sensor is was not seen to its end.
LONGER = 3.0
# A sensor may hang for this share of the timed part, and for this share of an idle stretch, before its energy is refused.
HUNG_RATIO, HUNG_IDLE_RATIO = 0.01, 0.05
# A meter that shows less than this share of a stretch does not show so little power; the rest lies beside the load.
SHOWN_RATIO = 1 / 3
_PLUG_TURNED = "its clamp or its wiring is reversed: turn the clamp around, or exchange line and load"
_PLUG_LOW = (
    "the load is below what the plug can show, or is not plugged into it: use a meter in the board's supply (scope board-input: an INA2xx "
    "or a USB-C meter)"
)
_SUPPLY_TURNED = "its shunt or its cable is reversed: exchange its two ends"
_SUPPLY_LOW = "the current bypasses its shunt or cable, or is below its step: put it into the only supply of the board"
_RAILS = "its offset exceeds what its rails draw: use a meter in the board's supply (scope board-input)"


def refusal_of(case: SensorRun) -> str | None:
    """Return the first reason not to give an energy."""
    counter = _counter_refusal(case, case.curve) if isinstance(case.curve, CounterCurve) else None
    blocked = case.description.blocked or accelerator_refusal(case.description, case.run.accelerator) or _spike(case) or _impossible(case)
    # A sensor that hangs may seem to renew its value so seldom that the run is too short for it.
    failed = blocked or _clipped(case) or _hung(case)
    return failed or too_short(case.description, case.run, case.renewal) or counter or _missing(case)


def _impossible(case: SensorRun) -> str | None:
    """Return why the power over a window is impossible for a machine; a counter that omits energy has its own reason."""
    if isinstance(case.curve, CounterCurve):
        power_w = mean_w(case.curve, case.run.timed)
        return power_refusal(case.description, power_w, "over the timed part", case.run.draws) if power_w > 0 else None
    idle = [window for window in (case.run.idle_before, case.run.idle_after) if window is not None and case.curve.values(window)]
    # Of a stretch that is all edge, the whole is looked at.
    inner_parts = [
        inner if (inner := sensor_run.quiet(case, window)).length_ns > 0 and case.curve.values(inner) else window for window in idle
    ]
    stretches = [(case.run.timed, "over the timed part"), *((window, "while idle") for window in inner_parts)]
    means = ((mean_w(case.curve, window), when) for window, when in stretches if window.length_ns > 0 and case.curve.values(window))
    return next((why for power_w, when in means if (why := power_refusal(case.description, power_w, when, case.run.draws))), None)


def too_short(description: Description, run: EnergyRun, renewal: Renewal | None) -> str | None:
    """Return why the timed part is too short for a sensor that is read, and renews its value, so often."""
    window_s, least_s = seconds(run.timed), sensor_run.needed_s(description, run, renewal)
    # A watched block that is short gets a wide interval.
    if window_s * (1 + TOLERANCE_RATIO) >= least_s or not run.counts_inferences:
        return None
    reading_rate = f"a reading every {_short(description.period_ms)} ms"
    if renewal is not None:
        reading_rate += f", renewed every {_short(renewal.interval_ns / 1e9)} s"
    few = f"{run.inferences} inferences in {window_s:.3g} s are too few for an energy from {reading_rate}"
    return f"{few}: time at least {_short(least_s)} s of them (a longer mode)"


def _missing(case: SensorRun) -> str | None:
    window_s = seconds(case.run.timed)
    if not sensor_run.misses_readings(case, case.run.timed):
        return None
    _, missing_ns = sensor_run.gaps_ns(case, case.run.timed)
    gone = f"; {case.trace.ended}" if case.trace.ended else ""
    allowed = f"at most {sensor_run.LARGEST_GAP_RATIO:.0%} may be: find what keeps them from coming, and measure again"
    failed = failures_text(case.trace)
    return f"readings are missing in {missing_ns / 1e9:.3g} s of the {window_s:.3g} s that were timed{failed} ({allowed}){gone}"


def _readings(case: SensorRun) -> tuple[Times, Array]:
    """Return when was read, and the powers, W; of a counter the mean powers since the read before."""
    if not isinstance(case.curve, CounterCurve):
        return increasing((reading.taken_ns, reading.power_w) for reading in case.trace.readings)
    times_ns, energies_mj = increasing((reading.taken_ns, reading.energy_mj) for reading in case.trace.readings)
    return times_ns[1:], np.diff(energies_mj) * NS_PER_MS / np.diff(times_ns)


def _spike(case: SensorRun) -> str | None:
    """Return that single readings, not most of them, are of no power; a peak that the machine may draw stays in the energy."""
    if isinstance(case.curve, CounterCurve):
        return None
    times_ns, powers_w = _readings(case)
    are_spikes = spikes(powers_w, READING_RATIO * case.run.draws.highest_in(case.description.scope))
    if not 0 < are_spikes.sum() < powers_w.size / 2:
        return None
    largest_w = powers_w[are_spikes][np.argmax(np.abs(powers_w[are_spikes]))]
    when = _counted(case.run, int(times_ns[are_spikes][0]))
    return (
        f"{are_spikes.sum()} of {powers_w.size} readings show up to {largest_w:,.6g} W, beside a median of {np.median(powers_w):,.4g} W, "
        f"the first {when}: no {case.run.draws.machine} draws that, they are garbled; check its cable and bus, update its driver or "
        "firmware, and measure again"
    )


def _hung(case: SensorRun) -> str | None:
    """Return that the sensor repeated one value for a part of the run that matters."""
    is_counter = isinstance(case.curve, CounterCurve)
    idle = [window for window in (case.run.idle_before, case.run.idle_after) if window is not None]
    shares = [(case.run.timed, HUNG_RATIO), *((window, HUNG_IDLE_RATIO) for window in idle)]
    readings = (*_readings(case), case.description.resolution_w, case.run.timed, idle)
    late = () if is_counter else (fault for fault in overstays(*readings) if _works(case, fault))
    for fault in (*hangs(*readings), *late):
        if any(_overlap_ns(fault, window) > share * window.length_ns for window, share in shares):
            value = "its count" if is_counter else f"{fault.value:.5g} W"
            when = _counted(case.run, fault.begin_ns, fault.end_ns)
            return (
                f"it repeats {value} in {fault.readings} readings {when}, longer than chance and its own clock explain: it hangs; restart "
                "it, check it with a load that you know, and measure again"
            )
    return None


def _works(case: SensorRun, fault: Fault) -> bool:
    """Return whether the load is known to have changed by then: it had ended, or its queries had taken their usual share."""
    queries, start_ns = case.run.queries, case.run.timed.start_ns
    if fault.end_ns >= case.run.timed.end_ns:
        return True
    if queries is None:
        return False
    begun_ns = np.clip(fault.end_ns - queries.starts_ns, 0, queries.durations_ns)
    usual_ratio = float(queries.durations_ns.sum()) / case.run.timed.length_ns
    return float(begun_ns.sum()) > usual_ratio / 2 * (fault.end_ns - start_ns)


def _clipped(case: SensorRun) -> str | None:
    """Return that the range of the sensor ends below the load's power."""
    if isinstance(case.curve, CounterCurve):
        return None
    fault = clipping(*_readings(case), case.description.resolution_w, case.run.timed)
    if fault is None:
        return None
    return (
        f"{fault.readings} readings {_counted(case.run, fault.begin_ns, fault.end_ns)} show exactly {fault.value:.5g} W, and none shows "
        "more: its range ends there, and the load exceeds it; use a smaller shunt, or a sensor of a wider range"
    )


def _overlap_ns(fault: Fault, window: Window) -> int:
    return min(fault.end_ns, window.end_ns) - max(fault.begin_ns, window.start_ns)


def _counted(run: EnergyRun, begin_ns: int, end_ns: int | None = None) -> str:
    """Return the moments in words, counted from the first timed query."""
    begin_s = (begin_ns - run.timed.start_ns) / 1e9
    moments = f"at {begin_s:.3g} s" if end_ns is None else f"from {begin_s:.3g} to {(end_ns - run.timed.start_ns) / 1e9:.3g} s"
    return f"{moments} (0: the timed part begins)"


def _counter_refusal(case: SensorRun, curve: CounterCurve) -> str | None:
    if curve.went_back:
        return "the energy counter went backwards: it was reset while measuring, measure again"
    energy_mj = curve.energy_mj(case.run.timed)
    if energy_mj <= 0:
        return (
            "the energy counter did not move while inferences were timed: it does not measure this load, or one of its steps exceeds "
            "the whole energy; time much longer, or use a sensor that shows power"
        )
    if case.run.counts_inferences and curve.step_mj is not None and curve.step_mj > LARGEST_STEP_RATIO * energy_mj:
        share = curve.step_mj / energy_mj
        needed_s = seconds(case.run.timed) * share / LARGEST_STEP_RATIO
        step = f"{_short(curve.step_mj / 1000)} J, {share:.1%} of the measured energy"
        return f"one step of the energy counter is {step}: time at least {_short(needed_s)} s"
    return None


def lacks(case: SensorRun, settling: Settling) -> bool:
    """Return whether a part of the energy that matters may come after the idle stretch."""
    return not settling.is_reached and settling.u_mj > LARGEST_LATE_RATIO * abs(case.curve.energy_mj(case.run.timed))


def settling_idle_s(case: SensorRun, settling: Settling) -> float:
    """Return how long the machine would have to idle for the sensor to settle, where it had not."""
    after = case.run.idle_after
    return LONGER * max(settling.settles_s, 0.0 if after is None else seconds(after))


def unsettled(case: SensorRun, settling: Settling) -> str:
    """Return what a sensor that had not settled needs."""
    after = case.run.idle_after
    waited_s = 0.0 if after is None else seconds(after)
    setting = "idle_seconds" if case.run.counts_inferences else "--idle"
    return (
        f"it still shows the load when the {waited_s:.3g} s of idle after it end (it lags by {settling.delay_s:.2g} s or more): "
        f"let it idle for at least {_short(settling_idle_s(case, settling))} s ({setting})"
    )


def in_step(case: SensorRun, settling: Settling | None) -> str | None:
    """Return why a sensor by its own clock may see one part of each query only."""
    queries, averaging, each_ns = case.run.queries, case.description.averaging, sensor_run.cycle_ns(case.run)
    if queries is None or each_ns is None or queries.are_shuffled:
        return None
    renewal = described_renewal(averaging, case.renewal)
    is_known = renewal is not None and keeps_step(queries, renewal)
    renewal = renewal if is_known else _unseen_in_step(case, queries)
    if renewal is None:
        return None
    sees_a_part = averaging is not None and averaging.seen_ratio is not None
    # What it looked at a moment ago it would show within one interval, and its readings show that to half of the two periods that may lie
    # between them: one that is later averages, and over more than that.
    if not sees_a_part and settling is not None and settling.least_delay_s * 1e9 > renewal.interval_ns + case.curve.spacing_ns:
        return None
    renews, clock = ("renews", "its own clock") if is_known else ("may renew", "a clock that readings as far apart do not show")
    return (
        f"it {renews} its value every {_short(renewal.interval_ns / NS_PER_MS)} ms by {clock}, in step with queries every "
        f"{_short(each_ns / NS_PER_MS)} ms: it may see the same part of each; {_other_rate(case.run, queries, renewal)}, "
        "or use a sensor that counts energy"
    )


def _other_rate(run: EnergyRun, queries: Queries, renewal: Renewal) -> str:
    """Return what puts the queries out of step; of frames the nearest rate that does, by a percent or a few."""
    if run.frames_per_s is not None:
        for percent in OTHER_RATES:
            rate_per_s = run.frames_per_s * (1 + percent / 100)
            starts_ns = np.arange(queries.starts_ns.size) * 1e9 / rate_per_s
            end_ns = round(starts_ns.size * 1e9 / rate_per_s)
            if not keeps_step(Queries(starts_ns.astype(np.int64), queries.durations_ns, end_ns), renewal):
                return f"at {rate_per_s:.4g} frames a second it sees all parts (rate_per_s)"
    return "time them at another rate (scenario poisson, rate_per_s)"


def _unseen_in_step(case: SensorRun, queries: Queries) -> Renewal | None:
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
    return renewal if unseen_phases_ns(*curve.readings(case.run.timed), curve.spacing_ns) else None


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def failures_text(trace: SensorTrace) -> str:
    """Return how many reads failed, in brackets; nothing where none did."""
    last = f", the last: {trace.failure}" if trace.failure else ""
    return f" ({trace.failures} reads failed{last})" if trace.failures else ""


def without_nothing(trace: SensorTrace, run: EnergyRun) -> SensorTrace:
    """Return the trace without the readings of 0 W that a meter gives while it restarts; they count as failed.

    A meter that shows nothing all through a stretch does not show so little power: that has a reason of its own.
    """
    description = trace.description
    if description is None or description.kind == "energy" or not ANY_MACHINE.lowest_in(description.scope):
        return trace
    powers_w = np.array([reading.power_w for reading in trace.readings], np.float64)
    nothing = nothing_shown(powers_w, description.resolution_w)
    taken_ns = np.array([reading.taken_ns for reading in trace.readings], np.int64)
    stretches = [stretch for stretch in (run.timed, run.idle_before, run.idle_after) if stretch is not None]
    parts = [~nothing[(taken_ns >= stretch.start_ns) & (taken_ns <= stretch.end_ns)] for stretch in stretches]
    if not nothing.any() or any(part.size and part.mean() < SHOWN_RATIO for part in parts):
        return trace
    readings = tuple(reading for reading, is_nothing in zip(trace.readings, nothing, strict=True) if not is_nothing)
    moments = _counted(run, int(taken_ns[nothing][0]), int(taken_ns[nothing][-1]))
    failure = f"it showed 0 W {moments}, which no running machine draws; it restarted, or lost its contact"
    return dataclasses.replace(trace, readings=readings, failures=trace.failures + int(nothing.sum()), failure=failure)


def power_refusal(description: Description, power_w: float, when: str, draws: PowerRange = ANY_MACHINE) -> str | None:
    """Return why a mean power of a sensor gives no energy; None of one that the machine can draw. `when` follows it: "while idle"."""
    lowest_w, highest_w = draws.lowest_in(description.scope), draws.highest_in(description.scope)
    if power_w <= 0:
        return f"it shows a mean of {power_w:.3g} W {when}, which no machine draws: {_cause(description, power_w)}"
    if lowest_w <= power_w <= highest_w:
        return None
    bound = f"at most {highest_w:,.5g}" if power_w > highest_w else f"at least {lowest_w:.3g}"
    return f"it shows a mean of {power_w:,.4g} W {when}, and a {draws.machine} draws {bound} W: {_scale(description)}"


def _scale(description: Description) -> str:
    """Return the remedy for a power that is wrong by a factor."""
    name = description.id.partition(":")[0]
    if description.id.startswith("hwmon:ina"):
        return f"its shunt is another one; set shunt_ohm in [sensors.{name}] to what is printed on it (R100 is 0.1 Ohm)"
    if description.scope == "wall-ac":
        return "it counts in another unit (milliwatts for watts), or feeds other machines too; compare it with a load that you know"
    return "it counts in another unit (milliwatts for watts), or its shunt is another one; compare it with a meter that you know"


def _cause(description: Description, power_w: float) -> str:
    """Return the likely cause and the remedy, by the scope that the sensor sees, by its name, and by the sign."""
    if description.scope == "wall-ac":
        return _PLUG_TURNED if power_w < 0 else _PLUG_LOW
    name = description.id.partition(":")[0]
    if description.scope != "board-input" and name != "hwmon":
        return _RAILS
    if power_w == 0:
        return _SUPPLY_LOW
    return f"{_SUPPLY_TURNED}, or set gain = -1 in [sensors.{name}]"


def is_frozen(trace: SensorTrace, timed: Window, idle_before: Window | None, idle_after: Window | None) -> bool:
    """Return whether a sensor of power repeated one value from the end of idle through all of the timed part; a counter never does.

    Such a sensor hangs: it goes on with the last value that it showed while the machine idled.
    """
    before = _powers_w(trace, idle_before)[-FEWEST_EQUAL:]
    # After a load a slow sensor still shows it for a while.
    idle = before or _powers_w(trace, idle_after)
    load = _powers_w(trace, timed)
    return min(len(idle), len(load)) >= FEWEST_EQUAL and len({*idle, *load}) == 1


def _powers_w(trace: SensorTrace, window: Window | None) -> list[float]:
    if window is None:
        return []
    inside = [r.power_w for r in trace.readings if r.energy_mj is None and window.start_ns <= r.taken_ns <= window.end_ns]
    return [power_w for power_w in inside if power_w is not None]
