"""A profile as text: a table of the slowest operators, and below it how far to believe it."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from edgemeter.agent.profile.summary import Operator, Profile
from edgemeter.agent.table import significant

# Below this much of the time in operators, what is slow may lie outside the table.
LOW_COVERAGE_RATIO = 0.8


def show(profile: Profile, *, by_type: bool, top: int, console: Console | None = None) -> None:
    """Print the `top` slowest operators, or types of operators."""
    console = console or Console()
    rows = profile.types if by_type else profile.operators
    # Where operators have no names of their own, their types say it all.
    by_type = by_type or all(row.name == row.type for row in rows)
    threads = f"{profile.threads} thread{'s' * (profile.threads > 1)}"
    console.print(
        f"{profile.model} on {profile.package} {profile.version} ({profile.backend}, {threads}): "
        f"{profile.queries} inferences of {profile.data} under the profiler",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(rows[:top], profile, left_out=rows[top:], by_type=by_type))
    for line in notes(profile):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def notes(profile: Profile) -> list[str]:
    """Return what must be known to read the table."""
    coverage = f"coverage: {profile.coverage_ratio:.1%} of the time of these inferences lies in operators"
    if profile.coverage_ratio < LOW_COVERAGE_RATIO:
        coverage += "; the rest is the runtime's own and what the profiler rounds away: this table does not show where it goes"
    change = f"{profile.slowdown_ratio:.0%} slower"
    if profile.slowdown_ratio < 0:
        change = "what the profiler costs is lost in the machine's unrest"
    slower = (
        f"not latencies: with the profiler the median inference took {significant(profile.profiled_p50_ms)} ms, "
        f"without {significant(profile.plain_p50_ms)} ms ({change}); `edgemeter run` measures latency"
    )
    return [coverage, slower]


def _table(rows: tuple[Operator, ...], profile: Profile, left_out: tuple[Operator, ...], *, by_type: bool) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("operator", overflow="fold")
    if not by_type:
        table.add_column("type", overflow="fold")
    for heading in ("calls", "total ms", "share", "mean ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        kind = [] if by_type else [row.type]
        table.add_row(row.name, *kind, str(row.calls), significant(row.total_ms), f"{row.share_ratio:.1%}", significant(row.mean_ms, 3))
    blank = [] if by_type else [""]
    if left_out:
        calls, total_ms = sum(row.calls for row in left_out), sum(row.total_ms for row in left_out)
        share = f"{sum(row.share_ratio for row in left_out):.1%}"
        table.add_row(f"({len(left_out)} more)", *blank, str(calls), significant(total_ms), share, "", style="dim")
    table.add_row("(in no operator)", *blank, "", "", f"{max(0.0, 1 - profile.coverage_ratio):.1%}", "", style="dim")
    return table
