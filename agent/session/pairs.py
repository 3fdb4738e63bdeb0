"""The judgement of pairs of neighbouring runs, from their log ratios.

- `alike`: the 95% interval of the ratio lies within the smallest difference that matters, either way.
- `lower`, `higher`: the interval at 99.2% leaves out 1; else it is `not settled`, and `not judged` below two pairs.
- Where neighbouring pairs correlate more than chance lets them, the intervals are wider. Fewer than 30 pairs do not show it for sure, and
  are taken as independent, which is said: of ten pairs whose neighbours correlate by 0.6, 81% of the 95% intervals hold the ratio.
- After each pair, from the fifth, the same tests are made at a higher confidence, and as if neighbours correlated by 0.6: a clear result
  ends the comparison. These early tests share an error of 0.2%, so that A against A is called a difference in at most 1% of all
  comparisons of independent pairs, however long they are.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import NormalDist, stdev

import msgspec

from edgemeter.agent.base import run_statistics
from edgemeter.agent.base.decision import Outcome, decide
from edgemeter.agent.base.run_statistics import CONFIDENCE, MATTERS_RATIO
from edgemeter.agent.base.statistics import student_quantile

FALSE_ALARMS = 0.01
EARLY_SHARE = 0.2
FIRST_CHECK = 5
DECISION = 1 - FALSE_ALARMS * (1 - EARLY_SHARE)

# Foresight: the number of pairs that settles it in four of five comparisons like this one.
_DIFFERS_Z = NormalDist().inv_cdf(0.8)

# An estimate near 1 can leave the limits at either end: half of the misses at each.
_ALIKE_Z = NormalDist().inv_cdf(0.9)
FORESEEN_PAIRS = 1000


class PairJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """B / A: the ratio of p50 with its 95% interval over pairs of runs, and what follows from it.

    `more_pairs` is about how many more pairs would settle it with the spread seen; null where it is settled, or where even a thousand
    would not do. `effective_pairs` is how many independent pairs they are worth: fewer where neighbours depend on each other.
    `are_taken_as_independent`: too few pairs to show whether they do; `rests_on_independence`: and the outcome would be another if they
    correlated by 0.6.
    """

    state: Outcome
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    more_pairs: int | None
    matters_ratio: float
    effective_pairs: float | None = None
    are_taken_as_independent: bool = False
    rests_on_independence: bool = False


def judge_pairs(log_ratios: Sequence[float], matters_ratio: float = MATTERS_RATIO) -> PairJudgement:
    """Return the judgement on the log ratios ln(B / A) of all pairs."""
    limit = math.log1p(matters_ratio)
    state = _state(log_ratios, limit, DECISION, CONFIDENCE)
    interval = run_statistics.pair_interval(log_ratios)
    widening = run_statistics.neighbour_widening(log_ratios)
    count = len(log_ratios)
    is_unknown = widening == 1 and 1 < count < run_statistics.TELLING_NEIGHBOURS
    return PairJudgement(
        state=state,
        ratio=math.exp(run_statistics.centre(log_ratios)) if log_ratios else None,
        low=math.exp(interval.low) if interval else None,
        high=math.exp(interval.high) if interval else None,
        pairs=count,
        more_pairs=_more(log_ratios, limit) if state == "not settled" else None,
        matters_ratio=matters_ratio,
        effective_pairs=count / widening**2,
        are_taken_as_independent=is_unknown,
        rests_on_independence=is_unknown and state != _state(log_ratios, limit, DECISION, CONFIDENCE, run_statistics.widening_of(count)),
    )


def is_settled(log_ratios: Sequence[float], planned: int, matters_ratio: float = MATTERS_RATIO) -> bool:
    """Return whether the comparison may end before the `planned` pairs; called after every pair."""
    count = len(log_ratios)
    if not FIRST_CHECK <= count < planned:
        return False
    limit = math.log1p(matters_ratio)
    strict = 1 - FALSE_ALARMS * EARLY_SHARE / (planned - FIRST_CHECK)
    state = _state(log_ratios, limit, strict, strict, run_statistics.widening_of(count))
    return state in ("lower", "higher", "alike") and state == _state(log_ratios, limit, DECISION, CONFIDENCE)


def expected_end(log_ratios: Sequence[float], planned: int, matters_ratio: float = MATTERS_RATIO) -> int:
    """Return after how many pairs the comparison will probably end, were the ratio and the spread what they seem; `planned` at most.

    One pair shows no spread: then it is the middle between the first check and the end, as a ratio.
    """
    count = len(log_ratios)
    if count < 2:
        return round(math.sqrt(min(FIRST_CHECK, planned) * planned))
    mean, spread = run_statistics.centre(log_ratios), stdev(log_ratios)
    for end in range(max(FIRST_CHECK, count + 1), planned):
        if is_settled([mean + (spread if index % 2 else -spread) for index in range(end)], planned, matters_ratio):
            return end
    return planned


def _state(log_ratios: Sequence[float], limit: float, decision: float, confidence: float, least_widening: float = 1.0) -> Outcome:
    stated_outcome, decided = (_outcome(log_ratios, limit, level, least_widening) for level in (confidence, decision))
    return stated_outcome if stated_outcome == "alike" else decided


def _outcome(log_ratios: Sequence[float], limit: float, confidence: float, least_widening: float) -> Outcome:
    interval = run_statistics.pair_interval(log_ratios, confidence, least_widening)
    # Of logarithms, so that an interval without end is none of numbers too large for a float.
    return decide(None, interval, limit, "difference").outcome


def _more(log_ratios: Sequence[float], limit: float) -> int | None:
    """Return about how many more pairs would settle it, were the ratio and the spread what they seem; None: more than is sensible."""
    if len(log_ratios) < 2:
        return None
    effect, now = abs(run_statistics.centre(log_ratios)), len(log_ratios)
    spread = stdev(log_ratios) * run_statistics.neighbour_widening(log_ratios)

    def settles(count: int) -> bool:
        error = spread / math.sqrt(count)
        differs = effect >= error * (student_quantile(DECISION, count - 1) + _DIFFERS_Z)
        return differs or effect + error * (student_quantile(CONFIDENCE, count - 1) + _ALIKE_Z) <= limit

    if not settles(FORESEEN_PAIRS):
        return None
    return 1 + bisect_left(range(now + 1, FORESEEN_PAIRS), True, key=settles)
