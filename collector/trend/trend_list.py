"""The findings of the trend on a terminal, each as a sentence with its subject below.

A pipe and Markdown get a row for each.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgemeter.agent.base.console import Table
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.terminal import (
    MARKDOWN_WIDTH,
    EntryTable,
    print_text,
    safe_text,
    writable,
)
from edgemeter.collector.trend.events import events_of, told_by
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.trend.trend_text import (
    UNITS,
    event_kind,
    event_of,
    event_text,
    finding_lines,
    level_text,
)

if TYPE_CHECKING:
    from edgemeter.agent.base.console import Console


def show_trends(
    trends: Sequence[SeriesTrend],
    until: int,
    console: "Console",
    *,
    with_quiet: bool,
    with_members: bool = True,
) -> None:
    """Print events, the other findings of each series, then notes.

    Events are not printed if every member is to be shown.

    On a terminal each finding is a sentence with its subject below it: columns would be too narrow
    to read.
    """
    listed = list(_listed(trends, until, with_quiet=with_quiet, with_members=with_members))
    if console.width >= MARKDOWN_WIDTH:
        table = Table("device", "case", "figure", "level now", "what", "evidence")
        for cells, _ in listed:
            table.add_row(*(safe_text(cell, console) for cell in cells))
    else:
        entries = [
            (f"{device}{'' if names_figure else f', {figure}'}: {evidence}", kind, level, case)
            for (device, case, figure, level, kind, evidence), names_figure in listed
        ]
        table = EntryTable(
            "",
            ("finding", "what", "level now", "case"),
            [[writable(cell, console) for cell in row] for row in entries],
        )
    if listed:
        console.print(table)
    for line in _notes(trends, until):
        print_text(console, line)


def _listed(
    trends: Sequence[SeriesTrend], until: int, *, with_quiet: bool, with_members: bool
) -> Iterator[tuple[tuple[str, str, str, str, str, str], bool]]:
    """Yield the cells of each row, and whether its evidence names the figure.

    There is a row for each finding or event; an event has no level.
    """
    events = [] if with_members else events_of(trends, until)
    for event in events:
        cases = sorted({member.series.key.case() for member in event.members})
        titles = ", ".join(
            dict.fromkeys(METRICS[member.series.metric].figure.title for member in event.members)
        )
        case = cases[0] if len(cases) == 1 else count(len(cases), "case")
        yield (event_of(event), case, titles, "", event_kind(event), event_text(event)), True
    reported = told_by(events)
    for trend in trends:
        lines = finding_lines(trend, until, reported)
        if with_quiet and not lines and not finding_lines(trend, until):
            lines = [("steady", _steady(trend))]
        device = trend.key.device or f"{trend.key.board} ({trend.devices} devices)"
        level, metric = level_text(trend.metric, trend.level), METRICS[trend.metric]
        for kind, evidence in lines:
            yield (
                (device, trend.key.case(), metric.figure.title, level, kind, evidence),
                metric.rule.scale == "share",
            )


def _steady(trend: SeriesTrend) -> str:
    text = f"{count(trend.points, 'day')}, {count(trend.runs, 'run')}"
    if trend.temperature_slope is not None and trend.temperature_slope_u is not None:
        unit = UNITS[METRICS[trend.metric].rule.scale]
        text += (
            f"; {trend.temperature_slope:+.2f} ± {2 * trend.temperature_slope_u:.2f}{unit} per "
            "degree of board temperature"
        )
    return text


def _notes(trends: Sequence[SeriesTrend], until: int) -> list[str]:
    if not trends:
        reason = "no series: no ok run has this figure, and disturbed runs do not count."
        return [
            (
                f"{reason} Measure again, or choose another --figure. `edgemeter runs` lists the "
                "stored runs."
            )
        ]
    quiet = sum(not finding_lines(trend, until) for trend in trends)
    notes = [
        (
            f"{len(trends):,} series up to {iso(until)}, {quiet:,} without a finding (each is "
            "one figure of one case on a device)"
        )
    ]
    other = sum(trend.left_out for trend in trends)
    if other:
        notes.append(
            f"not counted: {count(other, 'value')} with another scope, metric or images than the "
            "newest run of the series"
        )
    invalid = sum(trend.not_ok for trend in trends)
    if invalid:
        notes.append(
            f"not counted: {count(invalid, 'value')} from disturbed or invalid runs (one value "
            "per run and figure)"
        )
    return notes
