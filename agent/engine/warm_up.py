"""The warm-up: queries that are not counted, until the latency has settled.

A series has settled where its last half has no trend, and no change of level or spread that
matters. Checked from 64 queries on and again after every quarter more, but at 384 where that would
be just short of it, since from there on any scatter can be settled. On 200 seeded synthetic series
of each kind:

- A series that is settled from the start (normal, skewed, bimodal, autocorrelated by 0.7, with 3%
  of spikes) was always found to be: after 64 queries where its standard deviation is 0.1% of its
  level, after 64 to 195 at 1%, after about 390 (95%: 480) from 5% to 20%.
- One that falls by 10, 50 or 200% of its level with a time constant of 10, 50 or 200 queries
  (normal, 0.2 to 20%) was called settled while more than 2% (or half a standard deviation) of its
  level was still to go in none of most kinds, in 2.5% of those by 200% over 200 queries at a
  standard deviation of 20%, and in 15% of those by 10% over 200 queries at one of 1%.
- A slow fall that is small beside the noise is missed: with a time constant of 1,000 queries 82 to
  100% of those by 10%, and at a standard deviation of 20% most of those by more. The verdict's rule
  `drift` is there for what goes on while timing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection
from edgemeter.agent.engine.users import ask_users

# The last half has this number of blocks; their medians are compared, so that single outliers do
# not count.
BLOCKS = 32
FEWEST_QUERIES = 16

# A window must be able to show a trend of this share of the level, or of this share of the spread,
# whichever is more.
SHOWN_RATIO = 0.004
SHOWN_SPREADS = 0.25

# A smaller change over the window does not matter, even if it is significant.
NEGLIGIBLE_RATIO = 0.003

# Mann-Kendall, two-sided, 5%.
TREND_Z = 1.96
SPREAD_FACTOR = 2.0
HALVES_RATIO = 0.02

# A change of a smaller spread does not matter.
NEGLIGIBLE_SPREAD_RATIO = 0.02
# The first check comes after this number of queries and this time, since clocks take tens of ms to
# rise; the next after a quarter more.
FIRST_CHECK = 64
SHORTEST_S = 0.5
GROWTH = 1.25
# The fewest queries whose last half shows a trend of a quarter of the spread; with fewer, no noisy
# series counts as settled.
SHOWS_ANY_SPREAD = 2 * math.ceil(12 / SHOWN_SPREADS**2)
LEVEL_QUERIES = 32
# The fewest whole queries, or rounds of several users, after the cold one. With fewer than
# `HALVES_ROUNDS` the last two have to agree.
FEWEST_ROUNDS, HALVES_ROUNDS = 2, 4
# The queries of each user in a round; one if they generate text.
QUERIES_A_USER = 8


def has_settled(durations_ns: Sequence[float]) -> bool:
    """Return whether the last half of `durations_ns` shows a constant level and spread.

    There must be at least 16 queries in it.

    Three things must hold:

    - The window is long enough: the rise of a fitted line is known to 0.4% of the level or a
      quarter of the spread.
    - It has no trend: Mann-Kendall finds none at 5%, or the trend is below 0.3% over the window
      (Theil-Sen).
    - The spread of one half is at most twice that of the other, or both are below 2% of the level.
    """
    window = np.asarray(
        durations_ns[-max(FEWEST_QUERIES, len(durations_ns) // 2) :], dtype=np.float64
    )
    return (
        window.size >= FEWEST_QUERIES
        and _shows_trends(window)
        and _has_no_trend(window)
        and _spread_stays(window)
    )


def looks_settled(durations_ns: Sequence[float]) -> bool:
    """Like `has_settled` without its first condition, for series too short to show small trends.

    With fewer than 16 queries a trend cannot be distinguished from chance. Then the medians of both
    halves must be within 2% of each other, or the last two of two or three queries.
    """
    if len(durations_ns) < HALVES_ROUNDS:
        before, last = durations_ns[-2:] if len(durations_ns) >= FEWEST_ROUNDS else (0.0, 1.0)
        return abs(last - before) <= HALVES_RATIO * before
    window = np.asarray(
        durations_ns[-max(FEWEST_QUERIES, len(durations_ns) // 2) :], dtype=np.float64
    )
    if window.size >= FEWEST_QUERIES:
        return _has_no_trend(window) and _spread_stays(window)
    before, after = np.median(window[: window.size // 2]), np.median(window[window.size // 2 :])
    return bool(abs(after - before) <= HALVES_RATIO * before)


def next_check(count: int) -> int:
    """Return the number of queries for the check after `count`.

    It is a quarter more, or a little more if that would be just too few.
    """
    due = int(count * GROWTH)
    return SHOWS_ANY_SPREAD if due < SHOWS_ANY_SPREAD < due * GROWTH else due


def _shows_trends(window: NDArray[np.float64]) -> bool:
    # The rise of a line that is fitted to n points has a standard error of sqrt(12 / n) of their
    # standard deviation.
    spread = float(np.subtract(*np.quantile(window, (0.84, 0.16)))) / 2
    return spread * math.sqrt(12 / window.size) <= max(
        SHOWN_RATIO * float(np.median(window)), SHOWN_SPREADS * spread
    )


def _has_no_trend(window: NDArray[np.float64]) -> bool:
    medians = block_medians(window)
    change = abs(theil_sen(medians)) * (medians.size - 1)
    return (
        change <= NEGLIGIBLE_RATIO * float(np.median(window))
        or abs(mann_kendall(medians)) <= TREND_Z
    )


def _spread_stays(window: NDArray[np.float64]) -> bool:
    half = window.size // 2
    smaller, other = sorted((_spread(window[:half]), _spread(window[half:])))
    return bool(other <= max(SPREAD_FACTOR * smaller, NEGLIGIBLE_SPREAD_RATIO * np.median(window)))


def _spread(values: NDArray[np.float64]) -> float:
    low, high = np.quantile(values, (0.1, 0.9))
    return float(high - low)


def block_medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the medians of up to 32 consecutive blocks of equal size.

    The first block begins after the remainder.
    """
    blocks = min(BLOCKS, values.size)
    medians: NDArray[np.float64] = np.median(
        values[values.size % blocks :].reshape(blocks, -1), axis=1
    )
    return medians


def mann_kendall(values: NDArray[np.float64]) -> float:
    """Return the statistic Z of the Mann-Kendall test.

    It is about standard normal if `values` [n >= 3] have no trend.

    Source: Mann (1945), Kendall (1975), with the correction for ties.
    """
    count = values.size
    score = float(np.sign(values[None, :] - values[:, None])[np.triu_indices(count, 1)].sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (
        count * (count - 1) * (2 * count + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())
    ) / 18
    return (
        0.0
        if variance <= 0
        else (score - math.copysign(1, score) * (score != 0)) / math.sqrt(variance)
    )


def theil_sen(values: NDArray[np.float64]) -> float:
    """Return the median slope of `values` [n >= 2] per step.

    Source: Sen (1968).
    """
    earlier, other = np.triu_indices(values.size, 1)
    return float(np.median((values[other] - values[earlier]) / (other - earlier)))


@dataclass(frozen=True, slots=True)
class Warmed:
    """The result of the warm-up; `query_ns` is the duration of a query at its end."""

    queries: int
    duration_ns: int
    steady: bool
    query_ns: int


def warm_up(watch: Stopwatch, limit_s: float, users: int | None = None) -> Warmed:
    """Run queries until their durations have settled, but at least two.

    It takes no longer than `limit_s`.

    Three kinds of series are too short to show small trends, so it is enough if they look settled:
    those that the limit ends, texts, and rounds of several users.
    """
    clock, subject = watch.clock, watch.subject
    is_coarse = subject.has_tokens or users is not None
    paces: list[tuple[float, ...]] = []
    durations: list[float] = []
    begin, due, settled, answered = clock(), FEWEST_ROUNDS if is_coarse else FIRST_CHECK, False, 0
    with no_collection():
        while not settled and (clock() - begin < limit_s * 1e9 or len(paces) < FEWEST_ROUNDS):
            if users is None:
                watch.first()
            else:
                queries = users * (1 if subject.has_tokens else QUERIES_A_USER)
                ask_users(watch, users, queries, is_warm_up=True)
            if watch.answered == answered:
                raise watch.give_up()
            latest, answered = watch.since(answered), watch.answered
            paces.append(subject.paces_ns(latest))
            durations.append(sum(end_ns - start_ns for _, start_ns, end_ns in latest) / len(latest))
            if len(paces) >= due and clock() - begin >= min(SHORTEST_S, limit_s) * 1e9:
                settled = all(
                    (looks_settled if is_coarse else has_settled)(series)
                    for series in zip(*paces, strict=True)
                )
                due = len(paces) + 1 if is_coarse else next_check(len(paces))
    is_steady = settled or all(map(looks_settled, zip(*paces, strict=True)))
    return Warmed(
        watch.answered,
        clock() - begin,
        is_steady,
        round(float(np.median(durations[-LEVEL_QUERIES:]))),
    )
