"""Energy over time out of readings: the trapezoid rule for power samples, interpolation between updates for counters.

Times are monotonic ns, power is W, energy is mJ.
"""

import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

from edgemeter.agent.engine.job import Window
from edgemeter.agent.power import Description, Reading

NS_PER_MS = 1e6
# Readings on each side of an edge whose means tell how far the power stepped there.
BESIDE_EDGE = 3
# Blocks of readings whose means are compared: enough of them to estimate a scatter, and enough readings in each.
MOST_BLOCKS = 30
FEWEST_IN_BLOCK = 4
# A counter that moved at this share of the reads moves faster than it is read.
MOVES_AT_EVERY_READ = 0.9


class Curve(Protocol):
    """What one sensor saw, as a function of time."""

    spacing_ns: float

    def energy_mj(self, window: Window) -> float:
        """Return the energy within the window."""
        ...

    def gaps_ns(self, window: Window, limit_ns: float) -> tuple[float, float]:
        """Return the longest stretch of the window without a reading, and the sum of those that are longer than `limit_ns`."""
        ...

    def step_w(self, moment_ns: int) -> float:
        """Return how far the power stepped at a moment, as the readings beside it show."""
        ...

    def sampling_u_w(self, window: Window) -> float:
        """Return the standard uncertainty of the window's mean power from what happened between the readings."""
        ...

    def quantisation_u_w(self, window: Window) -> float | None:
        """Return the standard uncertainty of the window's mean power from the steps of the readings, None where they are not known."""
        ...


def mean_w(curve: Curve, window: Window) -> float:
    """Return the mean power within the window."""
    return curve.energy_mj(window) * NS_PER_MS / (window.end_ns - window.start_ns)


class PowerCurve:
    """Power samples joined by straight lines; beyond the first and last the power is taken to have stayed."""

    def __init__(self, readings: Sequence[Reading], description: Description) -> None:
        self._times, self._powers = _increasing((reading.taken_ns, reading.power_w) for reading in readings)
        self._resolution_w = description.resolution_w
        self.spacing_ns = description.period_ms * NS_PER_MS

    def energy_mj(self, window: Window) -> float:
        """Return the energy within the window, with the power interpolated at its edges."""
        inside = range(bisect_right(self._times, window.start_ns), bisect_left(self._times, window.end_ns))
        times = [window.start_ns, *(self._times[i] for i in inside), window.end_ns]
        powers = [self._at(window.start_ns), *(self._powers[i] for i in inside), self._at(window.end_ns)]
        pairs = zip(itertools.pairwise(times), itertools.pairwise(powers), strict=True)
        return math.fsum((t1 - t0) * (p0 + p1) / 2 for (t0, t1), (p0, p1) in pairs) / NS_PER_MS

    def gaps_ns(self, window: Window, limit_ns: float) -> tuple[float, float]:
        """Return the longest stretch without a reading, and the sum of those beyond the limit."""
        inside = self._times[bisect_right(self._times, window.start_ns) : bisect_left(self._times, window.end_ns)]
        # A gap that reaches over an edge counts with the part that lies inside.
        bounds = [window.start_ns, *inside, window.end_ns]
        stretches = [float(later - earlier) for earlier, later in itertools.pairwise(bounds)]
        return max(stretches), sum(stretch for stretch in stretches if stretch > limit_ns)

    def step_w(self, moment_ns: int) -> float:
        """Return the difference of the mean power just before and just after; all of the power where one side is not known."""
        place = bisect_left(self._times, moment_ns)
        before, after = self._powers[max(0, place - BESIDE_EDGE) : place], self._powers[place : place + BESIDE_EDGE]
        if not before or not after:
            return abs(statistics.fmean(before or after or [0.0]))
        return abs(statistics.fmean(after) - statistics.fmean(before))

    def sampling_u_w(self, window: Window) -> float:
        """Return it from how the means of neighbouring blocks of readings differ.

        Slow changes are followed by the lines between the readings and hardly count; readings that a sensor repeats or averages
        fall into one block, and do not count as many.
        """
        powers = self._inside(window)
        blocks = min(MOST_BLOCKS, len(powers) // FEWEST_IN_BLOCK)
        if blocks < 2:
            return statistics.stdev(powers) if len(powers) > 1 else 0.0
        bounds = [round(place * len(powers) / blocks) for place in range(blocks + 1)]
        means = [statistics.fmean(powers[begin:end]) for begin, end in itertools.pairwise(bounds)]
        variance = statistics.fmean((later - earlier) ** 2 for earlier, later in itertools.pairwise(means)) / 2
        return math.sqrt(variance / blocks)

    def quantisation_u_w(self, window: Window) -> float | None:
        """Return LSB / sqrt(12 n), with n the number of different values read: more readings of one value know it no better."""
        if self._resolution_w is None:
            return None
        return self._resolution_w / math.sqrt(12 * max(1, len(set(self._inside(window)))))

    def _at(self, moment_ns: int) -> float:
        place = bisect_left(self._times, moment_ns)
        if not self._times:
            return 0.0
        if place in (0, len(self._times)):
            return self._powers[min(place, len(self._times) - 1)]
        share = (moment_ns - self._times[place - 1]) / (self._times[place] - self._times[place - 1])
        return self._powers[place - 1] + share * (self._powers[place] - self._powers[place - 1])

    def _inside(self, window: Window) -> list[float]:
        return self._powers[bisect_left(self._times, window.start_ns) : bisect_right(self._times, window.end_ns)]


class CounterCurve:
    """An energy counter, known at the moments when it moved, with straight lines between them and beyond."""

    def __init__(self, readings: Sequence[Reading], description: Description) -> None:
        times, energies = _increasing((reading.taken_ns, reading.energy_mj) for reading in readings)
        self.went_back = any(later < earlier for earlier, later in itertools.pairwise(energies))
        moved = [place for place in range(1, len(times)) if energies[place] != energies[place - 1]]
        if len(moved) >= MOVES_AT_EVERY_READ * (len(times) - 1):
            self._times, self._energies = [float(time) for time in times], energies
            self.step_mj = description.resolution_mj
        else:
            # It moved some time between two reads. Where it stood before the first move says nothing of when.
            self._times = [(times[place - 1] + times[place]) / 2 for place in moved]
            self._energies = [energies[place] for place in moved]
            steps = [energies[place] - energies[place - 1] for place in moved]
            self.step_mj = statistics.median(steps) if steps else description.resolution_mj
        self._read_at = times
        spacings = [later - earlier for earlier, later in itertools.pairwise(self._times)]
        self.spacing_ns = statistics.median(spacings) if spacings else description.period_ms * NS_PER_MS

    def energy_mj(self, window: Window) -> float:
        """Return how far the counter moved within the window."""
        return self._at(window.end_ns) - self._at(window.start_ns)

    def gaps_ns(self, window: Window, limit_ns: float) -> tuple[float, float]:
        """Return the stretches without a read at the edges; in between, the counter goes on counting unread."""
        edges = []
        for edge_ns in (window.start_ns, window.end_ns):
            place = bisect_left(self._read_at, edge_ns)
            before, after = self._read_at[max(0, place - 1)], self._read_at[min(place, len(self._read_at) - 1)]
            begin, end = min(before, edge_ns), max(after, edge_ns)
            edges.append(float(min(end, window.end_ns) - max(begin, window.start_ns)))
        return max(edges), sum(edge for edge in edges if edge > limit_ns)

    def step_w(self, moment_ns: int) -> float:
        """Return the difference of the mean power over a few updates just before and just after."""
        place = bisect_left(self._times, moment_ns)
        before = self._slope(max(0, place - 1 - BESIDE_EDGE), place - 1)
        after = self._slope(place, min(len(self._times) - 1, place + BESIDE_EDGE))
        if before is None or after is None:
            return abs(before or after or 0.0)
        return abs(after - before)

    def sampling_u_w(self, window: Window) -> float:  # noqa: ARG002 - the other curve needs it
        """Return 0: a counter misses nothing."""
        return 0.0

    def quantisation_u_w(self, window: Window) -> float | None:
        """Return a step's uncertainty at both edges, over the window."""
        return None if self.step_mj is None else self.step_mj / math.sqrt(6) * NS_PER_MS / (window.end_ns - window.start_ns)

    def _slope(self, first: int, last: int) -> float | None:
        if first < 0 or last <= first:
            return None
        return (self._energies[last] - self._energies[first]) * NS_PER_MS / (self._times[last] - self._times[first])

    def _at(self, moment_ns: int) -> float:
        if len(self._times) < 2:
            return 0.0
        place = min(max(bisect_left(self._times, moment_ns), 1), len(self._times) - 1)
        t0, t1 = self._times[place - 1], self._times[place]
        e0, e1 = self._energies[place - 1], self._energies[place]
        return e0 + (e1 - e0) * (moment_ns - t0) / (t1 - t0)


def _increasing(pairs: Iterable[tuple[int, float | None]]) -> tuple[list[int], list[float]]:
    """Return times and values; a reading that is not later than the one before it is left out."""
    times: list[int] = []
    values: list[float] = []
    for time_ns, value in pairs:
        if value is not None and (not times or time_ns > times[-1]):
            times.append(time_ns)
            values.append(value)
    return times, values
