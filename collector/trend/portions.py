"""Portions: as many series at once as memory holds, their trends computed here or in other processes."""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.collector.runs.cases import NO_SERIES, SeriesKey
from edgemeter.collector.trend.days import days_of_series, of_type
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.run_columns import RunColumns
from edgemeter.collector.trend.series_trend import trends

MOST_SERIES = 500
# Each takes some 80 MB.
MOST_PROCESSES = 4

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


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
    for key, own in sizes.items():
        if part and size + own > MOST_SERIES:
            yield part
            part, size = [], 0
        part.append(key)
        size += own
    if part:
        yield part


def trends_in(portion: Portion) -> dict[str, list[bytes]]:
    """Return by metric the trends of each series, none or one, in MessagePack and without the key."""
    found = {}
    for name, cuts in portion.cuts.items():
        every = iter(days_of_series(METRICS[name], portion.read))
        members = [list(islice(every, size)) for size in portion.members]
        days = [own[0] if key.device else of_type(own) for key, own in zip(portion.keys, members, strict=True)]
        by_key = {one.key: msgspec.structs.replace(one, key=NO_SERIES) for one in trends(name, portion.keys, days, cuts)}
        found[name] = [msgspec.msgpack.encode([by_key[key]] if key in by_key else []) for key in portion.keys]
    return found


def in_processes(function: Callable[[_Task], _Result], tasks: Iterable[_Task], workers: int) -> Iterator[tuple[_Task, _Result]]:
    """Yield each task with its result, in order; two or more tasks run in `workers` processes (at most four), with one more task queued.

    Raises:
        UnavailableError: one of the processes was killed.
    """
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
                    done, result = waiting.popleft()
                    yield done, result.result()
            yield from ((task, result.result()) for task, result in waiting)
    except BrokenProcessPool as error:
        remedy = "memory may have run out: run the command again, on one core with `taskset -c 0`; what was found is kept"
        raise UnavailableError(f"a process that looked for changes was killed; {remedy}") from error
