r"""The energy of a block of queries, as a sensor shows it.

It is the area of the readings above idle power, until they are back at it.

    queries            ##########
    readings         _/~~~~~~~~~~\___
    idle  __________/                \____________
                      |  timed   |tail|

A sensor that lags, averages or holds its value shows the power late, but the area above idle power
stays the same. The area after the last query (the tail) therefore belongs to the queries, with one
exception. A fan that runs on is no work of the queries. It shows as a level: the power falls at
once by half or more and then stays, or it returns to idle and rises again.

A sensor that falls more slowly than it rises shows too much of every burst, so it gives no energy.
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

# The idle stretch after the block is cut into parts; the last third is the idle power that the
# readings return to.
MOST_PARTS, REFERENCE_SHARE = 24, 2 / 3
# A difference of more standard uncertainties than this is not chance.
CHANCE, DIFFERENT = 3.0, 2.5
# Readings are back at idle power when at most this share of the load is left.
LEFT_RATIO = 0.01
# A rise is complete after this many delays (and spacings of the readings), an exponential fall
# after this many time constants.
RISE_DELAYS, RISE_SPACINGS, FALL_DELAYS, ROUNDS = 5.0, 3.0, 4.0, 12
# Least relative uncertainty of the delay of a rise.
DELAY_U_RATIO = 0.05
# A level that runs on has at least this share of the load, and keeps this share of itself.
LEAST_RUN_ON_RATIO, STAYS_RATIO = 0.03, 0.7
# A time constant is fitted to the readings between these shares of the step.
FEWEST_ON_EDGE, EDGE_SHARE = 4, (0.05, 0.85)


@dataclass(frozen=True, slots=True)
class Tail:
    """The energy of the queries that the sensor shows after their end, with its uncertainty.

    The uncertainty is a standard one. The load that runs on is in mJ.

    `idle_u_mj` is the part of the uncertainty that comes from idle power. `rise_ns` is how long the
    sensor takes to show a load.
    """

    energy_mj: float
    u_mj: float
    after_load_mj: float | None = None
    idle_u_mj: float = 0.0
    rise_ns: int = 0
    delay_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """A block as a sensor shows it.

    It has the spacing of its values, idle power, tail and uncertainty of the edges; or a refusal.
    """

    spacing_ns: float
    idle: IdlePower | None
    tail: Tail
    edges_u_mj: float
    refusal: str | None = None


def block_of(
    curve: Curve,
    description: Description,
    timed: Window,
    idle: tuple[Window | None, Window | None],
    spacing_ns: float,
    *,
    is_even: bool,
) -> Block:
    """Return the block; `spacing_ns` is the time between two new values of the sensor.

    The load of an `is_even` block begins and ends at the same level. Only then must the sensor be
    as late at the end as at the beginning.
    """
    before, after = idle
    step_u_w = (
        None if description.resolution_w is None else description.resolution_w / math.sqrt(12)
    )
    if curve.is_counter:
        step_u_w = (
            None
            if curve.step_mj is None
            else curve.step_mj / math.sqrt(6) * NS_PER_MS / timed.length_ns
        )
    first_ns = int(2 * spacing_ns)
    tail_ns, falls_on = (
        (first_ns, False) if after is None else _return(curve, before, after, timed, spacing_ns)
    )
    calm_after = calm(curve, after, tail_ns, spacing_ns)
    skipped_ns = (
        tail_ns
        if before is None
        else min(tail_ns, max(first_ns, int(before.length_ns * REFERENCE_SHARE)))
    )
    # The idle stretch before the block has a tail too, that of the work before it.
    idling = idle_power(curve, calm(curve, before, skipped_ns, spacing_ns), calm_after, step_u_w)
    idle_w = 0.0 if idling is None else idling.mean_w
    # An edge lies anywhere between two values, and a random moment more often in a long gap.
    # Source: GUM 4.3.7.
    edges_ms = [
        max(spacing_ns / 3, curve.gap_ns(moment_ns) / math.sqrt(12)) / NS_PER_MS
        for moment_ns in (timed.start_ns, timed.end_ns)
    ]
    if idling is None or after is None or calm_after is None:
        step_w = curve.mean_w(timed) - idle_w
        late_ms = max(description.delay_ms or 0.0, spacing_ns / NS_PER_MS)
        return Block(
            spacing_ns,
            idling,
            Tail(0.0, abs(step_w) * late_ms / math.sqrt(3)),
            abs(step_w) * math.hypot(*edges_ms),
        )
    edges = _Edges(curve, timed, calm_after.start_ns, idling, spacing_ns)
    edges_u_mj = math.hypot(edges_ms[0] * edges.rise_w, edges_ms[1] * edges.fall_w)
    tail = edges.tail(REFERENCE_SHARE * after.length_ns, is_even=is_even, falls_on=falls_on)
    if isinstance(tail, str):
        return Block(spacing_ns, idling, Tail(0.0, 0.0), edges_u_mj, tail)
    return Block(spacing_ns, idling, tail, edges_u_mj)


def _return(
    curve: Curve, before: Window | None, after: Window, timed: Window, spacing_ns: float
) -> tuple[int, bool]:
    """Return the length of the tail, and whether the readings still fall at the end of it.

    The length is at most two thirds of the idle stretch.
    """
    parts = int(min(MOST_PARTS, max(3, after.length_ns / spacing_ns)))
    latest = int(parts * REFERENCE_SHARE)
    means_w = curve.means_w(after, parts)
    # The beginning of an idle stretch may show the work before it.
    settled = means_w[latest:] if before is None else curve.means_w(before, parts)[latest:-1]
    scatters_w = [
        float(np.std(part, ddof=1)) if part.size > 1 else 0.0
        for part in (means_w[latest:], settled)
    ]
    idle_w = float(means_w[latest:].mean())
    left_w = LEFT_RATIO * abs(curve.mean_w(timed) - idle_w)
    is_back = np.abs(means_w - idle_w) <= max(CHANCE * max(scatters_w), left_w)
    part = next(
        (number for number in range(latest) if is_back[number] and is_back[number + 1]), latest
    )
    # If the readings are back early, a later slope is drift of idle power.
    falls_on = (
        before is not None
        and part > latest / 2
        and means_w[latest] - means_w[-1] > max(CHANCE * scatters_w[1], left_w)
    )
    return min(
        max(part * after.length_ns // parts, int(2 * spacing_ns)),
        int(after.length_ns * REFERENCE_SHARE),
    ), falls_on


class _Edges:
    """The beginning and the end of a load as a sensor shows them."""

    def __init__(
        self, curve: Curve, timed: Window, tail_end_ns: int, idle: IdlePower, spacing_ns: float
    ) -> None:
        self._curve, self._timed, self._idle, self._spacing_ns = curve, timed, idle, spacing_ns
        self._tail = Window(timed.end_ns, tail_end_ns)
        self._after_w = idle.mean_w if idle.after_w is None else idle.after_w
        self._before_w = self._after_w if idle.before_w is None else idle.before_w
        self._rise_ns, self._delay_ns = self._rise()
        first = Window(timed.start_ns + self._rise_ns, timed.start_ns + 2 * self._rise_ns)
        self.rise_w = curve.mean_w(first) - self._before_w
        self._level_w = curve.mean_w(Window(timed.end_ns - self._rise_ns, timed.end_ns))
        self.fall_w = self._level_w - self._after_w

    def tail(self, longest_ns: float, *, is_even: bool, falls_on: bool) -> Tail | str:
        """Return the tail, or why the sensor gives no energy.

        `longest_ns` is the time in which the readings must return to idle.
        """
        curve, window = self._curve, self._tail
        area_mj = curve.energy_mj(window) - self._after_w * window.length_ns / NS_PER_MS
        idle_u_mj = self._idle.stretch_u_w(window.length_ns) * window.length_ns / NS_PER_MS
        part_ms, (first_w, second_w, third_w, fourth_w) = self._after_the_fall()
        least_w = LEAST_RUN_ON_RATIO * self.fall_w
        has_fallen = second_w <= self.fall_w / 2 and 4 * part_ms * NS_PER_MS <= window.length_ns
        if has_fallen and second_w >= least_w and third_w >= STAYS_RATIO * second_w:
            # A level runs on: the queries have what lies above it.
            energy_mj, u_mj = (
                (first_w + second_w + third_w - 3 * fourth_w) * part_ms,
                abs(third_w - fourth_w) * 3 * part_ms,
            )
            return Tail(
                energy_mj, u_mj, area_mj - energy_mj, idle_u_mj, self._rise_ns, self._delay_ns
            )
        energy_mj, after_load_mj = area_mj, None
        until_idle_mj = (first_w + second_w) * part_ms
        if (
            has_fallen
            and abs(second_w) < least_w
            and area_mj - until_idle_mj > DIFFERENT * idle_u_mj
        ):
            # The readings were back at idle power, so the rest began later.
            energy_mj, after_load_mj = until_idle_mj, area_mj - until_idle_mj
        fall = self._time_constant(self._timed.end_ns, self._level_w, -self.fall_w)
        if falls_on or (
            fall is not None and FALL_DELAYS * (fall[0] - CHANCE * fall[1]) > longest_ns / 1e9
        ):
            return (
                f"it still shows the load {window.length_ns / 1e9:.3g} s after its end: idle for "
                "longer (idle_seconds, --idle)"
            )
        deviation = (
            self._deviation_of_tail(energy_mj, idle_u_mj) if is_even and self.fall_w > 0 else 0.0
        )
        if isinstance(deviation, str):
            return deviation
        return Tail(energy_mj, deviation, after_load_mj, idle_u_mj, self._rise_ns, self._delay_ns)

    def _deviation_of_tail(self, tail_mj: float, idle_u_mj: float) -> float | str:
        """Return half the difference between the tail and the predicted tail, mJ.

        The prediction is from the delay of the rise. If the difference is not chance, return a
        refusal.
        """
        by_rise_mj = self._delay_ns * self.fall_w / NS_PER_MS
        levels_w = self._curve.means_w(self._timed, max(3, self._timed.length_ns // self._rise_ns))
        changes_w = np.diff(levels_w[1:])
        edge_mj = self._spacing_ns / math.sqrt(12) / NS_PER_MS
        chance_mj = math.hypot(
            edge_mj * self.rise_w,
            edge_mj * self.fall_w,
            float(np.abs(changes_w).max()) * self._rise_ns / NS_PER_MS,
            idle_u_mj,
            DELAY_U_RATIO * by_rise_mj,
        )
        off_mj = tail_mj - by_rise_mj
        if off_mj > DIFFERENT * chance_mj or self._is_slower_one_way(
            math.sqrt(float(np.mean(changes_w**2)) / 2)
        ):
            rise_s, fall_s = self._delay_ns / 1e9, tail_mj / self.fall_w / 1000
            return (
                f"it shows the end of the load {fall_s:.2g} s late and the beginning "
                f"{rise_s:.2g} s late: a sensor that is slower one way "
                "shows too much or too little of each burst; use another one"
            )
        return abs(off_mj) / 2

    def _rise(self) -> tuple[int, float]:
        """Return how long the sensor takes to show the load, and its mean delay, ns.

        The delay is the area that the beginning of the load lacks, over the step.
        """
        rise_ns, delay_ns = RISE_SPACINGS * self._spacing_ns, 0.0
        longest_ns = self._timed.length_ns / 3
        # The stretch that is looked at grows until it is long enough for the delay that it shows.
        for _ in range(ROUNDS):
            length_ns = int(min(rise_ns, longest_ns))
            begins_w, level_w = self._curve.means_w(
                Window(self._timed.start_ns, self._timed.start_ns + 2 * length_ns), 2
            )
            step_w = float(level_w - self._before_w)
            delay_ns = max(0.0, float(level_w - begins_w) * length_ns / step_w) if step_w else 0.0
            longer_ns = RISE_SPACINGS * self._spacing_ns + RISE_DELAYS * delay_ns
            if longer_ns <= 1.05 * rise_ns:
                break
            rise_ns = longer_ns
        return int(min(rise_ns, longest_ns)), delay_ns

    def _after_the_fall(self) -> tuple[float, list[float]]:
        """Return the length of four equal parts after the end, ms, and their means, W.

        The second part has lost half of the load.
        """
        # A sensor that rises late falls as late.
        part_ns = int(
            1.5 * (self._delay_ns if self._delay_ns > 2 * self._spacing_ns else self._spacing_ns)
        )
        while True:
            window = Window(self._tail.start_ns, self._tail.start_ns + 4 * part_ns)
            excess_w = (self._curve.means_w(window, 4) - self._after_w).tolist()
            if excess_w[1] <= self.fall_w / 2 or 8 * part_ns >= self._tail.length_ns:
                return part_ns / NS_PER_MS, excess_w
            part_ns *= 2

    def _is_slower_one_way(self, level_u_w: float) -> bool:
        """Return whether the time constants of rise and fall differ beyond chance.

        They are compared where enough readings show both.
        """
        if not (self.rise_w and self.fall_w):
            return False
        rise = self._time_constant(self._timed.start_ns, self._before_w, self.rise_w)
        fall = self._time_constant(self._timed.end_ns, self._level_w, -self.fall_w)
        if rise is None or fall is None:
            return False
        longer_s = max(rise[0], fall[0])
        level_ratio = (
            2
            * math.hypot(level_u_w, self._idle.block_scatter_w)
            / min(abs(self.rise_w), abs(self.fall_w))
        )
        return (
            abs(rise[0] - fall[0])
            > CHANCE * math.hypot(rise[1], fall[1]) + (DELAY_U_RATIO + level_ratio) * longer_s
        )

    def _time_constant(
        self, begin_ns: int, from_w: float, step_w: float
    ) -> tuple[float, float] | None:
        """Return the time constant of an exponential through the readings on an edge, s.

        Its standard uncertainty, s, comes with it.
        """
        first = int(np.searchsorted(self._curve.times_ns, begin_ns))
        progress = (self._curve.powers_w[first:] - from_w) / step_w
        size = int(np.argmax(progress > EDGE_SHARE[1]))
        at_s = self._curve.times_ns[first : first + size][progress[:size] > EDGE_SHARE[0]] / 1e9
        if at_s.size < FEWEST_ON_EDGE:
            return None
        since_s, decay = (
            at_s - at_s.mean(),
            -np.log(1 - progress[:size][progress[:size] > EDGE_SHARE[0]]),
        )
        squares = float(since_s @ since_s)
        slope = float(since_s @ decay) / squares
        off = decay - decay.mean() - slope * since_s
        u_slope = math.sqrt(float(off @ off) / (at_s.size - 2) / squares)
        return (1 / slope, u_slope / slope**2) if slope > 0 else None
