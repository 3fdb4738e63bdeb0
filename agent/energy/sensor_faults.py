"""Faults that a sensor's own readings show: it hangs, its range ends, it shows nothing for a while, or jumps to what nothing draws.

All take plain arrays: the moments of the readings, monotonic ns, int64 [n], and their values, W, float64 [n].

That readings repeat is no fault by itself: a sensor renews its value by its own clock, and one of coarse steps repeats it while the load is
even. So each is held against the other readings of the same trace: how long a value usually stays, and how large the steps between two
values are. Where a third of all changes are of two steps and more, the noise exceeds the step, and even a load in the middle of a step
repeats its value less than half of the time; where none are, an even load may repeat it for ever, and nothing is concluded.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.energy.queries import Array, Times
from edgemeter.agent.energy.window import Window

# Fewer equal readings, or fewer others to hold them against, are chance.
FEWEST_EQUAL = 5
FEWEST_OTHERS = 8
# The longest stays that are looked at.
MOST_STAYS = 20
# No load is so even that a step of this share of it hides how it moves.
FINE_RATIO = 0.01
TELLING_RATIO = 0.05
# What is less probable than this by chance, among all values of a trace, is a fault.
CHANCE = 1e-4
# A stay is usual where this share of all readings belongs to shorter ones; of stays that end by chance this share lasts as long.
# Source: exponential lengths, weighted by themselves: 1 - (1 + x) e^-x = 0.6 at x = 2.02.
USUAL_SHARE, LEAST_REPEATS = 0.6, 0.13
# How many of their longer stays values that differ by more than steps, or of their shorter ones those that do not, may be late at an edge.
LATE_BY_CLOCK, LATE_BY_STEPS = (2.0, 0.9), (2.0, 0.25)
# Of independent values two changes in three turn back.
TURNING_RATIO = 2 / 3
# Two steps, but for the rounding of a product of two values.
TWO_STEPS = 1.5
# So many times as often as any other value of a trace the highest one comes where the sensor's range ends.
PILED_UP = 3.0
# Readings so near below the highest show how it scatters there.
NEAR_STEPS = 20.0
# No machine draws so many times its median power in one reading alone, and a tenth of that in the readings beside it.
LONE_RATIO = 50.0
ROUNDING_RATIO = 1e-9


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that readings have by a fault of the sensor, from when to when, ns; and how many of them."""

    value: float
    begin_ns: int
    end_ns: int
    readings: int


@dataclass(frozen=True, slots=True)
class _Stays:
    """The values of a trace, one for each time that a value stayed: when it was read first and last, and by how many readings."""

    values: Array
    firsts_ns: Times
    lasts_ns: Times
    readings: NDArray[np.int64]

    def within(self, window: Window, but: int | None = None) -> "_Stays":
        """Return those that began within a window, without one."""
        inside = (self.firsts_ns >= window.start_ns) & (self.firsts_ns <= window.end_ns)
        if but is not None:
            inside[but] = False
        return _Stays(self.values[inside], self.firsts_ns[inside], self.lasts_ns[inside], self.readings[inside])


def hangs(times_ns: Times, values: Array, step: float | None, timed: Window, idle: Sequence[Window]) -> list[Fault]:
    """Return where the sensor repeated one value for longer than chance explains, by what it did in the rest of the trace.

    `step` is that of the values, as the sensor is described. Of a counter they are the mean powers between two reads.
    """
    stays = _stays(times_ns, values)
    spacing_ns = float(np.median(np.diff(times_ns))) if times_ns.size > 1 else 0.0
    seen_step = _step(values, step)
    faults = []
    for index in np.argsort(stays.firsts_ns - stays.lasts_ns, kind="stable")[:MOST_STAYS]:
        fault = _fault(stays, int(index))
        references = _references(stays, int(index), fault, step or seen_step, timed, idle) if fault.readings >= FEWEST_EQUAL else []
        chances = [_chance(reference, length_ns, seen_step, spacing_ns) * stays.values.size for reference, length_ns in references]
        if chances and max(chances) < CHANCE:
            faults.append(fault)
    return faults


def _references(stays: _Stays, index: int, fault: Fault, step: float, timed: Window, idle: Sequence[Window]) -> list[tuple[_Stays, float]]:
    """Return the stretches that one stay is judged by, each with the length that it has to explain, ns."""
    # What a load does says nothing of how long a value stays while the machine idles.
    loaded_ns = min(fault.end_ns, timed.end_ns) - max(fault.begin_ns, timed.start_ns)
    lengths_ns = [(timed, loaded_ns), *((window, fault.end_ns - fault.begin_ns) for window in idle)]
    fewest = max(FEWEST_OTHERS, TELLING_RATIO * fault.readings)
    by_stretch = [(window, stays.within(window, index), float(length_ns)) for window, length_ns in lengths_ns]
    telling = [entry for entry in by_stretch if entry[1].readings.sum() >= fewest]
    near = [entry for entry in telling if float(np.abs(entry[1].values - fault.value).min()) <= TWO_STEPS * step]
    of_load = [entry for entry in telling if entry[0] is timed]
    is_loaded = loaded_ns > (fault.end_ns - fault.begin_ns) / 2
    # How even an idle machine is says nothing of a load, which may be more even: that of all cores, or at a limit of power.
    if is_loaded and not of_load and step > FINE_RATIO * abs(fault.value):
        return []
    return [(reference, length_ns) for _, reference, length_ns in near or (of_load if is_loaded else []) or telling]


def overstays(times_ns: Times, values: Array, step: float | None, timed: Window, idle: Sequence[Window]) -> list[Fault]:
    """Return where the sensor goes on with the value of idle under load, or with that of the load afterwards, however coarse its steps.

    A sensor is as late at one edge of the load as at the other, but for its own clock. That shows in how long values stay, unless their
    steps make them equal: then it is no slower than the shorter stays.
    """
    stays = _stays(times_ns, values)
    edges_ns = (timed.start_ns, timed.end_ns)
    at_edges = [max(0, int(np.searchsorted(stays.firsts_ns, edge_ns, "right")) - 1) for edge_ns in edges_ns]
    lengths_ns = np.delete(stays.lasts_ns - stays.firsts_ns, at_edges)
    if lengths_ns.size < FEWEST_EQUAL:
        return []
    spacing_ns = float(np.median(np.diff(times_ns)))
    seen_step = _step(values, step)
    times, share = LATE_BY_CLOCK if _repeats(stays.values, seen_step) < 1 / 2 else LATE_BY_STEPS
    patience_ns = times * (float(np.quantile(lengths_ns, share)) + spacing_ns) + FEWEST_EQUAL * spacing_ns
    late_ns = [float(stays.lasts_ns[index] - edge_ns) for index, edge_ns in zip(at_edges, edges_ns, strict=True)]
    faults = []
    for index, late, other, stretches in zip(at_edges, late_ns, late_ns[::-1], ([timed], idle), strict=True):
        stretch_stays = [stays.within(window, index) for window in stretches]
        levels = np.concatenate([np.repeat(part.values, part.readings) for part in stretch_stays]) if stretch_stays else np.zeros(0)
        is_other_level = levels.size and abs(float(np.median(levels)) - stays.values[index]) > TWO_STEPS * seen_step
        if is_other_level and late > 2 * max(0.0, other) + patience_ns:
            faults.append(_fault(stays, index))
    return faults


def _fault(stays: _Stays, index: int) -> Fault:
    return Fault(float(stays.values[index]), int(stays.firsts_ns[index]), int(stays.lasts_ns[index]), int(stays.readings[index]))


def _chance(reference: _Stays, length_ns: float, step: float, spacing_ns: float) -> float:
    return math.pow(_repeats(reference.values, step), max(0.0, length_ns) / (_usual_stay_ns(reference) + spacing_ns))


def _usual_stay_ns(stays: _Stays) -> float:
    """Return how long a value usually stays, each stay weighing as many readings as it has."""
    lengths = (stays.lasts_ns - stays.firsts_ns).astype(np.float64)
    order = np.argsort(lengths)
    return float(lengths[order][np.searchsorted(np.cumsum(stays.readings[order]), USUAL_SHARE * stays.readings.sum())])


def _repeats(values: Array, step: float) -> float:
    """Return how often a value repeats at most, 0..1, by the noise that these successive values show.

    Of normal noise the share of changes of two steps and more is that of differences beyond one step: it bounds the noise from below, and
    that bounds how often two readings in the middle of a step are equal. Only changes that turn back are noise: a sensor that lags
    approaches a value in one direction, and then shows it.
    """
    changes = np.diff(values)
    large = np.abs(changes) > TWO_STEPS * step
    turns = large[1:] & large[:-1] & (changes[1:] * changes[:-1] < 0)
    if not turns.any():
        return 1.0
    share = min(1.0, float(turns.mean()) / TURNING_RATIO)
    normal = NormalDist()
    return max(LEAST_REPEATS, 2 * normal.cdf(math.sqrt(0.5) * normal.inv_cdf(1 - share / 2)) - 1)


def _step(values: Array, described_step: float | None) -> float:
    """Return the step of the values: as it is described, but not below the smallest difference of two of them."""
    return max(described_step or 0.0, smallest_difference(values))


def smallest_difference(values: Array) -> float:
    """Return the smallest difference of two values that is more than the rounding of floating point; 0 where there is none."""
    apart = np.diff(np.unique(values))
    clear = apart[apart > ROUNDING_RATIO * float(np.abs(values).max(initial=0.0))]
    return float(clear.min()) if clear.size else 0.0


def _stays(times_ns: Times, values: Array) -> _Stays:
    begins = np.concatenate(([0], np.flatnonzero(np.diff(values)) + 1)) if values.size else np.zeros(0, np.int64)
    ends = np.append(begins[1:], values.size)
    return _Stays(values[begins], times_ns[begins], times_ns[ends - 1], ends - begins)


def clipping(times_ns: Times, powers_w: Array, step_w: float | None, timed: Window) -> Fault | None:
    """Return the power at which the sensor's range ends: so many readings under load have the highest value exactly; None if none do."""
    stays = _stays(times_ns, powers_w)
    loaded = stays.within(timed)
    if loaded.readings.sum() < FEWEST_OTHERS:
        return None
    spacing_ns = float(np.median(np.diff(times_ns)))
    is_top = loaded.values == loaded.values.max()
    reference = _Stays(loaded.values[~is_top], loaded.firsts_ns[~is_top], loaded.lasts_ns[~is_top], loaded.readings[~is_top])
    seen_step, top = _step(powers_w, step_w), float(loaded.values.max())
    # A load may be even at its highest, at a limit of power; only a fine step would show how it moves there.
    scatters_there = float(reference.readings[reference.values > top - NEAR_STEPS * seen_step].sum()) >= FEWEST_OTHERS
    if reference.readings.sum() < FEWEST_OTHERS or not (scatters_there or seen_step <= FINE_RATIO * top):
        return None
    # A value that the sensor's clock repeats is one.
    unit_ns = _usual_stay_ns(reference) + spacing_ns
    count = float(np.sum((loaded.lasts_ns - loaded.firsts_ns)[is_top] + unit_ns) / unit_ns)
    _, which = np.unique(reference.values, return_inverse=True)
    shares = np.bincount(which, reference.lasts_ns - reference.firsts_ns + unit_ns) / unit_ns
    usual = float(np.sum(shares**2) / np.sum(shares))
    chance = _repeats(reference.values, seen_step) ** (count - 1) * loaded.values.size
    if count < max(FEWEST_EQUAL, PILED_UP * usual) or chance >= CHANCE:
        return None
    readings = int(loaded.readings[is_top].sum())
    return Fault(top, int(loaded.firsts_ns[is_top][0]), int(loaded.lasts_ns[is_top][-1]), readings)


def nothing_shown(powers_w: Array, step_w: float | None) -> NDArray[np.bool_]:
    """Return which readings show 0 W although the machine runs: exactly nothing, among readings well above the sensor's step; bool [n]."""
    nothing: NDArray[np.bool_] = powers_w == 0
    watts = powers_w[powers_w > 0]
    if not nothing.any() or not watts.size or np.quantile(watts, 0.05) <= TWO_STEPS * (step_w or _step(watts, None)):
        nothing[:] = False
    return nothing


def spikes(powers_w: Array, highest_w: float) -> NDArray[np.bool_]:
    """Return which readings are of no power at all: beyond `highest_w` in either direction, or alone and far above all others; bool [n]."""
    size_w = np.abs(powers_w)
    beside_w = np.maximum(np.append(size_w[1:], 0), np.append(0, size_w[:-1]))
    alone = (size_w > LONE_RATIO * float(np.median(size_w))) & (beside_w < size_w / 10)
    are_spikes: NDArray[np.bool_] = (size_w > highest_w) | alone
    return are_spikes
