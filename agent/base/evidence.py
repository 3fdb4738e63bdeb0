"""The evidence of runs on a figure, as its mean with a standard error.

The figure is that of one case, or the difference of two.

Figures above zero are compared as logarithms, so that exchanging two cases mirrors their ratio;
accuracies and shares as they are. The unit that counts is the largest of which there are three:
devices, else days, else runs. The value of a day is the median of its runs, so that one disturbed
run does not move it; correlated days count as fewer. Two cases are compared:

- in pairs, if their runs were interleaved: both see the same session effects;
- by day, if both ran on the same three days or more of one device;
- else as two independent means. Runs of one or two days do not show the scatter between days, nor
  runs of one session that of sessions: if the two ran on different days, or in different sessions,
  such a scatter is assumed for each.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, geometric_mean, median
from typing import Literal, NamedTuple

from edgemeter.agent.base.statistics import (
    FEWEST,
    jackknife_error,
    jackknife_freedom,
    student_quantile,
    student_two_sided_p,
)

CONFIDENCE = 0.95
Unit = Literal["run", "day", "device", "pair", "image"]
Turn = tuple[int, int]
# Scatter between days of one board, as a ratio, if the runs cover too few days to show it; and
# between sessions of one day. On a virtual machine, unseen neighbours change the speed for minutes.
# Source: three sets of twenty sessions on one cloud machine, which differed by 7%. With 3% assumed,
# 53 of 60 intervals contained the median of their set; with 5%, 56; with 6%, all 60. The last set
# was measured after 6% had been chosen.
DAY_SD = 0.02
SESSION_SD = 0.015
GUEST_SESSION_SD = 0.06
# Consecutive days are correlated, which few days hardly show: this correlation of neighbours is
# assumed, with the weight of ten days. Source: simulations of 5 to 20 days, whose intervals hold
# 94% at a correlation of 0.3, 90% at 0.5 and 77% at 0.8; they are wider by 31% (5 days) to 12% (20
# days) where days are independent. Fewer than five show nothing of it.
DAY_CORRELATION, CORRELATION_DAYS = 0.3, 10
FEWEST_IN_A_ROW = 5
# A correlation over more than this share of the values cannot distinguish a wandering process from
# a drift.
LONGEST_RATIO = 2 / 3
# The degrees of freedom of an uncertainty that is known beforehand, such as that of a meter.
EXACT = math.inf
_NORMAL = 1000.0  # With more degrees of freedom, Student's t is taken as normal.
REACH = student_quantile(CONFIDENCE, _NORMAL)  # The standard errors in half of such an interval.
LARGEST_LOG = math.log(sys.float_info.max)


class RunValue(NamedTuple):
    """One figure of one run; `turn` is its session and its round of interleaved cases.

    `session_sd` is the assumed scatter between sessions on its machine.
    """

    value: float
    device: str
    day: int
    turn: Turn | None = None
    session_sd: float = SESSION_SD


class Assumed(NamedTuple):
    """A scatter that too few runs cannot show, and the standard error that it adds.

    More runs of the same kind do not reduce it.
    """

    between: Literal["sessions", "days"]
    sd: float
    error: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """A mean, or a difference of two, with its standard error.

    It is from a number of `units` of the kind `unit`. The error is None if unknown.

    `counted_ratio` is the share of the runs that count; the others were disturbed.
    """

    middle: float
    error: float | None
    freedom: float
    units: int
    unit: Unit
    assumed: Assumed | None = None
    counted_ratio: float = 1.0

    def bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
        """Return the two-sided interval; None without an error."""
        if self.error is None:
            return None
        reach = student_quantile(confidence, _rounded(self.freedom)) * self.error
        return self.middle - reach, self.middle + reach

    @property
    def p(self) -> float:
        """The probability of a mean at least as far from zero if there is no difference.

        1 without an error.
        """
        if self.error is None:
            return 1.0
        if self.error == 0:
            return float(self.middle == 0)
        return student_two_sided_p(self.middle / self.error, _rounded(self.freedom))

    def shifted(self, by: float) -> "Evidence":
        """Return the evidence on the distance from `by`, such as a limit."""
        return replace(self, middle=self.middle - by)

    def minus(self, other: "Evidence") -> "Evidence":
        """Return the difference from an independent mean."""
        smaller = min(self, other, key=lambda evidence: evidence.units)
        like = replace(smaller, middle=self.middle - other.middle, error=None, freedom=0)
        if self.error is None or other.error is None:
            return like
        return _combined(
            like.middle, ((self.error, self.freedom), (other.error, other.freedom)), like
        )

    def with_error(self, error: float) -> "Evidence":
        """Return the evidence with a further standard error that repeating does not reduce.

        An example is that of a meter's gain.
        """
        if self.error is None or error == 0:
            return self
        return _combined(self.middle, ((self.error, self.freedom), (error, EXACT)), self)

    def in_other_sessions(self, session_sd: float, sessions: int = 1) -> "Evidence":
        """Return the evidence on the mean over other sessions too.

        Runs of a few minutes do not show the scatter between sessions.
        """
        if self.error is None or self.unit != "run":
            return self
        # Both reaches are added in quadrature, so that the interval becomes wider with any number
        # of runs.
        share = REACH / student_quantile(CONFIDENCE, _rounded(self.freedom))
        assumed = Assumed("sessions", session_sd, share * session_sd / math.sqrt(sessions))
        return replace(self, error=math.hypot(self.error, assumed.error), assumed=assumed)

    def share_bounds(self) -> tuple[float, float] | None:
        """Return the interval of a share, within 0..1; None without an error."""
        bounds = self.bounds()
        return bounds and (max(bounds[0], 0.0), min(bounds[1], 1.0))


def mean_of(values: Sequence[RunValue]) -> Evidence:
    """Return the mean of a figure over one or more runs."""
    return _mean_of_units(*_units(values))


def mean_of_device(values: Sequence[float], days: Sequence[int]) -> Evidence:
    """Return `mean_of` for the runs of one device, from their values and days.

    So a million runs need no object each.
    """
    by_day: Sequence[float] = values
    if any(day >= after for day, after in pairwise(days)):
        groups = defaultdict[int, list[float]](list)
        for day, value in zip(days, values, strict=True):
            groups[day].append(value)
        by_day = [median(groups[day]) for day in sorted(groups)]
    return _mean_of_units("day", by_day) if len(by_day) >= FEWEST else _mean_of_units("run", values)


def _mean_of_units(unit: Unit, members: Sequence[float]) -> Evidence:
    middle, n = fmean(members), len(members)
    if n < FEWEST:
        return Evidence(middle, None, n - 1, n, unit)
    # The exact arithmetic of `statistics.stdev` is too slow for thousands of cases.
    deviations = [member - middle for member in members]
    squares = math.fsum(deviation * deviation for deviation in deviations)
    inflation = 1.0
    if unit == "day" and n >= FEWEST_IN_A_ROW and squares > 0:
        raw = math.fsum(day * after for day, after in pairwise(deviations)) / squares
        inflation = _variance_inflation(n, _day_correlation(raw, n))
    return Evidence(
        middle, math.sqrt(inflation * squares / (n - 1) / n), max(1.0, n / inflation - 1), n, unit
    )


def difference(case: Sequence[RunValue], reference: Sequence[RunValue]) -> Evidence:
    """Return the difference of the figure of `case` from that of `reference`.

    Each has at least one run.
    """
    pairs = _paired(case, reference)
    if pairs is not None:
        return pairs
    mean, other = mean_of(case), mean_of(reference)
    evidence = mean.minus(other)
    few = [side for side, of_side in ((case, mean), (reference, other)) if of_side.unit == "run"]
    if not few or sessions_of(case) == sessions_of(reference):
        return evidence
    sd = max(run.session_sd for side in few for run in side)
    if _days(case) == _days(reference):
        assumed = Assumed(
            "sessions", sd, sd * math.sqrt(math.fsum(1 / len(sessions_of(side)) for side in few))
        )
    else:
        sd = max(sd, DAY_SD)
        assumed = Assumed(
            "days", sd, sd * math.sqrt(math.fsum(1 / len(_days(side)) for side in few))
        )
    return replace(evidence.with_error(assumed.error), assumed=assumed)


def accuracy_difference(
    without_parts: Sequence[float], other: Sequence[float], middle: float
) -> Evidence:
    """Return the difference of two accuracies over the same images, by their jackknife values."""
    parts = [value - of_other for value, of_other in zip(without_parts, other, strict=True)]
    error = jackknife_error(parts)
    if error is None:
        # The jackknife shows no scatter: equal on all images, or a difference that no part changes.
        return Evidence(middle, 0.0 if middle == 0 else None, EXACT, len(parts), "image")
    return Evidence(middle, error, jackknife_freedom(parts), len(parts), "image")


class IntervalOverRuns(NamedTuple):
    """The geometric mean of the runs' values and its 95% interval."""

    middle: float
    low: float
    high: float

    @property
    def half_width_ratio(self) -> float:
        """The distance of the upper bound from the middle, as a share of the middle.

        The lower bound is nearer.
        """
        return self.high / self.middle - 1


def interval_over_runs(values: Sequence[float], session_sd: float) -> IntervalOverRuns | None:
    """Return the interval of a figure over all sessions, from one value a run of one session.

    With `session_sd` 0 it is the interval over that session alone. None with fewer than three runs,
    with a value not above 0, and if the runs differ so much that no float holds the upper bound.
    """
    if len(values) < FEWEST or min(values) <= 0:
        return None
    evidence = mean_of([RunValue(math.log(value), "", 0) for value in values])
    bounds = evidence.in_other_sessions(session_sd).bounds()
    if bounds is None or bounds[1] >= LARGEST_LOG:
        return None
    middle, reach = middle_of(values), math.exp(bounds[1] - evidence.middle)
    return IntervalOverRuns(middle, middle / reach, middle * reach)


def middle_of(values: Sequence[float]) -> float:
    """Return the geometric mean, or the median if a value is not above 0."""
    if min(values) <= 0:
        return median(values)
    return values[0] if min(values) == max(values) else geometric_mean(values)


def _units(values: Sequence[RunValue]) -> tuple[Unit, list[float]]:
    """Return the values of the largest units of which there are enough."""
    by_day = _by_day(values)
    by_device = defaultdict[str, list[float]](list)
    for (device, _), of_day in by_day.items():
        by_device[device].append(of_day)
    if len(by_device) >= FEWEST:
        return "device", [fmean(days) for days in by_device.values()]
    if len({day for _, day in by_day}) >= FEWEST:
        return "day", list(by_day.values())
    return "run", [value.value for value in values]


def _paired(case: Sequence[RunValue], reference: Sequence[RunValue]) -> Evidence | None:
    """Return the difference from pairs of interleaved runs, else of common days of one device.

    None if there are too few.
    """
    turns = {value.turn: value.value for value in reference if value.turn is not None}
    pairs = [
        value._replace(value=value.value - turns[value.turn])
        for value in case
        if value.turn in turns
    ]
    if len(pairs) >= FEWEST:
        evidence = mean_of(pairs)
        return replace(evidence, unit="pair") if evidence.unit == "run" else evidence
    days, other = map(_by_day, (case, reference))
    common = [RunValue(days[key] - other[key], *key) for key in days if key in other]
    return mean_of(common) if len(_days(common)) >= FEWEST else None


def _by_day(values: Iterable[RunValue]) -> dict[tuple[str, int], float]:
    groups = defaultdict[tuple[str, int], list[float]](list)
    for run in values:
        groups[run.device, run.day].append(run.value)
    # Most days have one run.
    return {
        key: members[0] if len(members) == 1 else median(members)
        for key, members in sorted(groups.items())
    }


def sessions_of(values: Iterable[RunValue]) -> set[int]:
    """Return the sessions of the runs; runs without one count by day."""
    return {value.turn[0] if value.turn else value.day for value in values}


def _days(values: Iterable[RunValue]) -> set[int]:
    return {value.day for value in values}


def _day_correlation(raw: float, days: int) -> float:
    """Return the correlation of neighbouring days, 0 or more.

    It is corrected for the bias of estimating it about the days' own mean.

    Source: Marriott and Pope, Biometrika 41 (1954) 390, for the correction.
    """
    corrected = raw + (1 + 4 * raw) / days
    shrunk = (days * corrected + CORRELATION_DAYS * DAY_CORRELATION) / (days + CORRELATION_DAYS)
    return min(1 - 1 / (LONGEST_RATIO * days), max(0.0, shrunk))


def _variance_inflation(n: int, r: float) -> float:
    """Return how much the correlation r of neighbours inflates the variance of a mean of n values.

    It is the ratio to the variance of a mean of n independent values (a first-order process).
    """
    inflation: float = (1 + r) / (1 - r) - 2 * r * (1 - r**n) / (n * (1 - r) ** 2)
    return inflation


def _combined(middle: float, errors: Iterable[tuple[float, float]], like: Evidence) -> Evidence:
    """Return independent errors combined, with Welch's and Satterthwaite's degrees of freedom."""
    squares = [(error * error, freedom) for error, freedom in errors]
    variance = math.fsum(square for square, _ in squares)
    scatter = math.fsum(square * square / freedom for square, freedom in squares)
    freedom = variance * variance / scatter if scatter > 0 else EXACT
    return replace(like, middle=middle, error=math.sqrt(variance), freedom=freedom)


def _rounded(freedom: float) -> float:
    """Return degrees of freedom in steps, so that quantiles are cached."""
    return min(round(freedom, 1), _NORMAL)
