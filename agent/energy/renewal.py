"""A sensor that renews its value by its own clock, however often it is read: how far apart its values are, and whether it keeps step.

A reading that repeats the one before shows that the sensor had nothing new; how often that happens gives the interval, where the values
are too many to be equal by chance. A sensor that looks for a moment only, at regular intervals, sees the same part of each query where
queries come in step with it: its readings then agree with each other and are all wrong alike.

Readings once in each period of a clock of that very period may all find a new value, and then none repeats. Such a clock shows in two
other ways: some phase of it would not have repeated more values than did, and the readings follow where in a query its ticks fell, not
where they were read themselves.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy.queries import Array, Queries, Times, without_rhythm
from edgemeter.agent.power import Description
from edgemeter.agent.power.values import Averaging

FEWEST_READINGS = 30
# Two readings picked at random are equal so often at most where a repeated value shows that nothing new was there.
FINE_CHANCE = 0.05
# The same where the readings are further apart than the queries, so that the load cannot hold a value from one to the next.
SLOW_CHANCE = 0.8
# A reading that follows sooner than this share of the usual spacing is the same one, delivered twice.
TWICE_RATIO = 0.3
# Fewer repeats, as a share of the readings and in standard errors, are chance.
LEAST_REPEATS = 0.03
CLEAR_REPEATS = 4.0
# Of readings once in a period at a random moment, a renewal once in a period makes a quarter repeat at most.
FEWEST_REPEATS = 2
MOST_REPEATS = 0.3
LATE_RATIO = 0.1
LATEST_RATIO = 1.2
# How well a sensor keeps the period that it is known to have.
NOMINAL_U_RATIO = 0.001
# From so many readings to a renewal on each change is seen.
COUNTED_PERIODS = 3.0
ROUNDS = 60
# How surely the interval is known, in standard uncertainties, when it is asked whether it is in step.
REACH = 3.0
HARMONICS = 6
IN_STEP = 0.35
# Places of the spectrum between two that are independent.
FINER = 4
# An interval that leaves more of a query's cycle open than this says nothing about being in step.
LARGEST_OPEN = 0.25
# From here on the renewals come at one part of each query and nowhere else: no reading shows whether they were moments.
LOCKED = 0.9
# Of the phases that a clock may have had, so many are looked at.
MOST_PHASES = 8


@dataclass(frozen=True, slots=True)
class Renewal:
    """The mean time between two values of the sensor, ns, its relative standard uncertainty, and how far single intervals scatter."""

    interval_ns: float
    u_ratio: float
    scatter_ratio: float = 0.0


def renewal_of(times_ns: Times, powers_w: Array, period_ns: float, cycle_ns: float | None) -> Renewal | None:
    """Return how often the sensor renewed its value; None where its readings do not repeat, or may be equal by chance.

    `period_ns` is how often it is read, `cycle_ns` the mean time from one query to the next, None where that is unknown.
    """
    if times_ns.size < FEWEST_READINGS:
        return None
    gaps = np.diff(times_ns).astype(np.float64)
    once = gaps > TWICE_RATIO * period_ns
    repeats = np.diff(powers_w) == 0
    # The probability that two random readings are equal, without that of a reading with itself.
    _, counts = np.unique(powers_w, return_counts=True)
    chance = float(np.sum((counts / counts.sum()) ** 2)) - 1 / powers_w.size
    if not once.any() or chance > (SLOW_CHANCE if cycle_ns is not None and period_ns > cycle_ns else FINE_CHANCE):
        return None
    if _at_its_period(gaps[once] / period_ns, repeats[once], chance):
        return Renewal(period_ns, NOMINAL_U_RATIO)
    share = (float(repeats[once].mean()) - chance) / (1 - chance)
    u_share = math.sqrt(max(share * (1 - share), 1 / gaps.size) / gaps.size) / (1 - chance)
    if not max(LEAST_REPEATS, CLEAR_REPEATS * u_share) <= share < 1:
        return None
    interval = _interval(gaps[once], share)
    # Readings that repeat although something new was there were delivered twice.
    twice = float(np.mean(gaps[once & repeats] > LATEST_RATIO * interval)) > LATE_RATIO
    counts_all = interval >= COUNTED_PERIODS * period_ns and chance <= FINE_CHANCE
    renewal = _counted(times_ns[1:][~repeats], period_ns) if counts_all else Renewal(interval, u_share / (1 - share))
    return None if twice else renewal


def unseen_phases_ns(times_ns: Times, powers_w: Array, period_ns: float) -> list[float]:
    """Return some phases that a clock of the period may have had: at these no more values would have repeated than did, ns.

    A reading repeats the one before where no tick came between them, so each pair of readings rules out a part of all phases.
    """
    begins, ends = times_ns[:-1] % period_ns, times_ns[1:] % period_ns
    gaps = np.diff(times_ns)
    near = (gaps < period_ns) & (gaps > TWICE_RATIO * period_ns)
    repeats = int(np.sum((np.diff(powers_w) == 0) & near))
    # A pair repeats at the phases from the place of its second reading on, around the period, to that of its first.
    places = np.concatenate((ends[near], begins[near]))
    order = np.argsort(places, kind="stable")
    changes = np.repeat((1, -1), np.count_nonzero(near))[order]
    counts = int(np.sum(ends[near] > begins[near])) + np.concatenate(([0], np.cumsum(changes)))
    bounds = np.concatenate(([0.0], places[order], [period_ns]))
    possible = np.flatnonzero((counts <= repeats) & (np.diff(bounds) > 0))
    if not possible.size:
        return []
    intervals = possible[np.linspace(0, possible.size - 1, min(MOST_PHASES, possible.size)).round().astype(int)]
    return [float(bounds[index] + bounds[index + 1]) / 2 for index in intervals]


def unseen_renewal(times_ns: Times, powers_w: Array, period_ns: float, queries: Queries) -> Renewal | None:
    """Return a clock of that period by which no value repeats, where the readings follow its ticks more than when they were read."""
    if times_ns.size < FEWEST_READINGS:
        return None
    phases_ns = unseen_phases_ns(times_ns, powers_w, period_ns)
    ticks = [((times_ns - phase_ns) // period_ns * period_ns + phase_ns).astype(np.int64) for phase_ns in phases_ns]
    residual_ratios = [_left_ratio(tick_ns, powers_w, queries) for tick_ns in ticks]
    if not residual_ratios or min(residual_ratios) >= min(1.0, _left_ratio(times_ns, powers_w, queries)):
        return None
    return Renewal(period_ns, NOMINAL_U_RATIO)


def _left_ratio(times_ns: Times, powers_w: Array, queries: Queries) -> float:
    """Return the share of the readings' variance that the queries' rhythm does not explain, had they been taken at these times; 1: all."""
    steadied = without_rhythm(times_ns, powers_w, queries)
    return 1.0 if steadied is None else steadied.left_ratio


def _at_its_period(periods: Array, repeats: NDArray[np.bool_], chance: float) -> bool:
    """Return whether the sensor renews its value once in each period: then only readings that follow sooner than a period repeat."""
    count = int(repeats.sum())
    if chance > FINE_CHANCE or count < FEWEST_REPEATS + CLEAR_REPEATS * max(0.0, chance) * repeats.size:
        return False
    return float(np.mean(periods[repeats] > 1)) < LATE_RATIO and float(repeats.mean()) < MOST_REPEATS


def _counted(changes_ns: Times, period_ns: float) -> Renewal:
    """Return the interval from the moments at which the value changed, each seen within a period."""
    between = np.diff(changes_ns).astype(np.float64)
    interval = float(between.mean())
    # That each moment is seen at the next reading only makes a third of a period squared of their variance.
    own_variance = max(0.0, float(between.var()) - period_ns**2 / 3)
    # Moments of a regular clock are off by a period at both ends; those of another scatter.
    u_ns = max(math.sqrt(2) * period_ns / between.size, math.sqrt(own_variance / between.size))
    return Renewal(interval, u_ns / interval, math.sqrt(own_variance) / interval)


def _interval(gaps: Array, share: float) -> float:
    """Return the interval between renewals of which a share of these gaps holds none, ns."""
    low, high = float(gaps.min()), float(gaps.max()) / (1 - share) * 2
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(np.mean(np.maximum(0, 1 - gaps / middle))) < share else (low, middle)
    return (low + high) / 2


def described_renewal(averaging: Averaging | None, shown_renewal: Renewal | None) -> Renewal | None:
    """Return the clock by which a sensor may see a part of each query only: as it is described, else as its readings show it.

    None of a sensor that is known to look at the power all the time.
    """
    if averaging is None:
        return shown_renewal
    if averaging.seen_ratio == 1:
        return None
    if averaging.update_interval_s is None:
        return shown_renewal
    if averaging.window_s is not None and averaging.window_s >= averaging.update_interval_s:
        return None
    return shown_renewal if averaging.seen_ratio is None else Renewal(averaging.update_interval_s * 1e9, NOMINAL_U_RATIO)


def may_keep_step(description: Description) -> bool:
    """Return whether a sensor that is described so may see a part of each query only: one that counts energy and says no more does not."""
    averaging = description.averaging
    unseen = Renewal(description.period_ms * NS_PER_MS, NOMINAL_U_RATIO)
    return description.kind == "power" if averaging is None else described_renewal(averaging, unseen) is not None


def keeps_step(queries: Queries, renewal: Renewal, share: float = IN_STEP) -> bool:
    """Return whether the renewals may have come at the same part of each query, or at a few parts, all through the timed part.

    `share` is how much of the spread of an even distribution they may lack, 0..1.

    What the renewals see of a harmonic of the queries' rhythm has a mean of 0 where their phases are spread evenly. An interval that is
    a little longer turns the phase a little further from renewal to renewal: the spectrum of the phases holds all intervals at once.
    """
    length_ns = float(queries.end_ns - queries.starts_ns[0])
    cycle_ns = length_ns / queries.starts_ns.size
    open_ratio = REACH * renewal.u_ratio * renewal.interval_ns / cycle_ns
    bounds = np.append(queries.starts_ns, queries.end_ns) - queries.starts_ns[0]
    turns = np.interp(np.arange(0, length_ns, renewal.interval_ns), bounds, np.arange(bounds.size))
    for harmonic in range(1, HARMONICS + 1):
        if harmonic * open_ratio > LARGEST_OPEN:
            return False
        spectrum = np.abs(np.fft.fft(np.exp(2j * np.pi * harmonic * turns), FINER * turns.size)) / turns.size
        reach = math.ceil(harmonic * open_ratio * spectrum.size) + 1
        if max(spectrum[: reach + 1].max(), spectrum[-reach:].max()) > share:
            return True
    return False
