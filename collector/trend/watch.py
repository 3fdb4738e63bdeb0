"""The watch: the trends of all selected series, from the last result where no run is new.

As many series at once as memory holds are computed, here or in other processes.
"""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.series import NO_SERIES, UNKNOWN_BOARD, SeriesKey
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend.change_points import Break, at_breaks
from edgemeter.collector.trend.days import Days, days_of_series, of_type
from edgemeter.collector.trend.finding import Step
from edgemeter.collector.trend.history import History, without_garbage_collection
from edgemeter.collector.trend.metrics import METRICS, TrendMetric, on_scale
from edgemeter.collector.trend.run_columns import RunColumns, names_of
from edgemeter.collector.trend.scan import AFTER, BEFORE, RECENT, UNCONFIRMED_SCORE
from edgemeter.collector.trend.series_trend import SeriesTrend, trends
from edgemeter.collector.trend.watch_file import Annotation, cuts

# Raised whenever the same records would give different findings, or they are kept in another form.
VERSION = 14
# How many names an error lists.
SHOWN = 8
MOST_SERIES = 500
# Without the board that moved most, the others show at least this share of the type's step.
SHARED_RATIO = 0.5
# Each takes some 80 MB.
MOST_PROCESSES = 4
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
Progress = Callable[[str, int, int], None]
_Found = list[SeriesTrend]
_decode = msgspec.msgpack.Decoder(_Found).decode


class SeriesSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which series: a field that is None matches everything."""

    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    precision: str | None = None
    runtime: str | None = None

    def takes(self, key: SeriesKey) -> bool:
        """Return whether the series is selected."""
        return all(getattr(self, name) in (None, getattr(key, name)) for name in SELECTORS)


SELECTORS = SeriesSelection.__struct_fields__
EVERY_SERIES = SeriesSelection()


def keys_of(history: History, selection: SeriesSelection) -> list[SeriesKey]:
    """Return the selected series; raises ConfigError if there are series, and none is selected."""
    series = history.series()
    keys = [key for key in series if selection.takes(key)]
    if series and not keys:
        selected = {name: value for name in SELECTORS if (value := getattr(selection, name)) is not None}
        unmatched = next((name for name, value in selected.items() if all(getattr(key, name) != value for key in series)), None)
        if unmatched is None:
            conditions = ", ".join(f"{name} {value!r}" for name, value in selected.items())
            raise ConfigError(f"no run has {conditions}: give fewer conditions")
        values = sorted({str(getattr(key, unmatched)) for key in series})
        remainder = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        raise ConfigError(f"no run has {unmatched} {selected[unmatched]!r}; known are {', '.join(values[:SHOWN])}{remainder}")
    return keys


def trends_of(
    history: History,
    annotations: Sequence[Annotation],
    metrics: Sequence[str],
    selection: SeriesSelection = EVERY_SERIES,
    *,
    by_type: bool = False,
    workers: int = 1,
    progress: Progress = lambda *_: None,
) -> list[SeriesTrend]:
    """Return the trends of the metrics in every series, or board type of two devices or more; `progress` gets how many are done, of all."""
    keys = filter(selection.takes, history.series())
    # Boards of unknown type have no trend in common.
    selected = grouped((key.of_type() if by_type else key, key) for key in keys if not by_type or key.board != UNKNOWN_BOARD)
    if by_type:
        selected = {key: members for key, members in selected.items() if len(members) > 1}
    with without_garbage_collection():
        by_metric = {name: _kept(history, annotations, name, list(selected)) for name in metrics}
        stale = {key: members for key, members in selected.items() if any(key not in by_metric[name] for name in metrics)}
        _compute(history, annotations, stale, by_metric, workers, progress)
    return [trend for name in metrics for key in selected for trend in by_metric[name][key]]


def trends_of_one(history: History, annotations: Sequence[Annotation], name: str, key: SeriesKey) -> list[SeriesTrend]:
    """Return the trends of a metric in a series; none where no run has it."""
    by_metric = {name: _kept(history, annotations, name, [key])}
    _compute(history, annotations, {} if key in by_metric[name] else {key: [key]}, by_metric)
    return by_metric[name][key]


def points(history: History, key: SeriesKey, name: str) -> Days:
    """Return the points of a metric in a series, or in a board type where `key` names no device."""
    members = [key] if key.device else [series for series in history.series() if series.of_type() == key]
    days = days_of_series(METRICS[name], history.columns(members, names_of([METRICS[name]])))
    return days[0] if key.device else of_type(days)


def _kept(history: History, annotations: Sequence[Annotation], name: str, keys: Sequence[SeriesKey]) -> dict[SeriesKey, _Found]:
    results = history.kept(f"{VERSION} {name}", keys)
    return {key: _of_key(key, body) for key, declared, body in results if declared == _declared(cuts(annotations, key, name))}


def _declared(days: Mapping[int, str]) -> str:
    return "; ".join(f"{day} {text}" for day, text in sorted(days.items()))


def _compute(
    history: History,
    annotations: Sequence[Annotation],
    selected: Mapping[SeriesKey, Sequence[SeriesKey]],
    by_metric: Mapping[str, dict[SeriesKey, _Found]],
    workers: int = 1,
    progress: Progress = lambda *_: None,
) -> None:
    """Compute the trends of the selected series or board types into `by_metric`, by metric, and keep them."""
    completed, names = 0, names_of(METRICS[name] for name in by_metric)
    portions = (
        Portion(
            read=history.columns([member for key in part for member in selected[key]], names),
            keys=part,
            members=[len(selected[key]) for key in part],
            cuts={name: [cuts(annotations, key, name) for key in part] for name in by_metric},
        )
        for part in parts_of({key: len(members) for key, members in selected.items()})
    )
    for portion, computed in in_processes(trends_in, portions, workers):
        for name, bodies in computed.items():
            by_metric[name].update(zip(portion.keys, map(_of_key, portion.keys, bodies), strict=True))
            results = zip(portion.keys, map(_declared, portion.cuts[name]), bodies, strict=True)
            history.keep(f"{VERSION} {name}", results)
        completed += len(portion.keys)
        progress("looking for changes in series", completed, len(selected))


def _of_key(key: SeriesKey, body: bytes) -> _Found:
    """Return a result that was kept without its key, which who asks knows, and which is larger than the rest."""
    results = _decode(body)
    for result in results:
        msgspec.structs.force_setattr(result, "key", key)
    return results


@dataclass(frozen=True, slots=True)
class Portion:
    """Series, or board types of so many `members`, and the runs of all these; `cuts` are by metric the declared new levels of each."""

    read: RunColumns
    keys: Sequence[SeriesKey]
    members: Sequence[int]
    cuts: Mapping[str, Sequence[Mapping[int, str]]]


def parts_of(sizes: Mapping[SeriesKey, int]) -> Iterator[list[SeriesKey]]:
    """Yield the keys in parts whose runs fit into memory at once."""
    part: list[SeriesKey] = []
    size = 0
    for key, members in sizes.items():
        if part and size + members > MOST_SERIES:
            yield part
            part, size = [], 0
        part.append(key)
        size += members
    if part:
        yield part


def trends_in(portion: Portion) -> dict[str, list[bytes]]:
    """Return by metric the trends of each series, none or one, in MessagePack and without the key."""
    by_metric = {}
    for name, declared in portion.cuts.items():
        all_days = iter(days_of_series(METRICS[name], portion.read))
        members = [list(islice(all_days, size)) for size in portion.members]
        days = [
            days_of_members[0] if key.device else of_type(days_of_members)
            for key, days_of_members in zip(portion.keys, members, strict=True)
        ]
        by_key = {trend.key: msgspec.structs.replace(trend, key=NO_SERIES) for trend in trends(name, portion.keys, days, declared)}
        for key, boards in zip(portion.keys, members, strict=True):
            if key in by_key and not key.device:
                by_key[key] = _of_several_boards(METRICS[name], by_key[key], boards)
        by_metric[name] = [msgspec.msgpack.encode([by_key[key]] if key in by_key else []) for key in portion.keys]
    return by_metric


def in_processes(function: Callable[[_Task], _Result], tasks: Iterable[_Task], workers: int) -> Iterator[tuple[_Task, _Result]]:
    """Yield each task with its result, in order, from at most four processes; raises UnavailableError if one of these was killed."""
    workers, ready = min(workers, MOST_PROCESSES), iter(tasks)
    first = list(islice(ready, 2))
    ready = chain(first, ready)
    if workers < 2 or len(first) < 2:
        yield from ((task, function(task)) for task in ready)
        return
    # Not before they are needed: most answers are kept.
    from concurrent.futures import Future, ProcessPoolExecutor  # noqa: PLC0415
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415
    from multiprocessing import get_context  # noqa: PLC0415

    waiting: deque[tuple[_Task, Future[_Result]]] = deque()
    try:
        # An interrupt is for this process, which then ends the others.
        with ProcessPoolExecutor(workers, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
            for task in ready:
                waiting.append((task, pool.submit(function, task)))
                if len(waiting) > workers:
                    oldest, result = waiting.popleft()
                    yield oldest, result.result()
            yield from ((task, result.result()) for task, result in waiting)
    except BrokenProcessPool as error:
        remedy = "memory may have run out: run the command again, on one core with `taskset -c 0`; what was found is kept"
        raise UnavailableError(f"a process that looked for changes was killed; {remedy}") from error


def _of_several_boards(metric: TrendMetric, trend: SeriesTrend, boards: Sequence[Days]) -> SeriesTrend:
    """Return the trend of a board type without the steps that one of its `boards` explains: its mean also moves with one board alone."""
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
    _, size, error = at_breaks(metric, [(remaining, begin, Break(split, split, split, 0.0), end)])[0]
    return bool(
        sign * size >= max(SHARED_RATIO * abs(on_scale(metric, step.after) - on_scale(metric, step.before)), UNCONFIRMED_SCORE * error)
    )


def _moved(days: Days, day: int, span: tuple[int, int]) -> float:
    before = days.x[(days.day >= max(span[0], day - RECENT)) & (days.day < day)]
    after = days.x[(days.day >= day) & (days.day < min(span[1], day + RECENT))]
    return float(np.median(after) - np.median(before)) if len(before) and len(after) else 0.0
