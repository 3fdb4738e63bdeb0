"""A profile as a table: the share of the time in each operator.

Operators are ranked by the median over the inferences, so that one delayed inference does not
change the order.
"""

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgemeter.agent.base.console import Console, Table
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.base.number_text import plain_digits
from edgemeter.agent.base.terminal import print_lines, print_text
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.loading import LoadedModel
from edgemeter.agent.profile.profiler import ProfileEvent

US_PER_MS = 1000.0


class ProfiledOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator over all recorded inferences, or all operators of one type.

    Times are self time, without operators that it called. `p50_ms` is the median of its time per
    inference, all calls together; `share_ratio` is the medians' share.
    """

    name: str
    type: str
    calls: int
    p50_ms: float
    share_ratio: float


class Profile(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A profile.

    `coverage_ratio` is the share of the median inference's wall time spent in operators;
    `slowdown_ratio` is how much slower the median inference is with the profiler than without, in
    turns in the same process.
    """

    model: str
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
    operators: tuple[ProfiledOperator, ...]


def summarise(
    case: Case,
    model: LoadedModel,
    plain_ns: Sequence[int],
    profiled_ns: Sequence[int],
    events: Sequence[ProfileEvent],
    *,
    by_type: bool,
) -> Profile:
    """Return the profile of the operators, or types of operators, slowest first."""
    plain_ms, profiled_ms = (
        statistics.median(times) / NS_PER_MS for times in (plain_ns, profiled_ns)
    )
    operators, covered_ms = ranked(events, profiled_ms, by_type=by_type)
    return Profile(
        model=Path(case.model).name,
        package=model.loaded.package,
        version=model.loaded.version,
        backend=model.loaded.backend,
        threads=case.threads,
        data=model.data.name if model.data else "random inputs",
        queries=len(profiled_ns),
        plain_p50_ms=plain_ms,
        profiled_p50_ms=profiled_ms,
        slowdown_ratio=profiled_ms / plain_ms - 1,
        coverage_ratio=covered_ms / profiled_ms,
        operators=operators,
    )


def ranked(
    events: Sequence[ProfileEvent], inference_ms: float, *, by_type: bool
) -> tuple[tuple[ProfiledOperator, ...], float]:
    """Return the operators, slowest first, and their total time in the median inference, ms."""
    starts_us = sorted(event.start_us for event in events if event.is_inference)
    # The time of each operator per inference, 0 where it did not run, and of all operators.
    times_ms: dict[tuple[str, str], list[float]] = defaultdict(
        lambda: [0.0] * max(1, len(starts_us))
    )
    all_ms = [0.0] * max(1, len(starts_us))
    calls: Counter[tuple[str, str]] = Counter()
    for event, self_us in _self_times([event for event in events if not event.is_inference]):
        key, turn = (
            (event.type if by_type else event.name, event.type),
            max(0, bisect_right(starts_us, event.start_us) - 1),
        )
        calls[key] += 1
        times_ms[key][turn] += self_us / US_PER_MS
        all_ms[turn] += self_us / US_PER_MS
    medians_ms = {key: statistics.median(times) for key, times in times_ms.items()}
    # The shares add up to the coverage.
    scale = statistics.median(all_ms) / inference_ms / (sum(medians_ms.values()) or 1.0)
    operators = [
        ProfiledOperator(
            name=key[0], type=key[1], calls=calls[key], p50_ms=p50_ms, share_ratio=scale * p50_ms
        )
        for key, p50_ms in sorted(medians_ms.items(), key=lambda item: -item[1])
    ]
    return tuple(operators), statistics.median(all_ms)


def _self_times(operators: Sequence[ProfileEvent]) -> list[tuple[ProfileEvent, float]]:
    """Return each operator with its self time, in us.

    It excludes operators nested in it (a loop's body) on its thread.
    """
    threads: dict[int | None, list[ProfileEvent]] = defaultdict(list)
    for event in sorted(operators, key=lambda event: (event.start_us, -event.duration_us)):
        threads[event.thread].append(event)
    times = [(event, event.duration_us) for event in threads.pop(None, [])]
    for events in threads.values():
        self_us = [event.duration_us for event in events]
        outer: list[int] = []
        for index, event in enumerate(events):
            while (
                outer
                and event.start_us + event.duration_us
                > events[outer[-1]].start_us + events[outer[-1]].duration_us
            ):
                outer.pop()
            if outer:
                self_us[outer[-1]] -= event.duration_us
            outer.append(index)
        times += zip(events, self_us, strict=True)
    return times


def show_profile(profile: Profile, top: int, console: Console) -> None:
    """Print the `top` slowest operators, or types of operators, and the limits of the table."""
    about = (
        f"{profile.model} on {profile.package} {profile.version} ({profile.backend}, threads: "
        f"{profile.threads})"
    )
    print_text(
        console, f"{about}: {profile.queries} inferences of {profile.data} under the profiler"
    )
    console.print(_table(profile, top))
    coverage = f"coverage: {profile.coverage_ratio:.1%} of the inference time is spent in operators"
    slower = (
        "these are not latencies: with the profiler the median inference took "
        f"{plain_digits(profile.profiled_p50_ms)} ms, "
        f"without {plain_digits(profile.plain_p50_ms)} ms; `edgemeter run` measures latency"
    )
    print_lines(
        console,
        [f"{coverage}; the rest is overhead of the runtime and rounding of the profiler", slower],
    )


def _table(profile: Profile, top: int) -> Table:
    table = Table()
    for heading in ("operator", "type"):
        table.add_column(heading)
    for heading in ("calls", "p50 ms", "share"):
        table.add_column(heading, "right", is_whole=True)
    for row in profile.operators[:top]:
        table.add_row(
            row.name,
            row.type,
            str(row.calls),
            plain_digits(row.p50_ms, 3),
            f"{row.share_ratio:.1%}",
        )
    if left_out := profile.operators[top:]:
        table.add_row(
            f"({len(left_out)} more)",
            "",
            "",
            "",
            f"{sum(row.share_ratio for row in left_out):.1%}",
            style="dim",
        )
    table.add_row(
        "(in no operator)", "", "", "", f"{max(0.0, 1 - profile.coverage_ratio):.1%}", style="dim"
    )
    return table
