"""The energy of a block that is too short for the usual method: all that the readings show above idle power, and a wide interval.

Whatever a sensor does to the power (lag, average, hold its value), it shows late and loses nothing: the area of its readings above idle
power, from before the block until they are back at idle power, is the block's energy above idle. What is not known of it: at which moment
the power moved between two readings, how long a power lasted that no reading met, and the level of idle power below that area.
Source: conservation of the area by a linear filter of gain 1; a moment anywhere between two readings, GUM 4.3.7 (rectangular); the rule of
succession for what n readings did not meet.
"""

import math
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy import budget
from edgemeter.agent.energy.curve import CounterCurve, PowerCurve, StretchMeans, mean_w, stretch_means
from edgemeter.agent.energy.sensor_run import IDLE_MARGIN_PERIODS, SensorRun, misses_readings, quiet, seconds
from edgemeter.agent.energy.settling import IDLE_LEFT_RATIO, Settling
from edgemeter.agent.energy.window import Window

FEWEST_READINGS = 2
# The load of a processor rises and falls within so long, and may end so long after a block of work.
EDGE_S = 0.02
FEWEST_IDLE_VALUES = 3
# The lengths after the block that are tried, the last of them leaving a third of the idle stretch.
LENGTHS = 40
# Once settled, the area changes by less than this share of it, or than chance does, in standard uncertainties.
SETTLED_RATIO = 0.005
CHANCE = 3.0
STILL_SHOWN_RATIO = 0.1
# Idle power that is higher by no more than this share of it has drifted.
DRIFT_RATIO = 0.01
# A clock is as slow as the third-shortest time between two changes of a coarse value; fewer changes do not show it, and the slowest
# undescribed clocks of meters tick every 2 s.
UNSEEN_CLOCK_NS = 2e9
FEWEST_CHANGES = 4
SHORTEST_CHANGE = 2
MOST_REPEATS = 0.3


@dataclass(frozen=True, slots=True)
class ShortBlock:
    """Idle power around a short block, how much of it comes late, and the terms of its own, each a standard uncertainty in W."""

    idling: budget.IdlePower
    settling: Settling
    terms: dict[str, budget.Term]


def short_block(case: SensorRun) -> ShortBlock | str:
    """Return what the readings around a block show, else the reason why they show too little, with the remedy."""
    after, timed = case.run.idle_after, case.run.timed
    clock_ns = _clock_ns(case)
    # Two readings that chance brought close together know no more than one.
    met = min(case.curve.values(timed) * min(1.0, case.curve.spacing_ns / clock_ns), 1 + timed.length_ns / clock_ns)
    if isinstance(case.curve, PowerCurve) and met < FEWEST_READINGS:
        least_s = 5 * clock_ns / 1e9
        few = f"{met:.2g} new readings within {seconds(timed):.3g} s show no energy"
        if clock_ns > case.curve.spacing_ns:
            few += f", as it may renew its value every {clock_ns / 1e9:.2g} s only"
        return f"{few}: watch at least {least_s:.3g} s of it (repeat the work)"
    if after is None:
        return (
            f"{seconds(timed):.3g} s are too short for an energy without idle after it, in which a sensor shows what it lags behind: --idle"
        )
    margin_ns = round(IDLE_MARGIN_PERIODS * case.description.period_ms * NS_PER_MS)
    length_ns = settled_ns(case)
    if length_ns is None or math.isinf(length_ns):
        return f"the {seconds(after):.3g} s of idle after it do not show when it is over: idle for {3 * seconds(after):.3g} s (--idle)"
    calm = Window(timed.end_ns + round(length_ns), after.end_ns - margin_ns)
    before = _before(case)
    idling = budget.idle(case.curve, timed, before, calm)
    if idling is None or idling.after_w is None:
        return "idle power after it is not known: idle longer (--idle)"
    wander = stretch_means(case.curve, [calm] if before is None else [before, calm])
    return _shown(case, idling, wander, (length_ns, clock_ns, met))


def settled_ns(case: SensorRun) -> float | None:
    """Return how long after the block the readings show the rest of it, ns; inf where they go on to, None where idle cannot show it."""
    after, timed, curve = case.run.idle_after, case.run.timed, case.curve
    margin_ns = round(IDLE_MARGIN_PERIODS * case.description.period_ms * NS_PER_MS)
    if after is None or misses_readings(case, after):
        return None
    whole_ns = after.end_ns - margin_ns - timed.end_ns
    last = Window(timed.end_ns + round(whole_ns * (1 - IDLE_LEFT_RATIO)), after.end_ns - margin_ns)
    if curve.values(last) < FEWEST_IDLE_VALUES:
        return None
    idle_w = mean_w(curve, last)
    before = _before(case)
    scatter = stretch_means(curve, [last] if before is None else [before, last])
    if before is not None:
        # Idle power that is higher by a part of what the sensor showed is the rest of it.
        before_w = mean_w(curve, before)
        least_w = max(CHANCE * scatter.u_w, STILL_SHOWN_RATIO * (mean_w(curve, timed) - before_w), DRIFT_RATIO * before_w)
        if idle_w - before_w > least_w:
            return math.inf
    first_ns = min(2 * curve.spacing_ns, whole_ns / 2)
    lengths = np.geomspace(first_ns, whole_ns * (1 - IDLE_LEFT_RATIO), LENGTHS)
    ends = [timed.end_ns + round(length) for length in lengths]
    areas = np.array([curve.energy_mj(Window(timed.end_ns, end_ns)) for end_ns in ends]) - idle_w * lengths / NS_PER_MS
    block_mj = abs(curve.energy_mj(timed) - idle_w * timed.length_ns / NS_PER_MS)
    for index in range(LENGTHS - 1):
        further_ns = lengths[index + 1 :] - lengths[index]
        chance_mj = np.array([scatter.mean_u_w(length) * length for length in further_ns]) / NS_PER_MS
        allowed = np.maximum(SETTLED_RATIO * (block_mj + abs(areas[index])), CHANCE * chance_mj)
        if np.all(np.abs(areas[index + 1 :] - areas[index]) <= allowed):
            return float(lengths[index])
    return math.inf


def _before(case: SensorRun) -> Window | None:
    """Return the idle stretch before the block without its edges; None where it is too short."""
    if case.run.idle_before is None:
        return None
    before = quiet(case, case.run.idle_before)
    return before if before.length_ns > 0 and case.curve.values(before) >= FEWEST_IDLE_VALUES else None


def _shown(case: SensorRun, idling: budget.IdlePower, wander: StretchMeans, lengths: tuple[float, float, float]) -> ShortBlock:
    """Return the block's energy; `lengths` are how long it is shown after it and the sensor's clock, ns, and how many readings met it."""
    length_ns, clock_ns, met = lengths
    curve, timed, after_w = case.curve, case.run.timed, idling.after_w or 0.0
    before_w = after_w if idling.before_w is None else idling.before_w
    earlier_ns = 2 * curve.spacing_ns
    around = Window(timed.start_ns - round(earlier_ns), timed.end_ns + round(length_ns))
    beside_mj = (before_w * earlier_ns + after_w * length_ns) / NS_PER_MS
    late_mj = curve.energy_mj(around) - beside_mj - curve.energy_mj(timed)
    # Idle power counts below all of the area; that below the block itself is a term of the net energy only.
    beyond_ns = length_ns + earlier_ns
    below_mj = (
        math.hypot(idling.u_w * math.sqrt(beyond_ns * (beyond_ns + 2 * timed.length_ns)), wander.mean_u_w(beyond_ns) * beyond_ns)
        / NS_PER_MS
    )
    settling = Settling(0.0, length_ns / 1e9, late_mj, below_mj, (0.0, 0.0), 0.0)
    # However short the block is, idle power may lie off its mean meanwhile.
    wanders: dict[str, budget.Term] = {"idle_wander": (wander.mean_u_w(timed.length_ns), idling.sampling.freedom)}
    if isinstance(curve, CounterCurve):
        return ShortBlock(idling, settling, wanders | {"sampling": (0.0, None), "edges": (0.0, None)})
    times_ns, powers_w = curve.readings(around)
    # A value that the sensor holds may have come at any moment of its clock.
    moves_mj = np.sort(np.abs(np.diff(powers_w)) * np.maximum(np.diff(times_ns), clock_ns))[::-1] / NS_PER_MS
    # What no reading met may have drawn as much more as the highest of them, or as idle power twice over.
    highest_w = float(np.abs(curve.readings(timed)[1] - idling.mean_w).max(initial=abs(idling.mean_w)))
    per_mj = NS_PER_MS / timed.length_ns
    edges_w = math.hypot(
        float(np.linalg.norm(moves_mj[:2])) / math.sqrt(12) * per_mj, highest_w * EDGE_S * 1e9 / math.sqrt(3) / timed.length_ns
    )
    # Between readings within the block the power may have moved there and back; what none of them met is as long as one of them.
    sampling_w = math.hypot(float(np.linalg.norm(moves_mj[2:])) / math.sqrt(2) * per_mj, highest_w / met)
    return ShortBlock(idling, settling, wanders | {"sampling": (sampling_w, max(1.0, met - 1)), "edges": (edges_w, None)})


def _clock_ns(case: SensorRun) -> float:
    """Return how often the sensor has a new value, ns, or may have it where its readings repeat and do not show it."""
    curve, averaging = case.curve, case.description.averaging
    if case.renewal is not None:
        return max(curve.spacing_ns, case.renewal.interval_ns)
    if averaging is not None and averaging.update_interval_s is not None:
        return max(curve.spacing_ns, averaging.update_interval_s * 1e9)
    if isinstance(curve, CounterCurve):
        return curve.spacing_ns
    stretches = [window for window in (case.run.idle_before, case.run.timed, case.run.idle_after) if window is not None]
    times_ns, powers_w = curve.readings(Window(stretches[0].start_ns, stretches[-1].end_ns))
    changed = np.diff(powers_w) != 0
    if changed.size - changed.sum() <= MOST_REPEATS * changed.size:
        return curve.spacing_ns
    # Values of a coarse step repeat by themselves: two changes are at least a clock apart.
    if int(changed.sum()) < FEWEST_CHANGES:
        return max(curve.spacing_ns, UNSEEN_CLOCK_NS)
    return max(curve.spacing_ns, float(np.sort(np.diff(times_ns[1:][changed]))[SHORTEST_CHANGE]))
