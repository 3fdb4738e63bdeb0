"""The steps of a board type: those that more than one of its boards show. The mean of a type also moves with one board alone."""

from collections.abc import Sequence

import msgspec
import numpy as np

from edgemeter.collector.trend.change_points import Break, at_break
from edgemeter.collector.trend.days import Days, of_type
from edgemeter.collector.trend.finding import Step
from edgemeter.collector.trend.metrics import TrendMetric, on_scale
from edgemeter.collector.trend.scan import AFTER, BEFORE, RECENT, SUSPECT_SCORE
from edgemeter.collector.trend.series_trend import SeriesTrend

# Without the board that moved most, the others show at least this share of the type's step.
SHARED_RATIO = 0.5


def of_several_boards(metric: TrendMetric, trend: SeriesTrend, boards: Sequence[Days]) -> SeriesTrend:
    """Return the trend of a board type without the steps that one of its `boards` explains."""
    days = [trend.first_day, *(step.day for step in trend.steps), trend.last_day + 1]
    steps = tuple(
        step
        for step, begin_day, end_day in zip(trend.steps, days, days[2:], strict=False)
        if step.state == "declared" or _is_shared(metric, step, (begin_day, end_day), boards)
    )
    return msgspec.structs.replace(trend, steps=steps)


def _is_shared(metric: TrendMetric, step: Step, span: tuple[int, int], boards: Sequence[Days]) -> bool:
    """Return whether a step between two days is there without the board that moved most, too."""
    sign = np.sign(step.after - step.before)
    moved = [sign * _moved(days, step.day, span) for days in boards]
    farthest = int(np.argmax(moved))
    remaining = of_type([days for index, days in enumerate(boards) if index != farthest])
    begin, split, end = np.searchsorted(remaining.day, (span[0], step.day, span[1])).tolist()
    if split - begin < BEFORE or end - split < AFTER:
        return False
    _, size, error = at_break(metric, remaining, begin, Break(split, split, split, 0.0, 1.0), end)
    return bool(sign * size >= max(SHARED_RATIO * abs(on_scale(metric, step.after) - on_scale(metric, step.before)), SUSPECT_SCORE * error))


def _moved(days: Days, day: int, span: tuple[int, int]) -> float:
    """Return by how much a board moved on a day, by its days near it; no move if it has none on one of the sides."""
    before = days.x[(days.day >= max(span[0], day - RECENT)) & (days.day < day)]
    after = days.x[(days.day >= day) & (days.day < min(span[1], day + RECENT))]
    return float(np.median(after) - np.median(before)) if len(before) and len(after) else 0.0
