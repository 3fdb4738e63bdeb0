"""Energy over time out of readings: the trapezoid rule for power samples, interpolation between updates for counters.

Times are monotonic ns, power is W, energy is mJ.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.dependence import corrected_correlation, variance_inflation
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy.queries import Array, Queries, Times, without_rhythm
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description, Reading

# Readings on each side of an edge whose means show how far the power stepped there.
BESIDE_EDGE = 3
# Blocks of readings whose means are compared: enough of them to estimate a scatter, and enough readings in each.
MOST_BLOCKS = 30
FEWEST_IN_BLOCK = 3
# The same of an idle stretch, whose blocks may be correlated.
FEWEST_IN_STRETCH_BLOCK = 2
FEWEST_BLOCKS = 3
HIGHEST_PERCENT = 95
# So few pauses between blocks do not show how much these scatter.
FEWEST_BREAKS = 3
# A counter that moved at this share of the reads moves faster than it is read.
MOVES_AT_EVERY_READ = 0.9


@dataclass(frozen=True, slots=True)
class PowerScatter:
    """A standard uncertainty that was estimated from scatter, and on how many degrees of freedom; None: on more than matter."""

    u_w: float
    freedom: float | None


NONE = PowerScatter(0.0, None)


class _Edges(ABC):
    """Common base of both kinds of curves: it locates steps; `_times` are the times of the values."""

    _times: NDArray[np.int64]

    def values(self, window: Window) -> int:
        """Return the number of values (readings, or moves of the counter) within the window."""
        begin, end = np.searchsorted(self._times, (window.start_ns, window.end_ns))
        return int(end - begin)

    def step_w(self, moment_ns: int) -> float:
        """Return how far the mean power stepped at a moment; all of the power where one side is unknown."""
        before, after = self._adjacent(int(np.searchsorted(self._times, moment_ns)))
        if not before.size or not after.size:
            known_side = before if before.size else after
            return abs(float(known_side.mean())) if known_side.size else 0.0
        return abs(float(after.mean() - before.mean()))

    @abstractmethod
    def highest_w(self, window: Window) -> float:
        """Return the highest power that it shows within the window."""

    @abstractmethod
    def _adjacent(self, index: int) -> tuple[Array, Array]:
        """Return a few powers before and after value `index`."""


class PowerCurve(_Edges):
    """Power samples joined by straight lines; beyond the first and last the power is taken to have stayed.

    Where `queries` give the rhythm of the load, and the readings show it, its part of each reading is subtracted before the lines are
    drawn: over whole queries that part is zero, and it is most of the difference between one reading and the next.
    """

    def __init__(self, readings: Sequence[Reading], description: Description, queries: Queries | None = None) -> None:
        self._times, self._seen = increasing((reading.taken_ns, reading.power_w) for reading in readings)
        steadied = None if queries is None else without_rhythm(self._times, self._seen, queries)
        self._powers = self._seen if steadied is None else steadied.powers_w
        self.follows_queries = steadied is not None
        self._apart = self._seen if steadied is None else steadied.apart_w
        self._resolution_w = description.resolution_w
        self.spacing_ns = description.period_ms * NS_PER_MS

    def energy_mj(self, window: Window) -> float:
        """Return the energy within the window."""
        if not self._times.size:
            return 0.0
        times, inside = self._nodes(window)
        first = self._at_edge(window.start_ns, inside.start, looks_back=False)
        last = self._at_edge(window.end_ns, inside.stop, looks_back=True)
        powers = np.concatenate(([first], self._powers[inside], [last]))
        return float(np.sum(np.diff(times) * (powers[1:] + powers[:-1]))) / 2 / NS_PER_MS

    def readings(self, window: Window) -> tuple[NDArray[np.int64], Array]:
        """Return the readings within the window: when, and W."""
        inside = self._nodes(window)[1]
        return self._times[inside], self._seen[inside]

    def gaps_ns(self, window: Window, limit_ns: float) -> tuple[float, float]:
        """Return the longest stretch without a reading, and the sum of those beyond the limit."""
        # A gap that reaches over an edge counts with the part that lies inside.
        stretches = np.diff(self._nodes(window)[0])
        return float(stretches.max()), float(stretches[stretches > limit_ns].sum())

    def sampling(self, window: Window, settled_ns: float = 0.0, breaks_ns: Times | None = None) -> PowerScatter:
        """Return the uncertainty of the mean power from how the means of neighbouring blocks of readings differ.

        Slow changes are followed by the lines between the readings and hardly count; readings that a sensor repeats or averages
        fall into one block, and do not count as many. A reading beside a gap weighs more in the trapezoid, and so counts more here.
        How a slow sensor rises in the first `settled_ns` is no scatter. What lies between two of `breaks_ns` falls into one block.
        """
        times, inside = self._nodes(window)
        first = int(np.searchsorted(times[1:-1], settled_ns))
        powers = self._apart[inside][first:]
        n = powers.size
        if n < 2:
            return NONE
        breaks = () if breaks_ns is None else np.searchsorted(times[1:-1][first:], breaks_ns - window.start_ns).tolist()
        bounds = _block_bounds(n, breaks)
        blocks = bounds.size - 1
        if blocks < 2:
            variance, freedom = float(powers.var(ddof=1)), n - 1.0
        else:
            sizes = np.diff(bounds)
            means = np.add.reduceat(powers, bounds[:-1]) / sizes
            variance = float(np.mean(np.diff(means) ** 2)) / 2 * float(np.sum(sizes**2)) / n
            # Source: von Neumann's mean square successive difference; its variance among independent normal values.
            freedom = 2 * (blocks - 1) ** 2 / (3 * blocks - 4)
        weights = (times[2:] - times[:-2]) / 2
        share = float(np.sum(weights**2)) / float(times[-1] - times[0]) ** 2
        return PowerScatter(math.sqrt(variance * share), freedom)

    def quantisation_u_w(self, window: Window) -> float | None:
        """Return the uncertainty of the mean power: LSB / sqrt(12), less where several values were read, each with an error of its own.

        More readings of one value know it no better. Source: rectangular errors, GUM 4.3.7; that a reading dithers is not relied on.
        """
        if self._resolution_w is None:
            return None
        inside = self._seen[self._nodes(window)[1]]
        _, counts = np.unique(inside, return_counts=True)
        shares = counts / counts.sum() if inside.size else np.ones(1)
        return self._resolution_w / math.sqrt(12) * math.sqrt(float(np.sum(shares**2)))

    def highest_w(self, window: Window) -> float:
        """Return the highest reading."""
        return float(self.readings(window)[1].max(initial=0.0))

    def _nodes(self, window: Window) -> tuple[Array, slice]:
        """Return the moments of the window's edges and of the readings between them, ns from its start, and which readings these are."""
        begin = int(np.searchsorted(self._times, window.start_ns, "right"))
        end = max(begin, int(np.searchsorted(self._times, window.end_ns, "left")))
        moments = np.concatenate(([0], self._times[begin:end] - window.start_ns, [window.length_ns]))
        return moments.astype(np.float64), slice(begin, end)

    def _adjacent(self, index: int) -> tuple[Array, Array]:
        return self._powers[max(0, index - BESIDE_EDGE) : index], self._powers[index : index + BESIDE_EDGE]

    def _at_edge(self, moment_ns: int, index: int, *, looks_back: bool) -> float:
        """Return the power inside a window at its edge; reading `index` is the first after it.

        Interpolated, unless the power stepped there, as it does when a load begins: a line across a step would put half of it on the
        wrong side. Then the nearest reading inside holds up to the edge.
        """
        before, after = self._adjacent(index)
        stepped = _has_stepped(before, after)
        if stepped:
            return float(before[-1] if looks_back else after[0])
        if not before.size or not after.size:
            return float(after[0] if after.size else before[-1])
        t0, t1 = self._times[index - 1], self._times[index]
        return float(before[-1] + (after[0] - before[-1]) * float(moment_ns - t0) / float(t1 - t0))


class CounterCurve(_Edges):
    """An energy counter, known at the moments when it moved, with straight lines between them and beyond."""

    follows_queries = False

    def __init__(self, readings: Sequence[Reading], description: Description) -> None:
        read_at, energies = increasing((reading.taken_ns, reading.energy_mj) for reading in readings)
        steps = np.diff(energies)
        self.went_back = bool(np.any(steps < 0))
        moved = np.flatnonzero(steps) + 1
        self._read_at = read_at
        if moved.size >= MOVES_AT_EVERY_READ * steps.size:
            self._times, self._energies = read_at, energies
            self.step_mj = description.resolution_mj
        else:
            # It moved some time between two reads. Its value before the first move does not show when.
            self._times = (read_at[moved - 1] + read_at[moved]) // 2
            self._energies = energies[moved]
            self.step_mj = float(np.median(steps[moved - 1])) if moved.size else description.resolution_mj
        spacings = np.diff(self._times)
        self.spacing_ns = float(np.median(spacings)) if spacings.size else description.period_ms * NS_PER_MS
        self._slopes = np.diff(self._energies) * NS_PER_MS / spacings

    def energy_mj(self, window: Window) -> float:
        """Return how far the counter moved within the window."""
        return self._at_edge(window.end_ns, looks_back=True) - self._at_edge(window.start_ns, looks_back=False)

    def gaps_ns(self, window: Window, limit_ns: float) -> tuple[float, float]:
        """Return the stretches without a read at the edges; in between, the counter goes on counting unread."""
        edges = []
        for edge_ns in (window.start_ns, window.end_ns):
            index = int(np.searchsorted(self._read_at, edge_ns))
            before, after = self._read_at[max(0, index - 1)], self._read_at[min(index, len(self._read_at) - 1)]
            begin, end = min(before, edge_ns), max(after, edge_ns)
            edges.append(float(min(end, window.end_ns) - max(begin, window.start_ns)))
        return max(edges), sum(edge for edge in edges if edge > limit_ns)

    def sampling(self, window: Window, settled_ns: float = 0.0, breaks_ns: Times | None = None) -> PowerScatter:  # noqa: ARG002 - the other curve needs them
        """Return none: a counter misses nothing."""
        return NONE

    def highest_w(self, window: Window) -> float:
        """Return the power that 95 of 100 intervals between two values do not exceed: moments that are a little off make others steep."""
        begin, end = np.searchsorted(self._times, (window.start_ns, window.end_ns))
        slopes = self._slopes[begin : max(begin, end - 1)]
        return float(np.percentile(slopes, HIGHEST_PERCENT)) if slopes.size else 0.0

    def quantisation_u_w(self, window: Window) -> float | None:
        """Return a step's uncertainty at both edges, over the window."""
        return None if self.step_mj is None else self.step_mj / math.sqrt(6) * NS_PER_MS / window.length_ns

    def _adjacent(self, index: int) -> tuple[Array, Array]:
        """Return the mean powers of the intervals before and after the one that ends with update `index`."""
        return self._slopes[max(0, index - 1 - BESIDE_EDGE) : max(0, index - 1)], self._slopes[index : index + BESIDE_EDGE]

    def _at_edge(self, moment_ns: int, *, looks_back: bool) -> float:
        """Return the value of the counter at a window's edge.

        Interpolated, unless the power stepped there: then as it counts inside the window, up to the edge.
        """
        if len(self._times) < 2:
            return 0.0
        index = min(max(int(np.searchsorted(self._times, moment_ns)), 1), len(self._times) - 1)
        before, after = self._adjacent(index)
        stepped = _has_stepped(before, after)
        slope = self._slopes[index - 1] if not stepped else before.mean() if looks_back else after.mean()
        known_index = index if stepped and not looks_back else index - 1
        return float(self._energies[known_index] + slope * float(moment_ns - self._times[known_index]) / NS_PER_MS)


Curve = PowerCurve | CounterCurve


def mean_w(curve: Curve, window: Window) -> float:
    """Return the mean power within the window."""
    return curve.energy_mj(window) * NS_PER_MS / window.length_ns


def curve_of(readings: Sequence[Reading], description: Description, queries: Queries | None = None) -> Curve:
    """Return the curve of a sensor's readings; `queries` are taken into account for power samples."""
    if description.kind == "power":
        return PowerCurve(readings, description, queries)
    return CounterCurve(readings, description)


def _has_stepped(before: Array, after: Array) -> bool:
    if min(before.size, after.size) < 2:
        return False
    # Of a few numbers Python's own functions are several times quicker.
    (low, high, mean), (low_after, high_after, mean_after) = ((min(w), max(w), sum(w) / len(w)) for w in (before.tolist(), after.tolist()))
    return bool(abs(mean_after - mean) > high - low + high_after - low_after)


def _block_bounds(n: int, breaks: Iterable[int]) -> NDArray[np.int64]:
    """Return the bounds of at most 30 blocks of n readings: at breaks, where there are enough of them; else blocks of equal size."""
    smallest = max(FEWEST_IN_BLOCK, n / MOST_BLOCKS)
    bounds = [0]
    for index in breaks:
        if index - bounds[-1] >= smallest and n - index >= smallest:
            bounds.append(index)
    if len(bounds) <= FEWEST_BREAKS:
        bounds = np.linspace(0, n, max(1, min(MOST_BLOCKS, n // FEWEST_IN_BLOCK)) + 1).round().astype(int).tolist()[:-1]
    return np.array([*bounds, n], np.int64)


def increasing(pairs: Iterable[tuple[int, float | None]]) -> tuple[NDArray[np.int64], Array]:
    """Return times and values; a reading that is not later than the one before it is left out."""
    pairs_with_value = [(time_ns, value) for time_ns, value in pairs if value is not None]
    times, values = (
        np.array([time_ns for time_ns, _ in pairs_with_value], np.int64),
        np.array([value for _, value in pairs_with_value], np.float64),
    )
    is_later = np.diff(np.maximum.accumulate(times), prepend=times[:1] - 1) > 0
    return times[is_later], values[is_later]


@dataclass(frozen=True, slots=True)
class StretchMeans:
    """The standard uncertainty of each stretch's mean, and how the power wanders: variance and correlation of blocks of `block_ns`."""

    each: tuple[PowerScatter, ...]
    variance_w2: float
    correlation: float
    block_ns: float

    @property
    def u_w(self) -> float:
        """Return the standard uncertainty of the mean of all stretches."""
        return math.hypot(*(scatter.u_w for scatter in self.each)) / len(self.each)

    def mean_u_w(self, length_ns: float) -> float:
        """Return how far the mean over a stretch of that length scatters."""
        n = max(1.0, length_ns / self.block_ns)
        return math.sqrt(self.variance_w2 * variance_inflation(n, self.correlation) / n)

    def wander_u_w(self, length_ns: float) -> float:
        """Return how far the mean over another stretch may lie off, beyond what independent blocks would scatter."""
        n = max(1.0, length_ns / self.block_ns)
        return math.sqrt(self.variance_w2 * max(0.0, variance_inflation(n, self.correlation) - 1) / n)


def stretch_means(curve: Curve, stretches: Sequence[Window], renewed_ns: float | None = None) -> StretchMeans:
    """Return how well the mean power of each of these stretches is known; `renewed_ns` is how often the sensor renews its value.

    Neighbouring readings are not independent where the power wanders, nor are their blocks. Each stretch is cut into blocks of one length;
    the correlation of neighbouring blocks is that of a first-order process, and gives by how much the variance of a mean exceeds that of as
    many independent blocks. Source: autoregressive estimate of the spectrum at zero.
    """
    shortest_ns = min(window.length_ns for window in stretches)
    values = min(curve.values(window) for window in stretches)
    most_blocks = min(MOST_BLOCKS, values // FEWEST_IN_STRETCH_BLOCK) if renewed_ns is None else round(shortest_ns / renewed_ns)
    n = max(FEWEST_BLOCKS, most_blocks)
    block_ns = shortest_ns / n
    blocks = [block_means(curve, window, max(n, round(window.length_ns / block_ns))) for window in stretches]
    centred = [means - means.mean() for means in blocks]
    squares = math.fsum(float(np.sum(means**2)) for means in centred)
    freedom = sum(means.size - 1 for means in blocks)
    products = math.fsum(float(np.sum(means[1:] * means[:-1])) for means in centred)
    correlation = corrected_correlation(products / squares if squares else 0.0, n)
    # The mean of a stretch has gone along with the wandering: what is left of the scatter is less than there was.
    lost = [(variance_inflation(means.size, correlation) - 1) / (means.size - 1) for means in blocks]
    variance = squares / freedom / max(1e-3, 1 - sum(lost) / len(lost))
    each = []
    for means in blocks:
        effective = means.size / variance_inflation(means.size, correlation)
        each.append(PowerScatter(math.sqrt(variance / effective), max(1.0, effective - 1)))
    return StretchMeans(tuple(each), variance, correlation, block_ns)


def held_values(powers_w: NDArray[np.float64], times_ns: NDArray[np.int64]) -> PowerScatter:
    """Return how well the mean is known of values that a sensor holds for intervals of different lengths, and repeats meanwhile.

    Source: the variance of a weighted mean, each value weighing as long as it was held; effective number of values after Kish.
    """
    places = np.concatenate(([0], np.flatnonzero(np.diff(powers_w)) + 1))
    if places.size < FEWEST_BLOCKS:
        return PowerScatter(0.0, None)
    bounds = np.concatenate((times_ns[:1], (times_ns[places[1:] - 1] + times_ns[places[1:]]) // 2, times_ns[-1:]))
    weights = np.diff(bounds) / float(bounds[-1] - bounds[0])
    values = powers_w[places]
    squares = float(np.sum(weights**2))
    variance = float(np.sum(weights * (values - np.sum(weights * values)) ** 2)) / (1 - squares)
    return PowerScatter(math.sqrt(variance * squares), max(1.0, 1 / squares - 1))


def block_means(curve: Curve, window: Window, n: int) -> NDArray[np.float64]:
    """Return the mean powers of n blocks of a window, W, float64 [n]."""
    edges = [window.start_ns + window.length_ns * number // n for number in range(n + 1)]
    return np.array([mean_w(curve, Window(begin, end)) for begin, end in itertools.pairwise(edges)])
