"""Models beside each other: how much slower each is than alone, from the records of a session.

The slow-down is that of the mean latency. Of queries one after the other it is the inverse of the share of its speed that a model keeps,
however a core is shared: the median of calls that are shorter than the kernel's turns does not show that every other turn is another's.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Neighbour


class TogetherRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model beside `neighbours` and alone: medians over its runs, and the slow-down over pairs of runs of one round."""

    model: Neighbour
    neighbours: tuple[Neighbour, ...]
    alone_ms: float | None
    mean_ms: float
    overlap_ms: float
    slow_down_ratio: float | None
    slow_down_low_ratio: float | None
    slow_down_high_ratio: float | None


def slow_down(log_ratios: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the slow-down with its 95% bounds from ln(together / alone) of pairs of runs; None where these are too few."""
    if not log_ratios:
        return None, None, None
    from edgemeter.agent.base import run_statistics  # noqa: PLC0415 - it brings numpy, and most runs are alone

    interval = run_statistics.pair_interval(log_ratios)
    ratio = math.exp(run_statistics.centre(log_ratios))
    return (ratio, math.exp(interval.low), math.exp(interval.high)) if interval else (ratio, None, None)


def rows_of(runs: Iterable[RunRecord]) -> list[TogetherRow]:
    """Return a row for each model beside each company, small ones first; none where all ran alone. Invalid runs do not count."""
    by_case: dict[CaseKey, dict[int, RunRecord]] = {}
    for run in runs:
        if run.verdict.state != "invalid":
            by_case.setdefault(key_of(run), {})[run.repeat] = run
    alone = {key: of_case for key, of_case in by_case.items() if not key.together}
    rows = [_row(of_case, alone.get(msgspec.structs.replace(key, together=""), {})) for key, of_case in by_case.items() if key.together]
    return sorted(rows, key=lambda row: len(row.neighbours))


def _row(accompanied: dict[int, RunRecord], alone: dict[int, RunRecord]) -> TogetherRow:
    first = next(iter(accompanied.values()))
    pairs_ms = [(alone[repeat].latency.mean_ms, run.latency.mean_ms) for repeat, run in accompanied.items() if repeat in alone]
    ratio, low, high = slow_down([math.log(accompanied_ms / alone_ms) for alone_ms, accompanied_ms in pairs_ms])
    return TogetherRow(
        model=Neighbour.of(first.model, first.runtime, first.cpus),
        neighbours=first.together.neighbours if first.together else (),
        alone_ms=median(run.latency.mean_ms for run in alone.values()) if alone else None,
        mean_ms=median(run.latency.mean_ms for run in accompanied.values()),
        overlap_ms=median(run.together.overlap_ms for run in accompanied.values() if run.together),
        slow_down_ratio=ratio,
        slow_down_low_ratio=low,
        slow_down_high_ratio=high,
    )
