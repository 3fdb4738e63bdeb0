"""Judged figures for people and for programs: a table of verdicts, a claim with its arithmetic, one document, and a summary in one line."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import msgspec
from rich.console import Console

from edgemeter.agent.base.figures import count, printable
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_lines, print_text
from edgemeter.collector.published.judgement import PublishedState, RowJudgement
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.reference.mlperf import APART, LEGEND

_STYLES = {"impossible": "bold red", "unclear": "yellow", "plausible": "green", "contradicts": "bold red", "agrees": "green"}


def document(judged: Sequence[RowJudgement], left_out: Sequence[str] = ()) -> dict[str, Any]:
    """Return all that is known of each row, and what was left out of the file."""
    rows = [
        {
            "id": judgement.row.id,
            "state": judgement.state,
            "sentence": judgement.sentence,
            **msgspec.to_builtins(judgement.row),
            "canonical_value": judgement.row.canonical[0],
            "canonical_unit": judgement.row.canonical[1],
            "not_stated": judgement.not_stated,
            "evidence": msgspec.to_builtins(judgement.evidence),
            "comparisons": msgspec.to_builtins(judgement.comparisons),
        }
        for judgement in judged
    ]
    return {"rows": rows, "left_out": list(left_out), "summary": summary(judged)}


def summary(judged: Sequence[RowJudgement]) -> str:
    """Return the verdicts in one line: `40 rows: 3 impossible, 12 unclear, 25 plausible; 2 contradict own runs`."""
    states = Counter(judgement.state for judgement in judged)
    parts = [f"{states[state]} {state}" for state in get_args(PublishedState)]
    ends = []
    for kind, plural in (("own run", "own runs"), ("published row", "other rows")):
        for outcome, verb in (("contradicts", "contradict"), ("agrees", "agree with")):
            number = sum(any((entry.kind, entry.outcome) == (kind, outcome) for entry in judgement.comparisons) for judgement in judged)
            words = verb if number != 1 else verb.replace("contradict", "contradicts").replace("agree", "agrees")
            ends += [f"{number} {words} {plural}"] if number else []
    return "; ".join([f"{count(len(judged), 'row')}: {', '.join(parts)}", *([", ".join(ends)] if ends else [])])


def as_published(row: PublishedRow) -> str:
    """Return a figure with its unit, statistic and range as its source states them: `20 t/s decoding rate (18 to 22)`."""
    span = f" ({row.low:g} to {row.high:g})" if row.low is not None and row.high is not None else ""
    return f"{row.value:g} {row.unit} {figure_title(row)}{span}"


def figure_title(row: PublishedRow) -> str:
    """Return what a figure is, with its statistic: `power, peak`, `latency, median`."""
    # The title of a mean or a peak says so already; a published power may be another statistic.
    title = "power" if row.figure == "power" else row.kind.title.removesuffix(" p50")
    statistic = {"max": "peak"}.get(row.statistic or "", row.statistic)
    return f"{title}, {statistic}" if statistic and statistic not in title else title


def titled(row: PublishedRow) -> str:
    """Return what a figure is of, and the figure: `YOLOv8n INT8 640 on Jetson Orin Nano (25W): 3.49 ms latency`."""
    model = " ".join(filter(None, (row.model, row.precision, row.input_size)))
    device = f"{row.device} ({row.power_mode})" if row.power_mode else row.device
    return printable(f"{model} on {device}: {as_published(row)}")


def show(judged: Sequence[RowJudgement], console: Console) -> None:
    """Print the verdicts, MLPerf's results apart with what MLCommons requires, then the comparisons."""
    elsewhere = [judgement for judgement in judged if not judgement.row.is_mlperf]
    official = [judgement for judgement in judged if judgement.row.is_mlperf]
    _print_verdicts(console, elsewhere)
    if official:
        print_text(console, "MLPerf\N{TRADE MARK SIGN} results, not ranked", "bold")
        _print_verdicts(console, official)
        editions = dict.fromkeys(f"{row.source}: retrieved from {row.address} {row.date}, {row.version}." for row in _rows(official))
        print_lines(console, [*editions, APART, LEGEND])
    compared = [(entry.outcome, titled(judgement.row), entry.sentence) for judgement in judged for entry in judgement.comparisons]
    if compared:
        print_text(console, "Compared with own runs and other published figures", "bold")
        _print_table(console, ("outcome", "figure", "comparison"), compared)


def _rows(judged: Sequence[RowJudgement]) -> list[PublishedRow]:
    return [judgement.row for judgement in judged]


def _print_verdicts(console: Console, judged: Sequence[RowJudgement]) -> None:
    has_sources = len({row.source for row in _rows(judged)}) > 1
    rows = [(entry.state, titled(entry.row), entry.sentence, entry.row.source if has_sources else "") for entry in judged]
    _print_table(console, ("verdict", "figure", "decided by", "source"), rows)


def _print_table(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column is never folded; one without rows is none."""
    if not rows:
        return
    cells = [[printable(row[index]) for row in rows] for index in range(len(headings))]
    columns = [
        TableColumn(heading, column, "left", folds=index > 0) for index, (heading, column) in enumerate(zip(headings, cells, strict=True))
    ]
    console.print(fitted_table(columns, console.width, _STYLES), crop=False)


def show_claim(judged: Sequence[RowJudgement], console: Console) -> None:
    """Print each figure of a claim with all its evidence and comparisons, a line each."""
    for judgement in judged:
        print_text(console, f"{judgement.state}: {titled(judgement.row)}", _STYLES[judgement.state])
        print_lines(console, [f"  {line}" for line in _claim_lines(judgement)])


def _claim_lines(judgement: RowJudgement) -> Iterator[str]:
    if not judgement.evidence:
        yield judgement.sentence
    for state in get_args(PublishedState):
        yield from (f"{state}: {entry.sentence}" for entry in judgement.evidence if entry.state == state)
    yield from (f"{entry.outcome}: {entry.sentence}" for entry in judgement.comparisons)
    if judgement.not_stated:
        yield f"not stated: {', '.join(judgement.not_stated)}"
