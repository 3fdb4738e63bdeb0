"""The watch: the trends of all selected series, reusing results of series without new runs.

It reads as many at once as fit into memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.progress import Tell, no_progress
from edgemeter.agent.contract.series import UNKNOWN_BOARD, SeriesKey
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.store import CaseVersion
from edgemeter.collector.trend.change_points import Break, BreakSpan, at_breaks
from edgemeter.collector.trend.days import Days, days_of_series, of_type
from edgemeter.collector.trend.finding import Step
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS, on_scale
from edgemeter.collector.trend.run_columns import names_of
from edgemeter.collector.trend.series_trend import SeriesTrend, trends
from edgemeter.collector.trend.shares import in_processes
from edgemeter.collector.trend.thresholds import (
    AFTER,
    BEFORE,
    RECENT,
    SHARED_RATIO,
    UNCONFIRMED_SCORE,
)
from edgemeter.collector.trend.watch_file import Annotation, cuts

# The most names that an error lists.
SHOWN = 8
# The number of runs read at once: more do not fit into memory.
MOST_RUNS = 1_000_000
# With fewer runs another process is not worth its start.
RUNS_A_PROCESS = 250_000


class TrendResult(NamedTuple):
    """A trend, with the versions of its members and the declared new levels for which it holds.

    It is None if no run has the metric.
    """

    versions: list[CaseVersion]
    levels: Mapping[int, str]
    trend: SeriesTrend | None


# By metric and series (or board type).
TrendResults = dict[tuple[str, SeriesKey], TrendResult]


class SeriesSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The selected series: a field that is None matches everything."""

    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    precision: str | None = None
    runtime: str | None = None

    def takes(self, key: SeriesKey) -> bool:
        return all(getattr(self, name) in (None, getattr(key, name)) for name in SELECTORS)


SELECTORS = SeriesSelection.__struct_fields__


def keys_of(history: History, selection: SeriesSelection) -> list[SeriesKey]:
    """Return the selected series; raises ConfigError if there are series, and none is selected."""
    series = history.series()
    keys = [key for key in series if selection.takes(key)]
    if series and not keys:
        selected = {
            name: value for name in SELECTORS if (value := getattr(selection, name)) is not None
        }
        unmatched = next(
            (
                name
                for name, value in selected.items()
                if all(getattr(key, name) != value for key in series)
            ),
            None,
        )
        if unmatched is None:
            conditions = ", ".join(f"{name} {value!r}" for name, value in selected.items())
            raise ConfigError(f"no run has {conditions}: give fewer conditions")
        values = sorted({str(getattr(key, unmatched)) for key in series})
        remainder = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        raise ConfigError(
            f"no run has {unmatched} {selected[unmatched]!r}; known are "
            f"{', '.join(values[:SHOWN])}{remainder}"
        )
    return keys


def trends_of(
    history: History,
    annotations: Sequence[Annotation],
    metrics: Sequence[str],
    keys: Iterable[SeriesKey] | None = None,
    *,
    by_type: bool = False,
    results: TrendResults | None = None,
    progress: Tell = no_progress,
    processes: int = 1,
) -> list[SeriesTrend]:
    """Return the trends of the metrics in every series, or of some series or board types.

    These are the series of these keys, or each of their board types of two devices or more.

    Valid results of an earlier call in `results` are reused, and the others are added. `progress`
    receives the number of finished series, and of all. Up to `processes` share a large ledger; a
    process whose threads use SQLite must not fork, and asks for one.
    """
    keys = history.series() if keys is None else keys
    # Boards of unknown type have no trend in common.
    selected = grouped(
        (key.of_type() if by_type else key, key)
        for key in keys
        if not by_type or key.board != UNKNOWN_BOARD
    )
    if by_type:
        selected = {key: members for key, members in selected.items() if len(members) > 1}
    results = {} if results is None else results
    _compute(history, annotations, metrics, selected, results, progress, processes)
    return [
        trend
        for name in metrics
        for key in selected
        if (trend := results[name, key].trend) is not None
    ]


def points(history: History, key: SeriesKey, name: str) -> Days:
    """Return the points of a metric in a series, or in a board type where `key` names no device."""
    members = (
        [key] if key.device else [series for series in history.series() if series.of_type() == key]
    )
    days = days_of_series(METRICS[name], history.columns(members, names_of([METRICS[name]])))
    return days[0] if key.device else of_type(days)


def _compute(
    history: History,
    annotations: Sequence[Annotation],
    metrics: Sequence[str],
    selected: Mapping[SeriesKey, Sequence[SeriesKey]],
    results: TrendResults,
    progress: Tell,
    processes: int,
) -> None:
    """Compute the trends of the selected series or board types without valid results.

    The members of each are given.
    """
    versions = {key: list(map(history.version, members)) for key, members in selected.items()}
    levels = [note for note in annotations if note.begins_level]

    def is_true(name: str, key: SeriesKey) -> bool:
        result = results.get((name, key))
        return result is not None and result[:2] == (versions[key], cuts(levels, key, name))

    stale = [key for key in selected if not all(is_true(name, key) for name in metrics)]
    shares = max(
        1,
        min(
            processes,
            sum(history.runs(member) for key in stale for member in selected[key])
            // RUNS_A_PROCESS,
        ),
    )

    def computed(share: int) -> list[Sequence[SeriesTrend | None]]:
        # The progress of the share of this process stands for all.
        return _trends_of_share(
            history,
            levels,
            metrics,
            {key: selected[key] for key in stale[share::shares]},
            no_progress if share else progress,
        )

    for share, of_metrics in enumerate(
        in_processes(computed, shares, list[Sequence[SeriesTrend | None]])
    ):
        for name, of_metric in zip(metrics, of_metrics, strict=True):
            for key, trend in zip(stale[share::shares], of_metric, strict=True):
                results[name, key] = TrendResult(
                    versions[key], cuts(levels, key, name) if levels else {}, trend
                )


def _trends_of_share(
    history: History,
    levels: Sequence[Annotation],
    metrics: Sequence[str],
    selected: Mapping[SeriesKey, Sequence[SeriesKey]],
    progress: Tell,
) -> list[Sequence[SeriesTrend | None]]:
    """Return for each metric the trends of the series or board types.

    The members of each are given; the trends are None if no run has the metric.
    """
    names, completed = names_of(METRICS[name] for name in metrics), 0
    of_metrics: list[list[SeriesTrend | None]] = [[] for _ in metrics]
    runs_before = accumulate(
        (sum(map(history.runs, members)) for members in selected.values()), initial=0
    )
    for part in grouped(
        (runs // MOST_RUNS, key) for runs, key in zip(runs_before, selected, strict=False)
    ).values():
        runs = history.columns([member for key in part for member in selected[key]], names)
        for number, (name, of_metric) in enumerate(zip(metrics, of_metrics, strict=True), 1):
            all_days = iter(days_of_series(METRICS[name], runs))
            boards = [list(islice(all_days, len(selected[key]))) for key in part]
            days = [
                members[0] if key.device else of_type(members)
                for key, members in zip(part, boards, strict=True)
            ]
            computed = iter(
                trends(part, days, [cuts(levels, key, name) if levels else {} for key in part])
            )
            for key, members, points in zip(part, boards, days, strict=True):
                trend = next(computed) if len(points.day) else None
                of_metric.append(
                    _of_several_boards(trend, members)
                    if trend is not None and not key.device
                    else trend
                )
            progress(
                "looking for changes in series",
                completed + len(part) * number // len(metrics),
                len(selected),
            )
        completed += len(part)
    return list(of_metrics)


def _of_several_boards(trend: SeriesTrend, boards: Sequence[Days]) -> SeriesTrend:
    """Return a board type's trend without the steps that one of its `boards` explains.

    A single board moves the mean too.
    """
    days = [trend.first_day, *(step.day for step in trend.steps), trend.last_day + 1]
    return msgspec.structs.replace(
        trend,
        steps=tuple(
            step
            for step, begin_day, end_day in zip(trend.steps, days, days[2:], strict=False)
            if step.state == "declared" or _is_shared(step, (begin_day, end_day), boards)
        ),
    )


def _is_shared(step: Step, span: tuple[int, int], boards: Sequence[Days]) -> bool:
    """Return whether a step between two days remains without the board that moved most."""
    sign, metric = np.sign(step.after - step.before), boards[0].metric
    farthest = int(np.argmax([sign * _moved(days, step.day, span) for days in boards]))
    remaining = of_type([days for index, days in enumerate(boards) if index != farthest])
    begin, split, end = np.searchsorted(remaining.day, (span[0], step.day, span[1])).tolist()
    if split - begin < BEFORE or end - split < AFTER:
        return False
    _, size, error = at_breaks([BreakSpan(remaining, begin, Break(split, split, split, 0.0), end)])[
        0
    ]
    return bool(
        sign * size
        >= max(
            SHARED_RATIO * abs(on_scale(metric, step.after) - on_scale(metric, step.before)),
            UNCONFIRMED_SCORE * error,
        )
    )


def _moved(days: Days, day: int, span: tuple[int, int]) -> float:
    before = days.x[(days.day >= max(span[0], day - RECENT)) & (days.day < day)]
    after = days.x[(days.day >= day) & (days.day < min(span[1], day + RECENT))]
    return float(np.median(after) - np.median(before)) if len(before) and len(after) else 0.0
