"""From a profiler's events to which operator took how much of the time."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from edgemeter.agent.profile.job import Recorded
from edgemeter.agent.profile.profiler import Event

US_PER_MS = 1000.0
NS_PER_MS = 1e6


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator over all recorded inferences, or all operators of one type; without the time of others that it called.

    `share_ratio` is its share of the wall time of the inferences.
    """

    name: str
    type: str
    calls: int
    total_ms: float
    mean_ms: float
    share_ratio: float


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile says. `coverage_ratio`: how much of the inferences' wall time lies in operators.

    `slowdown_ratio`: how much slower the median inference is with the profiler than without, taken in turns in the same process.
    """

    model: str
    runtime: str
    package: str
    version: str
    backend: str
    threads: int
    data: str
    queries: int
    plain_p50_ms: float
    profiled_p50_ms: float
    slowdown_ratio: float
    coverage_ratio: float
    operators: tuple[Operator, ...]
    types: tuple[Operator, ...]


def summarise(runtime: str, recorded: Recorded) -> Profile:
    """Return which operators took the time, slowest first."""
    wall_ms = sum(recorded.profiled_ns) / NS_PER_MS
    own = self_times([event for event in recorded.events if event.category == "operator"])
    plain_ms, profiled_ms = (statistics.median(times) / NS_PER_MS for times in (recorded.plain_ns, recorded.profiled_ns))
    return Profile(
        model=recorded.model,
        runtime=runtime,
        package=recorded.package,
        version=recorded.version,
        backend=recorded.backend,
        threads=recorded.threads,
        data=recorded.data,
        queries=len(recorded.profiled_ns),
        plain_p50_ms=plain_ms,
        profiled_p50_ms=profiled_ms,
        slowdown_ratio=profiled_ms / plain_ms - 1,
        coverage_ratio=sum(us for _, us in own) / US_PER_MS / wall_ms,
        operators=_grouped(own, wall_ms, lambda event: (event.name, event.type)),
        types=_grouped(own, wall_ms, lambda event: (event.type, event.type)),
    )


def self_times(operators: Sequence[Event]) -> list[tuple[Event, float]]:
    """Return each operator with the time that it took itself, us: without the operators that ran inside it, on its thread."""
    own = {place: event.duration_us for place, event in enumerate(operators)}
    order = sorted(own, key=lambda place: (operators[place].thread, operators[place].start_us, -operators[place].duration_us))
    open_places: list[int] = []
    for place in order:
        while open_places and not _is_inside(operators[place], operators[open_places[-1]]):
            open_places.pop()
        if open_places:
            own[open_places[-1]] -= operators[place].duration_us
        open_places.append(place)
    return [(operators[place], max(0.0, us)) for place, us in own.items()]


def _is_inside(one: Event, other: Event) -> bool:
    """Return whether one operator ran within another; what was laid out by us says nothing of that."""
    if one.thread != other.thread or one.laid_out or other.laid_out:
        return False
    return other.start_us <= one.start_us and one.start_us + one.duration_us <= other.start_us + other.duration_us


def _grouped(own: Iterable[tuple[Event, float]], wall_ms: float, key: Callable[[Event], tuple[str, str]]) -> tuple[Operator, ...]:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event, us in own:
        times[key(event)].append(us / US_PER_MS)
    found = [
        Operator(name=name, type=kind, calls=len(each), total_ms=sum(each), mean_ms=statistics.fmean(each), share_ratio=sum(each) / wall_ms)
        for (name, kind), each in times.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.total_ms))
