"""Energy over time, out of the readings of a power sensor or of an energy counter.

Times are monotonic ns, power is W, energy is mJ.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy.queries import Array, Queries, Times, without_rhythm
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description, Reading

# A counter that moved at this share of the reads moves faster than it is read.
MOVES_AT_EVERY_READ = 0.9
# If two random readings are equal more often than this, repeated values do not show a clock of the
# sensor.
COARSE_CHANCE = 0.25


class Curve:
    """The energy since the first reading, along straight lines.

    They run between power samples (trapezoids), or between the moves of a counter.

    `seen_w` are the powers as they were read, or those between the moves of a counter. If the
    readings show the rhythm of the `queries` (`follows_queries`), `powers_w` are without it, and
    `apart_w` shows their scatter. Before the first and after the last reading the power is
    constant.
    """

    def __init__(
        self, readings: Sequence[Reading], description: Description, queries: Queries | None = None
    ) -> None:
        self.is_counter = description.kind == "energy"
        self.step_mj, self.went_back, self.follows_queries = description.resolution_mj, False, False
        if self.is_counter:
            self._count(*increasing((reading.taken_ns, reading.energy_mj) for reading in readings))
            return
        self.times_ns, self.seen_w = increasing(
            (reading.taken_ns, reading.power_w) for reading in readings
        )
        steadied = None if queries is None else without_rhythm(self.times_ns, self.seen_w, queries)
        self.follows_queries = steadied is not None
        self.powers_w, self.apart_w = (
            (self.seen_w, self.seen_w)
            if steadied is None
            else (steadied.powers_w, steadied.apart_w)
        )
        areas_mj = np.diff(self.times_ns) * (self.powers_w[1:] + self.powers_w[:-1]) / 2 / NS_PER_MS
        self._energies_mj = np.concatenate(([0.0], np.cumsum(areas_mj)))

    def _count(self, read_ns: Times, counts_mj: Array) -> None:
        steps_mj = np.diff(counts_mj)
        self.went_back = bool(np.any(steps_mj < 0))
        moved = np.flatnonzero(steps_mj) + 1
        self.times_ns, self._energies_mj = read_ns, counts_mj
        if moved.size < MOVES_AT_EVERY_READ * steps_mj.size:
            # A move happened some time between two reads. For the value before the first move, that
            # time is unknown.
            self.times_ns, self._energies_mj = (
                (read_ns[moved - 1] + read_ns[moved]) // 2,
                counts_mj[moved],
            )
            self.step_mj = float(np.median(steps_mj[moved - 1])) if moved.size else self.step_mj
        between_w = np.diff(self._energies_mj) * NS_PER_MS / np.diff(self.times_ns)
        self.powers_w = self.seen_w = self.apart_w = np.append(between_w[:1], between_w)

    def energy_mj(self, window: Window) -> float:
        return self.mean_w(window) * window.length_ns / NS_PER_MS

    def mean_w(self, window: Window) -> float:
        return float(self.means_w(window, 1)[0])

    def means_w(self, window: Window, parts: int) -> Array:
        """Return the mean powers of equal parts of the window, float64 [parts]."""
        at_ns = np.linspace(window.start_ns, window.end_ns, parts + 1).round().astype(np.int64)
        if not self.powers_w.size:
            return np.zeros(parts)
        before_ns, beyond_ns = (
            np.minimum(at_ns - self.times_ns[0], 0),
            np.maximum(at_ns - self.times_ns[-1], 0),
        )
        energies_mj = np.interp(at_ns, self.times_ns, self._energies_mj)
        energies_mj += (before_ns * self.powers_w[0] + beyond_ns * self.powers_w[-1]) / NS_PER_MS
        means_w: Array = np.diff(energies_mj) * NS_PER_MS / np.diff(at_ns)
        return means_w

    def inside(self, window: Window) -> slice:
        begin, end = np.searchsorted(self.times_ns, (window.start_ns, window.end_ns))
        return slice(int(begin), int(end))

    def gap_ns(self, moment_ns: int) -> float:
        """Return the time between the two values around a moment; 0 beyond the ends."""
        after = int(np.searchsorted(self.times_ns, moment_ns))
        return (
            float(self.times_ns[after] - self.times_ns[after - 1])
            if 0 < after < self.times_ns.size
            else 0.0
        )

    def new_values(self, window: Window) -> float:
        """Return the number of new values within the window.

        They are fewer than were read if the sensor repeats its values.
        """
        powers_w = self.seen_w[self.inside(window)]
        chance = equal_chance(powers_w)
        if self.is_counter or powers_w.size < 2 or chance > COARSE_CHANCE:
            return float(powers_w.size)
        # If all values were new, neighbours would be equal as often as any two values.
        changes = np.count_nonzero(np.diff(powers_w)) / (powers_w.size - 1)
        return powers_w.size * min(1.0, changes / (1 - chance))

    def same_ratio(self, window: Window) -> float:
        """Return the factor by which the mean of several values reduces an error of each, 0..1.

        Each value has that error by itself.
        """
        _, counts = np.unique(self.seen_w[self.inside(window)], return_counts=True)
        return float(np.sqrt(np.sum((counts / max(1, counts.sum())) ** 2)))


def equal_chance(powers_w: Array) -> float:
    """Return the probability that two random readings are equal, 0..1."""
    _, counts = np.unique(powers_w, return_counts=True)
    return float(np.sum(counts * (counts - 1.0))) / max(1, powers_w.size * (powers_w.size - 1))


def increasing(pairs: Iterable[tuple[int, float | None]]) -> tuple[NDArray[np.int64], Array]:
    """Return times and values without those that are not later than the one before."""
    known_pairs = [(time_ns, value) for time_ns, value in pairs if value is not None]
    times_ns = np.array([time_ns for time_ns, _ in known_pairs], np.int64)
    values = np.array([value for _, value in known_pairs], np.float64)
    is_later = np.diff(np.maximum.accumulate(times_ns), prepend=times_ns[:1] - 1) > 0
    return times_ns[is_later], values[is_later]
