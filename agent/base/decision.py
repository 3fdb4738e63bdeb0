"""Decides a comparison by the printed interval: better, worse, no difference or inconclusive.

All differences of one comparison are decided together (Holm): the smallest p at 1 - .05 / n, the
next at 1 - .05 / (n - 1), and so on. From the first that fails, all use its confidence. So 95 of
100 comparisons report no false difference, and each decision follows from the interval that is
shown with it.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

from edgemeter.agent.base.evidence import Evidence
from edgemeter.agent.base.metrics import Better
from edgemeter.agent.base.statistics import FEWEST, student_quantile

Outcome = Literal["better", "worse", "no difference", "inconclusive"]
Scale = Literal["ratio", "points"]
ALPHA = 0.05
MATTERS_RATIO = 0.03  # A smaller difference is no reason to choose one or the other.
MATTERS_ACCURACY = 0.005  # The smallest difference of accuracies (0..1) that matters.
MATTERS_SHARE = 0.01  # The same of shares, such as that of missed frames.
# With the planned number of runs, four of five such comparisons are decided.
_POWER_Z = NormalDist().inv_cdf(0.8)
MOST_FURTHER = 100  # The largest number of further runs that is suggested.
ROUNDING = 1e-9
# The level at which a comparison may end after each round, so that 5% of results are wrong in spite
# of the repeated tests. Source: Haybittle (1971), Peto et al. (1976).
EARLY_ALPHA = 0.0002


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a case against a reference, with the deciding interval at `confidence`.

    `value`, `low` and `high` are a ratio, or a difference (0..1) if `scale` is points; `margin` is
    the smallest difference that matters, `better` the better direction. `limit` is that of a gate,
    on the scale of the evidence.
    """

    outcome: Outcome
    value: float
    low: float | None
    high: float | None
    confidence: float
    margin: float
    better: Better
    scale: Scale
    evidence: Evidence
    limit: float | None = None

    @property
    def mirrored(self) -> "Decision":
        return decide(
            replace(self.evidence, middle=-self.evidence.middle),
            self.confidence,
            self.margin,
            self.better,
            self.scale,
        )

    @property
    def further(self) -> int | None:
        """About how many more runs (pairs, days) of each would decide it, or its limit.

        None: it is decided, or a hundred would not decide it. Without an interval, the number that
        gives one.
        """
        if self.limit is None:
            return (
                _further(self.evidence, self.confidence, _limit(self.margin, self.scale))
                if self.outcome == "inconclusive"
                else None
            )
        distance = self.evidence.shifted(self.limit)
        low, high = distance.bounds(self.confidence) or (-math.inf, math.inf)
        return _further(distance, self.confidence, -math.inf) if low <= 0 <= high else None

    @property
    def repeats(self) -> int | None:
        """About how many runs of each would decide it in all, disturbed ones included.

        None as for `further`.
        """
        return (
            None
            if self.further is None
            else self.further + round(self.evidence.units / self.evidence.counted_ratio)
        )


def holm(evidences: Sequence[Evidence], alpha: float = ALPHA) -> list[float]:
    """Return the confidence at which each is decided and shown."""
    confidences = [0.0] * len(evidences)
    remaining = len(evidences)
    for index in sorted(range(len(evidences)), key=lambda index: evidences[index].p):
        confidences[index] = 1 - alpha / remaining
        if evidences[index].p <= alpha / remaining:
            remaining -= 1
    return confidences


def decide(
    evidence: Evidence, confidence: float, margin: float, better: Better, scale: Scale = "ratio"
) -> Decision:
    """Return the decision on a difference, which is one of logarithms if the scale is a ratio."""
    bounds = evidence.bounds(confidence)
    outcome: Outcome = (
        "inconclusive" if bounds is None else _outcome(bounds, _limit(margin, scale), better)
    )
    low, high = (None, None) if bounds is None else (on_scale(bound, scale) for bound in bounds)
    return Decision(
        outcome,
        on_scale(evidence.middle, scale),
        low,
        high,
        confidence,
        margin,
        better,
        scale,
        evidence,
    )


def _limit(margin: float, scale: Scale) -> float:
    return (math.log1p(margin) if scale == "ratio" else margin) + ROUNDING


def rounds_to_decide(evidences: Sequence[Evidence], margin_ratio: float) -> int:
    """Return about how many more rounds decide all differences, with a test after each round.

    0: they are decided.
    """
    decisions = [
        decide(evidence, at, margin_ratio, "lower")
        for evidence, at in zip(evidences, holm(evidences, EARLY_ALPHA), strict=True)
    ]
    return max(
        (
            decision.further or MOST_FURTHER
            for decision in decisions
            if decision.outcome == "inconclusive"
        ),
        default=0,
    )


def on_scale(value: float, scale: Scale) -> float:
    """Return a difference as it is printed.

    A difference of logarithms becomes a ratio, unless no float is small enough.
    """
    return value if scale == "points" else math.exp(min(value, 700.0))


def _outcome(bounds: tuple[float, float], limit: float, better: Better) -> Outcome:
    low, high = bounds
    if -limit <= low and high <= limit:
        return "no difference"
    if low <= 0 <= high:
        return "inconclusive"
    return "better" if (low > 0) == (better == "higher") else "worse"


def _further(evidence: Evidence, confidence: float, limit: float) -> int | None:
    """Return how many more units would decide four of five times.

    That is if difference and scatter are as measured. The same share of them will be disturbed.
    """
    if evidence.unit == "image":
        return None
    if evidence.error is None:
        return math.ceil((FEWEST - evidence.units) / evidence.counted_ratio - ROUNDING)
    # More runs reduce neither an assumed scatter nor its reach.
    fixed = evidence.assumed.error if evidence.assumed else 0.0
    scatter = math.sqrt(max(0.0, evidence.error**2 - fixed**2) * evidence.units)

    def errors(units: int) -> float:
        return (
            student_quantile(
                confidence, round(evidence.freedom * (units - 1) / (evidence.units - 1), 1)
            )
            + _POWER_Z
        )

    fixed_reach = fixed * errors(evidence.units)

    def decides(units: int) -> bool:
        reach = math.hypot(scatter / math.sqrt(units) * errors(units), fixed_reach)
        return abs(evidence.middle) >= reach or abs(evidence.middle) + reach <= limit

    further = range(1, MOST_FURTHER + 1)
    index = bisect_left(further, True, key=lambda runs: decides(evidence.units + runs))
    runs = math.ceil((index + 1) / evidence.counted_ratio - ROUNDING)
    return runs if index < len(further) and runs <= MOST_FURTHER else None
