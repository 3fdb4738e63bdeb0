"""A/B: two cases measured in turn on this machine (ABBA ...), each run in a fresh process, until the verdict or the end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from edgemeter.agent import records
from edgemeter.agent.engine import ab_verdict, run_statistics, session
from edgemeter.agent.engine.suites import Case, Suite
from edgemeter.agent.errors import EdgemeterError, MeasurementError

WHY_NO_POWER = "an A/B comparison is of latency: power was not read"


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two: its runs' p50, their median and its 95 % interval over runs (null below three runs)."""

    label: str
    p50_ms: tuple[float, ...]
    median_ms: float
    low_ms: float | None
    high_ms: float | None


class Tests(msgspec.Struct, frozen=True, kw_only=True):
    """What tests say that do not know the pairs, on log p50: where they disagree with the judgement, the machine drifted."""

    welch_p: float | None
    mann_whitney_p: float | None
    hedges_g: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; `left_out` says which pairs do not count and why, `doubts` which runs are only suspect."""

    a: Side
    b: Side
    judgement: ab_verdict.Judgement
    tests: Tests
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]
    runs: tuple[records.RunRecord, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    is_b: bool
    pair: int
    outcome: records.RunRecord | EdgemeterError


def order(a: Case, b: Case, pairs: int) -> list[tuple[Case, int]]:
    """Return the runs of `pairs` pairs in the order AB BA AB BA ..., so that a steady drift favours neither."""
    runs: list[tuple[Case, int]] = []
    for pair in range(pairs):
        runs.extend([(b, pair), (a, pair)] if pair % 2 else [(a, pair), (b, pair)])
    return runs


def compare(a: Case, b: Case, pairs: int, who: session.Identity, tell: session.Tell, matters_ratio: float) -> Comparison:
    """Measure `pairs` runs of each, fewer where the verdict is clear before, and return what came of it.

    Raises:
        EdgemeterError: no pair of runs can be compared; it says why.
    """
    # Accuracy and agreement would only lengthen the time between the two runs of a pair.
    a, b = (msgspec.structs.replace(case, accuracy="never", agreement="never") for case in (a, b))
    runs = session.measure(Suite("a/b", (a, b)), who, {}, WHY_NO_POWER, tell, order=order(a, b, pairs))
    done: list[_Run] = []
    for place, outcome in enumerate(runs):
        pair = place // 2
        done.append(_Run((place % 2 == 1) != (pair % 2 == 1), pair, outcome))
        if place % 2 and ab_verdict.is_settled(_log_ratios(done), pairs, matters_ratio):
            break
    return _comparison(a, b, done, matters_ratio)


def _sound(run: _Run) -> bool:
    return isinstance(run.outcome, records.RunRecord) and run.outcome.verdict.state != "invalid" and run.outcome.latency.p50_ms is not None


def _pairs(done: Sequence[_Run]) -> list[tuple[records.RunRecord, records.RunRecord]]:
    """Return A and B of every pair of which both are sound."""
    sound = {(run.pair, run.is_b): run.outcome for run in done if _sound(run)}
    both = [(sound.get((pair, False)), sound.get((pair, True))) for pair in range(len(done) // 2)]
    return [(a, b) for a, b in both if isinstance(a, records.RunRecord) and isinstance(b, records.RunRecord)]


def _p50_ms(run: records.RunRecord) -> float:
    return run.latency.p50_ms or math.nan


def _log_ratios(done: Sequence[_Run]) -> list[float]:
    return [math.log(_p50_ms(b) / _p50_ms(a)) for a, b in _pairs(done)]


def _comparison(a: Case, b: Case, done: Sequence[_Run], matters_ratio: float) -> Comparison:
    pairs = _pairs(done)
    left_out = tuple(f"pair {run.pair + 1}, {'B' if run.is_b else 'A'}: {_why(run)}" for run in done if not _sound(run))
    if not pairs:
        message = f"no pair of runs can be compared: {'; '.join(dict.fromkeys(left_out))}"
        raise MeasurementError(message)
    own, other = [math.log(_p50_ms(run)) for run, _ in pairs], [math.log(_p50_ms(run)) for _, run in pairs]
    counted = [run for pair in pairs for run in pair]
    return Comparison(
        a=_side(a, [run for run, _ in pairs]),
        b=_side(b, [run for _, run in pairs]),
        judgement=ab_verdict.judge(_log_ratios(done), matters_ratio),
        tests=Tests(
            welch_p=run_statistics.welch_p(own, other),
            mann_whitney_p=run_statistics.mann_whitney_p(own, other),
            hedges_g=run_statistics.hedges_g(own, other),
        ),
        left_out=left_out,
        doubts=_doubts(counted),
        runs=tuple(run.outcome for run in done if isinstance(run.outcome, records.RunRecord)),
    )


def _why(run: _Run) -> str:
    return str(run.outcome) if isinstance(run.outcome, EdgemeterError) else "; ".join(run.outcome.verdict.reasons) or "it has no p50"


def _doubts(counted: Sequence[records.RunRecord]) -> tuple[str, ...]:
    """Return how many of the runs each rule found suspect."""
    suspect = [run for run in counted if run.verdict.state == "suspect"]
    rules = [reason.partition(":")[0] for run in suspect for reason in run.verdict.reasons]
    return tuple(f"{rule}: {rules.count(rule)} of {len(counted)} runs" for rule in dict.fromkeys(rules))


def _side(case: Case, runs: Sequence[records.RunRecord]) -> Side:
    p50_ms = tuple(_p50_ms(run) for run in runs)
    interval = run_statistics.median_interval(p50_ms)
    return Side(
        label=case.label,
        p50_ms=p50_ms,
        median_ms=median(p50_ms),
        low_ms=interval.low if interval else None,
        high_ms=interval.high if interval else None,
    )
