"""A/B comparison: two cases measured in turn on this machine (ABBA ...), each run in a fresh process, until the verdict or the end.

From the log ratios of neighbouring runs to faster, slower, no difference that matters, or not enough runs:

- `no difference that matters`: the 95 % interval of the ratio lies within the smallest difference that matters, either way.
- `faster`, `slower`: the interval at 99.2 % leaves out 1.
- After each pair, from the fifth, the same tests are made at a higher confidence, and a clear result ends the comparison. These early
  tests share an error of 0.2 %, so that A against A is called a difference in at most 1 % of all comparisons, however long they are.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median, stdev
from typing import Literal

import msgspec

from edgemeter.agent.base import run_statistics
from edgemeter.agent.base.errors import EdgemeterError, MeasurementError
from edgemeter.agent.base.run_statistics import CONFIDENCE, MATTERS_RATIO, centre, pair_interval
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case, Suite
from edgemeter.agent.session import session

AbState = Literal["faster", "slower", "no difference that matters", "not enough runs"]

FALSE_ALARMS = 0.01
EARLY_SHARE = 0.2
FIRST_CHECK = 5
DECISION = 1 - FALSE_ALARMS * (1 - EARLY_SHARE)

# Foresight: the number of pairs that settles it in four of five comparisons like this one.
_DIFFERS_Z = NormalDist().inv_cdf(0.8)

# An estimate near 1 can leave the limits at either end: half of the misses at each.
_ALIKE_Z = NormalDist().inv_cdf(0.9)
FORESEEN_PAIRS = 1000
WHY_NO_POWER = "an A/B comparison is of latency: power was not read"


class AbJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """B / A: the ratio of p50 with its 95 % interval over pairs of runs, and what follows from it.

    `more_pairs` is about how many more pairs would settle it with the spread seen; null where it is settled, or where even a thousand
    would not do.
    """

    state: AbState
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    more_pairs: int | None
    matters_ratio: float


def judge_pairs(log_ratios: Sequence[float], matters_ratio: float = MATTERS_RATIO) -> AbJudgement:
    """Return the judgement on the log ratios ln(B / A) of all pairs."""
    limit = math.log1p(matters_ratio)
    state = _state(log_ratios, limit, DECISION, CONFIDENCE)
    stated = pair_interval(log_ratios)
    return AbJudgement(
        state=state,
        ratio=math.exp(centre(log_ratios)) if log_ratios else None,
        low=math.exp(stated.low) if stated else None,
        high=math.exp(stated.high) if stated else None,
        pairs=len(log_ratios),
        more_pairs=_more(log_ratios, limit) if state == "not enough runs" else None,
        matters_ratio=matters_ratio,
    )


def is_settled(log_ratios: Sequence[float], planned: int, matters_ratio: float = MATTERS_RATIO) -> bool:
    """Return whether the comparison may end before the `planned` pairs; called after every pair."""
    count = len(log_ratios)
    if not FIRST_CHECK <= count < planned:
        return False
    limit = math.log1p(matters_ratio)
    strict = 1 - FALSE_ALARMS * EARLY_SHARE / (planned - FIRST_CHECK)
    state = _state(log_ratios, limit, strict, strict)
    return state != "not enough runs" and state == _state(log_ratios, limit, DECISION, CONFIDENCE)


def _state(log_ratios: Sequence[float], limit: float, decision: float, confidence: float) -> AbState:
    stated, decided = pair_interval(log_ratios, confidence), pair_interval(log_ratios, decision)
    if stated is None or decided is None:
        return "not enough runs"
    if -limit <= stated.low and stated.high <= limit:
        return "no difference that matters"
    if decided.low > 0:
        return "slower"
    return "faster" if decided.high < 0 else "not enough runs"


def _more(log_ratios: Sequence[float], limit: float) -> int | None:
    """Return about how many more pairs would settle it, were the ratio and the spread what they seem; None: more than is sensible."""
    if len(log_ratios) < 2:
        return None
    effect, spread, now = abs(centre(log_ratios)), stdev(log_ratios), len(log_ratios)

    def settles(count: int) -> bool:
        error = spread / math.sqrt(count)
        differs = effect >= error * (student_quantile(DECISION, count - 1) + _DIFFERS_Z)
        return differs or effect + error * (student_quantile(CONFIDENCE, count - 1) + _ALIKE_Z) <= limit

    if not settles(FORESEEN_PAIRS):
        return None
    return 1 + bisect_left(range(now + 1, FORESEEN_PAIRS), True, key=settles)


class AbSide(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two: its runs' p50, their median and its 95 % interval over runs (null below three runs)."""

    label: str
    p50_ms: tuple[float, ...]
    median_ms: float
    low_ms: float | None
    high_ms: float | None


class AbTests(msgspec.Struct, frozen=True, kw_only=True):
    """Unpaired tests on log p50: where they disagree with the judgement, the machine drifted."""

    welch_p: float | None
    mann_whitney_p: float | None
    hedges_g: float | None


class AbComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result; `left_out` are the runs that do not count and why, `doubts` how many runs are suspect by which rule."""

    a: AbSide
    b: AbSide
    judgement: AbJudgement
    tests: AbTests
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    is_b: bool
    pair: int
    outcome: RunRecord | EdgemeterError

    @property
    def is_sound(self) -> bool:
        return isinstance(self.outcome, RunRecord) and self.outcome.verdict.state != "invalid" and self.outcome.latency.p50_ms is not None

    @property
    def why(self) -> str:
        return str(self.outcome) if isinstance(self.outcome, EdgemeterError) else "; ".join(self.outcome.verdict.reasons) or "it has no p50"


def abba_order(a: Case, b: Case, pairs: int) -> list[tuple[Case, int]]:
    """Return the runs of `pairs` pairs in the order AB BA AB BA ..., so that a steady drift favours neither."""
    runs: list[tuple[Case, int]] = []
    for pair in range(pairs):
        runs.extend([(b, pair), (a, pair)] if pair % 2 else [(a, pair), (b, pair)])
    return runs


def compare_cases(
    a: Case,
    b: Case,
    pairs: int,
    identity: session.DeviceIdentity,
    on_event: session.OnEvent,
    matters_ratio: float,
    keep: Callable[[RunRecord], RunRecord] = lambda record: record,
) -> AbComparison:
    """Measure `pairs` runs of each, fewer where the result is clear earlier, and compare them; `keep` stores each as it ends.

    Raises:
        EdgemeterError: no pair of runs can be compared.
    """
    # Accuracy and agreement would only lengthen the time between the two runs of a pair.
    a, b = (msgspec.structs.replace(case, accuracy="never", agreement="never") for case in (a, b))
    runs = session.measure(Suite("a/b", (a, b)), identity, {}, WHY_NO_POWER, on_event, keep, order=abba_order(a, b, pairs))
    done: list[_Run] = []
    for place, outcome in enumerate(runs):
        pair = place // 2
        done.append(_Run((place % 2 == 1) != (pair % 2 == 1), pair, outcome))
        if place % 2 and is_settled(_log_ratios(done), pairs, matters_ratio):
            break
    return _comparison(a, b, done, matters_ratio)


def _pairs(done: Sequence[_Run]) -> list[tuple[RunRecord, RunRecord]]:
    """Return A and B of every pair of which both are sound."""
    sound = {(run.pair, run.is_b): run.outcome for run in done if run.is_sound}
    both = [(sound.get((pair, False)), sound.get((pair, True))) for pair in range(len(done) // 2)]
    return [(a, b) for a, b in both if isinstance(a, RunRecord) and isinstance(b, RunRecord)]


def _p50_ms(run: RunRecord) -> float:
    return run.latency.p50_ms or math.nan


def _log_ratios(done: Sequence[_Run]) -> list[float]:
    return [math.log(_p50_ms(b) / _p50_ms(a)) for a, b in _pairs(done)]


def _comparison(a: Case, b: Case, done: Sequence[_Run], matters_ratio: float) -> AbComparison:
    pairs = _pairs(done)
    left_out = tuple(f"pair {run.pair + 1}, {'B' if run.is_b else 'A'}: {run.why}" for run in done if not run.is_sound)
    if not pairs:
        raise MeasurementError(f"no pair of runs can be compared: {'; '.join(dict.fromkeys(left_out))}")
    own, other = [math.log(_p50_ms(run)) for run, _ in pairs], [math.log(_p50_ms(run)) for _, run in pairs]
    counted = [run for pair in pairs for run in pair]
    return AbComparison(
        a=_side(a, [run for run, _ in pairs]),
        b=_side(b, [run for _, run in pairs]),
        judgement=judge_pairs(_log_ratios(done), matters_ratio),
        tests=AbTests(
            welch_p=run_statistics.welch_p(own, other),
            mann_whitney_p=run_statistics.mann_whitney_p(own, other),
            hedges_g=run_statistics.hedges_g(own, other),
        ),
        left_out=left_out,
        doubts=_doubts(counted),
        runs=tuple(run.outcome for run in done if isinstance(run.outcome, RunRecord)),
    )


def _doubts(counted: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return how many of the runs violate each rule."""
    suspect = [run for run in counted if run.verdict.state == "suspect"]
    rules = [reason.partition(":")[0] for run in suspect for reason in run.verdict.reasons]
    return tuple(f"{rule}: {rules.count(rule)} of {len(counted)} runs" for rule in dict.fromkeys(rules))


def _side(case: Case, runs: Sequence[RunRecord]) -> AbSide:
    p50_ms = tuple(_p50_ms(run) for run in runs)
    interval = run_statistics.median_interval(p50_ms)
    return AbSide(
        label=case.label,
        p50_ms=p50_ms,
        median_ms=median(p50_ms),
        low_ms=interval.low if interval else None,
        high_ms=interval.high if interval else None,
    )
