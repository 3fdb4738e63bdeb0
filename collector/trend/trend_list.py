"""The findings of the trend in a terminal: of each the sentence first, then what it is of; a pipe and Markdown get a row for each."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgemeter.agent.base.figures import count, printable
from edgemeter.agent.base.terminal import PIPED_WIDTH, writable
from edgemeter.collector.trend.events import events_of, told_by
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.trend.trend_text import UNITS, event_kind, event_of, event_text, finding_lines, level_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_STYLES = {"worse": "red", "better": "green", "missing": "yellow", "not ok": "yellow"}
# Of a finding in a terminal: lines in all, and of its sentence.
LINES, SENTENCE_LINES = 4, 3
INDENT = 4 * " "


class ListedFinding(NamedTuple):
    """A finding or an event as the cells of its row; an event has no `level`. `names_figure` is whether its evidence names the figure."""

    device: str
    case: str
    figure: str
    level: str
    kind: str
    evidence: str
    names_figure: bool = True

    @property
    def sentence(self) -> str:
        """The finding as a sentence with its subject."""
        return f"{self.device}{'' if self.names_figure else f', {self.figure}'}: {self.evidence}"

    @property
    def details(self) -> str:
        """The kind of the finding, the level now, and the case of the sentence."""
        return "; ".join((self.kind, *([f"now {self.level}"] if self.level else []), self.case))


def show_trends(trends: Sequence[SeriesTrend], until: int, console: "Console", *, with_quiet: bool, with_members: bool = True) -> None:
    """Print events (unless every member is to be shown), the other findings of each series, then notes."""
    from rich.table import Table  # noqa: PLC0415 - rich takes long to import
    from rich.text import Text  # noqa: PLC0415

    listed = _listed(trends, until, with_quiet=with_quiet, with_members=with_members)
    findings = [
        finding._replace(device=printable(finding.device), case=printable(finding.case), evidence=printable(finding.evidence))
        for finding in listed
    ]

    class FindingsTable(Table):
        """A table that a terminal shows as a list, since its columns would be too narrow to read."""

        def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
            if options.max_width >= PIPED_WIDTH:
                yield from super().__rich_console__(console, options)
                return
            dots = "..." if options.ascii_only else "…"
            is_cut = False
            for finding in findings:
                sentence, details = _entry(finding, options.max_width, dots)
                is_cut = is_cut or any(line.endswith(f" {dots}") for line in (*sentence, *details))
                text = Text("\n".join(writable(line, console) for line in (*sentence, *details)))
                text.highlight_words([f"\n{INDENT}{finding.kind};"], _style(finding.kind))
                yield text
            if is_cut:
                yield Text(f"{dots} was cut: a wider terminal or --format json shows all of it")

    table = FindingsTable("device", "case", "figure", "level now", "what", "evidence")
    for finding in findings:
        table.add_row(*map(Text, finding[:-1]))
    if findings:
        console.print(table)
    for line in _notes(trends, until):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _listed(trends: Sequence[SeriesTrend], until: int, *, with_quiet: bool, with_members: bool) -> Iterator[ListedFinding]:
    events = [] if with_members else events_of(trends, until)
    for event in events:
        cases = sorted({member.series.key.case() for member in event.members})
        titles = ", ".join(dict.fromkeys(METRICS[member.series.metric].figure.title for member in event.members))
        case = cases[0] if len(cases) == 1 else count(len(cases), "case")
        yield ListedFinding(event_of(event), case, titles, "", event_kind(event), event_text(event))
    reported = told_by(events)
    for trend in trends:
        lines = finding_lines(trend, until, reported)
        if with_quiet and not lines and not finding_lines(trend, until):
            lines = [("steady", _steady(trend))]
        device = trend.key.device or f"{trend.key.board} ({trend.devices} devices)"
        level = level_text(trend.metric, trend.level)
        title, names_it = METRICS[trend.metric].figure.title, METRICS[trend.metric].rule.scale == "share"
        yield from (ListedFinding(device, trend.key.case(), title, level, *line, names_it) for line in lines)


def _entry(finding: ListedFinding, width: int, dots: str) -> tuple[list[str], list[str]]:
    """Return the lines of the sentence and of the details; together at most `LINES`, the last of each with `dots` if it is cut."""

    def wrapped(text: str, lines: int, indent: str) -> list[str]:
        return textwrap.wrap(
            text, width, initial_indent=indent, subsequent_indent=INDENT, max_lines=lines, placeholder=f" {dots}",
            break_on_hyphens=False,
        )  # fmt: skip

    sentence = wrapped(finding.sentence, SENTENCE_LINES, "")
    return sentence, wrapped(finding.details, LINES - len(sentence), INDENT)


def _style(kind: str) -> str:
    return next((style for word, style in _STYLES.items() if kind.endswith(word)), "")


def _steady(trend: SeriesTrend) -> str:
    text = f"{count(trend.points, 'day')}, {count(trend.runs, 'run')}"
    if trend.temperature_slope is not None and trend.temperature_slope_u is not None:
        unit = UNITS[METRICS[trend.metric].rule.scale]
        text += f"; {trend.temperature_slope:+.2f} ± {2 * trend.temperature_slope_u:.2f}{unit} per degree of board temperature"
    return text


def _notes(trends: Sequence[SeriesTrend], until: int) -> list[str]:
    if not trends:
        reason = "no run that is ok has this figure, and disturbed ones do not count"
        return [f"no series: {reason}: measure again, or choose another --figure; `edgemeter runs` lists those kept"]
    quiet = sum(not finding_lines(trend, until) for trend in trends)
    notes = [
        f"{count(len(trends), 'series') if len(trends) == 1 else f'{len(trends):,} series'} up to {iso(until)}: {quiet:,} without a finding"
    ]
    other = sum(trend.left_out for trend in trends)
    if other:
        notes.append(f"{other:,} runs are left out: scope, metric or images differ from the newest run of their series")
    invalid = sum(trend.not_ok for trend in trends)
    if invalid:
        notes.append(f"{invalid:,} figures of disturbed or invalid runs are excluded")
    return notes
