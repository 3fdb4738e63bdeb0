"""A profile for people and tools: which operator took how much of the time, as a table and as a Chrome trace.

Operators are ranked by the median over the inferences: one inference that the machine held up changes no order.

Chrome trace: chrome://tracing and ui.perfetto.dev open it. Source: Trace Event Format, JSON Object Format: complete events (`X`) and
metadata (`M`), times in us.
"""

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import plain_digits
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.base.terminal import print_lines, print_text
from edgemeter.agent.profile.profiler import ProfiledModel, ProfileEvent, RecordedProfile

US_PER_MS = 1000.0
# Below this much of the time in operators, what is slow may lie outside the table.
LOW_COVERAGE_RATIO = 0.8
# A mean is far from its median above this much of the median, and of the median inference.
_FAR_RATIO, _FAR_OF_INFERENCE_RATIO = 0.25, 0.02
_PROCESS = 1
_INFERENCES = 0
Key = TypeVar("Key", bound=Hashable)


class ProfiledOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator over all recorded inferences, or all operators of one type; without the time of others that it called.

    `p50_ms` and `mean_ms` are of its time in an inference, all its calls together; `share_ratio` is that of the medians.
    """

    name: str
    type: str
    calls: int
    total_ms: float
    p50_ms: float
    mean_ms: float
    share_ratio: float


class Profile(ProfiledModel, frozen=True, kw_only=True):
    """A profile. `coverage_ratio`: the share of the median inference's wall time that is spent in operators.

    `slowdown_ratio`: how much slower the median inference is with the profiler than without, taken in turns in the same process.
    """

    queries: int
    plain_p50_ms: float
    profiled_p50_ms: float
    slowdown_ratio: float
    coverage_ratio: float
    operators: tuple[ProfiledOperator, ...]
    types: tuple[ProfiledOperator, ...]


def summarise(recorded: RecordedProfile) -> Profile:
    """Return which operators took the time, slowest first."""
    plain_ms, profiled_ms = (statistics.median(times) / NS_PER_MS for times in (recorded.plain_ns, recorded.profiled_ns))
    covered_us = statistics.median(inference_times(recorded.events, lambda _: "")[""])
    coverage_ratio = covered_us / US_PER_MS / profiled_ms
    return Profile(
        **{name: getattr(recorded, name) for name in ProfiledModel.__struct_fields__},
        queries=len(recorded.profiled_ns),
        plain_p50_ms=plain_ms,
        profiled_p50_ms=profiled_ms,
        slowdown_ratio=profiled_ms / plain_ms - 1,
        coverage_ratio=coverage_ratio,
        operators=_grouped(recorded.events, coverage_ratio, lambda event: (event.name, event.type)),
        types=_grouped(recorded.events, coverage_ratio, lambda event: (event.type, event.type)),
    )


def inference_times(events: Sequence[ProfileEvent], key: Callable[[ProfileEvent], Key]) -> Mapping[Key, list[float]]:
    """Return the time of the operators of each key in each inference, us, without what ran inside them; 0 where none ran."""
    starts_us = sorted(event.start_us for event in events if event.category == "inference")
    times: dict[Key, list[float]] = defaultdict(lambda: [0.0] * max(1, len(starts_us)))
    for event, us in self_times([event for event in events if event.category == "operator"]):
        times[key(event)][max(0, bisect_right(starts_us, event.start_us) - 1)] += us
    return times


def self_times(operators: Sequence[ProfileEvent]) -> list[tuple[ProfileEvent, float]]:
    """Return each operator with the time that it took itself, us: without the operators that ran inside it, on its thread."""
    self_us = {index: event.duration_us for index, event in enumerate(operators)}
    order = sorted(self_us, key=lambda index: (operators[index].thread, operators[index].start_us, -operators[index].duration_us))
    open_places: list[int] = []
    for index in order:
        while open_places and not _is_inside(operators[index], operators[open_places[-1]]):
            open_places.pop()
        if open_places:
            self_us[open_places[-1]] -= operators[index].duration_us
        open_places.append(index)
    return [(operators[index], max(0.0, us)) for index, us in self_us.items()]


def _is_inside(event: ProfileEvent, other: ProfileEvent) -> bool:
    """Return whether one operator ran within another; unknown, so False, where the start is made up."""
    if event.thread != other.thread or event.laid_out or other.laid_out:
        return False
    return other.start_us <= event.start_us and event.start_us + event.duration_us <= other.start_us + other.duration_us


def _grouped(
    events: Sequence[ProfileEvent], coverage_ratio: float, key: Callable[[ProfileEvent], tuple[str, str]]
) -> tuple[ProfiledOperator, ...]:
    calls = Counter(key(event) for event in events if event.category == "operator")
    times = inference_times(events, key)
    medians_us = {each: statistics.median(us) for each, us in times.items()}
    sum_us = sum(medians_us.values())
    operators = [
        ProfiledOperator(
            name=each[0],
            type=each[1],
            calls=calls[each],
            total_ms=sum(us) / US_PER_MS,
            p50_ms=medians_us[each] / US_PER_MS,
            mean_ms=statistics.fmean(us) / US_PER_MS,
            share_ratio=coverage_ratio * medians_us[each] / sum_us if sum_us else 0.0,
        )
        for each, us in times.items()
    ]
    return tuple(sorted(operators, key=lambda operator: (-operator.p50_ms, -operator.total_ms)))


def show_profile(profile: Profile, *, by_type: bool, top: int, console: Console | None = None) -> None:
    """Print the `top` slowest operators, or types of operators."""
    console = console or Console()
    rows = profile.types if by_type else profile.operators
    # Where operators have no names of their own, show their types.
    by_type = by_type or all(row.name == row.type for row in rows)
    threads = f"{profile.threads} thread{'s' * (profile.threads > 1)}"
    about = f"{profile.model} on {profile.package} {profile.version} ({profile.backend}, {threads})"
    print_text(console, f"{about}: {profile.queries} inferences of {profile.data} under the profiler")
    console.print(_table(rows[:top], profile, left_out=rows[top:], by_type=by_type))
    print_lines(console, profile_notes(profile, rows))


def profile_notes(profile: Profile, rows: Sequence[ProfiledOperator]) -> list[str]:
    """Return the limits of the table of these rows."""
    coverage = f"coverage: {profile.coverage_ratio:.1%} of the inference time is spent in operators"
    if profile.coverage_ratio < LOW_COVERAGE_RATIO:
        coverage += "; the rest is overhead of the runtime and rounding of the profiler, which this table does not show"
    is_faster = profile.slowdown_ratio < 0
    change = "the overhead of the profiler is less than the noise" if is_faster else f"{profile.slowdown_ratio:.0%} slower"
    slower = (
        f"these are not latencies: with the profiler the median inference took {plain_digits(profile.profiled_p50_ms)} ms, "
        f"without {plain_digits(profile.plain_p50_ms)} ms ({change}); `edgemeter run` measures latency"
    )
    return [coverage, slower, *_disturbed(rows, profile.profiled_p50_ms)]


def _disturbed(rows: Sequence[ProfiledOperator], inference_ms: float) -> list[str]:
    """Return a line on the operators whose mean is far from their median, none if there are none."""
    least_ms = _FAR_OF_INFERENCE_RATIO * inference_ms
    far = [row for row in rows if abs(row.mean_ms - row.p50_ms) > max(_FAR_RATIO * row.p50_ms, least_ms)]
    if not far:
        return []
    sum_ms = sum(row.mean_ms for row in rows)
    far.sort(key=lambda row: -abs(row.mean_ms - row.p50_ms))
    shares = [f"{row.name} takes {row.share_ratio:.1%} by its median, {row.mean_ms / sum_ms:.1%} by its mean" for row in far[:3]]
    further = f" (and {len(far) - 3} more)" if len(far) > 3 else ""
    why = "other work held some inferences up, or the operator's work depends on its input; the table goes by medians"
    return [f"{'; '.join(shares)}{further}: {why}"]


def _table(rows: tuple[ProfiledOperator, ...], profile: Profile, left_out: tuple[ProfiledOperator, ...], *, by_type: bool) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("operator", overflow="fold")
    if not by_type:
        table.add_column("type", overflow="fold")
    for heading in ("calls", "p50 ms", "share", "mean ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        kind = [] if by_type else [row.type]
        table.add_row(row.name, *kind, str(row.calls), plain_digits(row.p50_ms, 3), f"{row.share_ratio:.1%}", plain_digits(row.mean_ms, 3))
    blank = [] if by_type else [""]
    if left_out:
        calls, p50_ms = sum(row.calls for row in left_out), sum(row.p50_ms for row in left_out)
        share = f"{sum(row.share_ratio for row in left_out):.1%}"
        table.add_row(f"({len(left_out)} more)", *blank, str(calls), plain_digits(p50_ms, 3), share, "", style="dim")
    table.add_row("(in no operator)", *blank, "", "", f"{max(0.0, 1 - profile.coverage_ratio):.1%}", "", style="dim")
    return table


def write_trace(path: Path, recorded: RecordedProfile) -> None:
    """Write the trace to a file; raises ConfigError if it cannot be written."""
    try:
        path.write_bytes(msgspec.json.encode(trace_document(recorded)))
    except OSError as error:
        raise ConfigError(f"cannot write the trace {str(path)!r}: {error.strerror}: use another file (--trace)") from error


def trace_document(recorded: RecordedProfile) -> dict[str, Any]:
    """Return the trace: inferences on one line, operators on a line for each thread, the first event at 0."""
    about = {
        "model": recorded.model,
        "runtime": f"{recorded.package} {recorded.version}",
        "backend": recorded.backend,
        "note": "times under a profiler, which slows the model: not latencies",
    }
    threads = sorted({event.thread for event in recorded.events if event.category == "operator"})
    lines = {thread: index for index, thread in enumerate(threads, _INFERENCES + 1)}
    titles = {_INFERENCES: "inferences"} | {line: f"operators, thread {line}" for line in lines.values()}
    process = f"{recorded.model} on {recorded.package} {recorded.version}"
    names = [("process_name", 0, process), *(("thread_name", line, title) for line, title in titles.items())]
    metadata = [{"name": name, "ph": "M", "pid": _PROCESS, "tid": line, "args": {"name": text}} for name, line, text in names]
    return {"traceEvents": [*metadata, *_events(recorded, lines)], "displayTimeUnit": "ms", "otherData": about}


def _events(recorded: RecordedProfile, lines: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    first_us = min((event.start_us for event in recorded.events), default=0.0)
    for event in sorted(recorded.events, key=lambda event: (event.start_us, -event.duration_us)):
        yield {
            "name": event.name,
            "cat": event.category,
            "ph": "X",
            "ts": event.start_us - first_us,
            "dur": event.duration_us,
            "pid": _PROCESS,
            "tid": _INFERENCES if event.category == "inference" else lines[event.thread],
            "args": {"type": event.type} | ({"start": "made up: the profiler gives durations only"} if event.laid_out else {}),
        }
