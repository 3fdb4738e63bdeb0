"""The energy of a block: all that the readings show from its first query until they have come back to idle power.

A sensor that lags, averages or holds its value shows the power late, and loses none of it: the area of its readings above idle power is the
energy above idle. What runs on after the load, such as a fan, is not the load's: the power has then fallen at once by half and more, and
stays where it is, or was back and rises again. A sensor that falls more slowly than it rises shows too much of every burst, and gives no
energy.
Source: a linear filter of gain 1 conserves the area.
"""

import math
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy.curve import Curve
from edgemeter.agent.energy.idle_power import IdlePower, calm, idle_power
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description

# The idle stretch afterwards is looked at in parts; its last third is the idle power that the readings come back to.
MOST_PARTS, REFERENCE_SHARE = 24, 2 / 3
# What differs by more than so many standard uncertainties is no chance.
CHANCE = 3.0
# The power has come back when no more than this share of the load is left.
LEFT_RATIO = 0.01
# The rise is over after so many of the delays that it shows, and an exponential fall after so many time constants.
RISE_DELAYS, FALL_DELAYS, RISE_SPACINGS, ROUNDS = 5.0, 4.0, 3.0, 12
# The delay of a rise is known to such a share of it at best.
DELAY_U_RATIO = 0.05
DIFFERENT = 2.5
# What runs on: half of the step has gone at once, and of the rest most is there a while later.
STAYS_RATIO, LEAST_RUN_ON_RATIO = 0.7, 0.03
FEWEST_ON_EDGE, EDGE_SHARE = 4, (0.05, 0.85)


@dataclass(frozen=True, slots=True)
class Late:
    """The part of a block that the sensor shows after its end, with its standard uncertainty, and what ran on after the load, mJ.

    `tail_u_mj` is what idle power may have progress meanwhile, `rise_ns` how long the sensor took to show the load.
    """

    energy_mj: float
    u_mj: float
    after_load_mj: float | None = None
    tail_u_mj: float = 0.0
    rise_ns: int = 0
    delay_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """A block as a sensor showed it: how far its values are apart, idle power around it, and what came late; or why it gives no energy."""

    spacing_ns: float
    idle: IdlePower | None
    late: Late
    edges_u_mj: float
    refusal: str | None = None


def block_of(
    curve: Curve, description: Description, timed: Window, idle: tuple[Window | None, Window | None], spacing_ns: float, *, is_even: bool
) -> Block:
    """Return the block; `spacing_ns` is how far the sensor's own values are apart.

    A load that `is_even` begins and ends at one level: only then does the delay at its end have to be that at its beginning.
    """
    before, after = idle
    step_u_w = None if description.resolution_w is None else description.resolution_w / math.sqrt(12)
    if curve.is_counter:
        step_u_w = None if curve.step_mj is None else curve.step_mj / math.sqrt(6) * NS_PER_MS / timed.length_ns
    first_ns = int(2 * spacing_ns)
    tail_ns, falls_on = (first_ns, False) if after is None else _return(curve, before, after, timed, spacing_ns)
    calm_after = calm(curve, after, tail_ns, spacing_ns)
    skipped_ns = tail_ns if before is None else min(tail_ns, max(first_ns, int(before.length_ns * REFERENCE_SHARE)))
    # What ran before idle is shown as late, and runs on as long, as what ran before the idle afterwards.
    idling = idle_power(curve, calm(curve, before, skipped_ns, spacing_ns), calm_after, step_u_w)
    idle_w = 0.0 if idling is None else idling.mean_w
    # A step lies anywhere between two values; random moments fall into the longer of the gaps, which adds a little. Source: GUM 4.3.7.
    edges_ms = [max(spacing_ns / 3, curve.gap_ns(moment_ns) / math.sqrt(12)) / NS_PER_MS for moment_ns in (timed.start_ns, timed.end_ns)]
    if idling is None or after is None or calm_after is None:
        step_w = curve.mean_w(timed) - idle_w
        late_ms = max(description.delay_ms or 0.0, spacing_ns / NS_PER_MS)
        return Block(spacing_ns, idling, Late(0.0, abs(step_w) * late_ms / math.sqrt(3)), abs(step_w) * math.hypot(*edges_ms))
    edges = _Edges(curve, timed, calm_after.start_ns, idling, spacing_ns)
    edges_u_mj = math.hypot(edges_ms[0] * edges.rise_w, edges_ms[1] * edges.fall_w)
    late = edges.late(REFERENCE_SHARE * after.length_ns, is_even=is_even, falls_on=falls_on)
    if isinstance(late, str):
        return Block(spacing_ns, idling, Late(0.0, 0.0), edges_u_mj, late)
    return Block(spacing_ns, idling, late, edges_u_mj)


def _return(curve: Curve, before: Window | None, after: Window, timed: Window, spacing_ns: float) -> tuple[int, bool]:
    """Return how long after the block its readings are back at idle power, two thirds of the idle at most; and whether they fall on."""
    parts = int(min(MOST_PARTS, max(3, after.length_ns / spacing_ns)))
    latest = int(parts * REFERENCE_SHARE)
    means_w = curve.means_w(after, parts)
    # What ran before an idle stretch may show in its beginning.
    settled = means_w[latest:] if before is None else curve.means_w(before, parts)[latest:-1]
    scatters_w = [float(np.std(part, ddof=1)) if part.size > 1 else 0.0 for part in (means_w[latest:], settled)]
    idle_w = float(means_w[latest:].mean())
    left_w = LEFT_RATIO * abs(curve.mean_w(timed) - idle_w)
    is_back = np.abs(means_w - idle_w) <= max(CHANCE * max(scatters_w), left_w)
    part = next((number for number in range(latest) if is_back[number] and is_back[number + 1]), latest)
    # Of what is back sooner a slope afterwards is idle power's own.
    falls_on = before is not None and part > latest / 2 and means_w[latest] - means_w[-1] > max(CHANCE * scatters_w[1], left_w)
    return min(max(part * after.length_ns // parts, int(2 * spacing_ns)), int(after.length_ns * REFERENCE_SHARE)), falls_on


class _Edges:
    """How a sensor shows the beginning and the end of a load."""

    def __init__(self, curve: Curve, timed: Window, tail_end_ns: int, idle: IdlePower, spacing_ns: float) -> None:
        self._curve, self._timed, self._idle, self._spacing_ns = curve, timed, idle, spacing_ns
        self._tail = Window(timed.end_ns, tail_end_ns)
        self._after_w = idle.mean_w if idle.after_w is None else idle.after_w
        self._before_w = self._after_w if idle.before_w is None else idle.before_w
        self._rise_ns, self._delay_ns = self._rise()
        first = Window(timed.start_ns + self._rise_ns, timed.start_ns + 2 * self._rise_ns)
        self.rise_w = curve.mean_w(first) - self._before_w
        self._level_w = curve.mean_w(Window(timed.end_ns - self._rise_ns, timed.end_ns))
        self.fall_w = self._level_w - self._after_w

    def late(self, longest_ns: float, *, is_even: bool, falls_on: bool) -> Late | str:
        """Return what came late, or why the sensor gives no energy."""
        curve, tail = self._curve, self._tail
        area_mj = curve.energy_mj(tail) - self._after_w * tail.length_ns / NS_PER_MS
        tail_u_mj = self._idle.stretch_u_w(tail.length_ns) * tail.length_ns / NS_PER_MS
        part_ms, (first_w, early_w, later_w, level_w) = self._after_the_fall()
        least_w = LEAST_RUN_ON_RATIO * self.fall_w
        has_fallen = early_w <= self.fall_w / 2 and 4 * part_ms * NS_PER_MS <= tail.length_ns
        if has_fallen and early_w >= least_w and later_w >= STAYS_RATIO * early_w:
            late_mj, u_mj = (first_w + early_w + later_w - 3 * level_w) * part_ms, abs(later_w - level_w) * 3 * part_ms
            return Late(late_mj, u_mj, area_mj - late_mj, tail_u_mj, self._rise_ns, self._delay_ns)
        late_mj, after_load_mj = area_mj, None
        if has_fallen and abs(early_w) < least_w and area_mj - (first_w + early_w) * part_ms > DIFFERENT * tail_u_mj:
            # It was back at once: what was drawn later began later.
            late_mj = (first_w + early_w) * part_ms
            after_load_mj = area_mj - late_mj
        fall = self._time_constant(self._timed.end_ns, self._level_w, -self.fall_w)
        if falls_on or (fall is not None and FALL_DELAYS * (fall[0] - CHANCE * fall[1]) > longest_ns / 1e9):
            return f"it still shows the load {tail.length_ns / 1e9:.3g} s after its end: idle for longer (idle_seconds, --idle)"
        if not is_even or self.fall_w <= 0:
            return Late(late_mj, 0.0, after_load_mj, tail_u_mj, self._rise_ns, self._delay_ns)
        by_rise_mj = self._delay_ns * self.fall_w / NS_PER_MS
        levels_w = curve.means_w(self._timed, max(3, self._timed.length_ns // self._rise_ns))
        changes_w = np.diff(levels_w[1:])
        edge_mj = self._spacing_ns / math.sqrt(12) / NS_PER_MS
        chance_mj = math.hypot(
            edge_mj * self.rise_w,
            edge_mj * self.fall_w,
            float(np.abs(changes_w).max()) * self._rise_ns / NS_PER_MS,
            tail_u_mj,
            DELAY_U_RATIO * by_rise_mj,
        )
        off_mj = late_mj - by_rise_mj
        if off_mj > DIFFERENT * chance_mj or self._is_slower_one_way(math.sqrt(float(np.mean(changes_w**2)) / 2)):
            rise_s, fall_s = self._delay_ns / 1e9, late_mj / self.fall_w / 1000
            return (
                f"it shows the end of the load {fall_s:.2g} s late and its beginning {rise_s:.2g} s: a sensor that is slower one way shows "
                "too much or too little of each burst; use another one"
            )
        return Late(late_mj, abs(off_mj) / 2, after_load_mj, tail_u_mj, self._rise_ns, self._delay_ns)

    def _rise(self) -> tuple[int, float]:
        """Return how long the sensor takes to show the load, and its mean delay, ns, by what the beginning lacks of what follows."""
        rise_ns, delay_ns = RISE_SPACINGS * self._spacing_ns, 0.0
        longest_ns = self._timed.length_ns / 3
        for _ in range(ROUNDS):
            length_ns = int(min(rise_ns, longest_ns))
            begins_w, level_w = self._curve.means_w(Window(self._timed.start_ns, self._timed.start_ns + 2 * length_ns), 2)
            step_w = float(level_w - self._before_w)
            delay_ns = max(0.0, float(level_w - begins_w) * length_ns / step_w) if step_w else 0.0
            longer_ns = RISE_SPACINGS * self._spacing_ns + RISE_DELAYS * delay_ns
            if longer_ns <= 1.05 * rise_ns:
                break
            rise_ns = longer_ns
        return int(min(rise_ns, longest_ns)), delay_ns

    def _after_the_fall(self) -> tuple[float, list[float]]:
        """Return the length of a part, ms, after which half of the load is gone, and what is drawn above idle in the first four, W."""
        # What rose late falls as late.
        part_ns = int(1.5 * (self._delay_ns if self._delay_ns > 2 * self._spacing_ns else self._spacing_ns))
        while True:
            window = Window(self._tail.start_ns, self._tail.start_ns + 4 * part_ns)
            excess_w = (self._curve.means_w(window, 4) - self._after_w).tolist()
            if excess_w[1] <= self.fall_w / 2 or 8 * part_ns >= self._tail.length_ns:
                return part_ns / NS_PER_MS, excess_w
            part_ns *= 2

    def _is_slower_one_way(self, level_u_w: float) -> bool:
        """Return whether the time constants of rise and fall differ beyond chance, where enough readings show both."""
        if not (self.rise_w and self.fall_w):
            return False
        rise = self._time_constant(self._timed.start_ns, self._before_w, self.rise_w)
        fall = self._time_constant(self._timed.end_ns, self._level_w, -self.fall_w)
        if rise is None or fall is None:
            return False
        longer_s = max(rise[0], fall[0])
        level_ratio = 2 * math.hypot(level_u_w, self._idle.block_scatter_w) / min(abs(self.rise_w), abs(self.fall_w))
        return abs(rise[0] - fall[0]) > CHANCE * math.hypot(rise[1], fall[1]) + (DELAY_U_RATIO + level_ratio) * longer_s

    def _time_constant(self, begin_ns: int, from_w: float, step_w: float) -> tuple[float, float] | None:
        """Return the time constant of an exponential through the readings on an edge, and its standard uncertainty, s."""
        first = int(np.searchsorted(self._curve.times_ns, begin_ns))
        progress = (self._curve.powers_w[first:] - from_w) / step_w
        size = int(np.argmax(progress > EDGE_SHARE[1]))
        at_s = self._curve.times_ns[first : first + size][progress[:size] > EDGE_SHARE[0]] / 1e9
        if at_s.size < FEWEST_ON_EDGE:
            return None
        since_s, decay = at_s - at_s.mean(), -np.log(1 - progress[:size][progress[:size] > EDGE_SHARE[0]])
        squares = float(since_s @ since_s)
        slope = float(since_s @ decay) / squares
        off = decay - decay.mean() - slope * since_s
        u_slope = math.sqrt(float(off @ off) / (at_s.size - 2) / squares)
        return (1 / slope, u_slope / slope**2) if slope > 0 else None
