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
    title = row.kind.title.removesuffix(" p50")
    return f"{row.value:g} {row.unit} {title}{f', {row.statistic}' if row.statistic else ''}{span}"


def _model(row: PublishedRow) -> str:
    return printable(" ".join(filter(None, (row.model, row.precision, row.input_size))))


def _device(row: PublishedRow) -> str:
    return printable(f"{row.device} ({row.power_mode})" if row.power_mode else row.device)


def show(judged: Sequence[RowJudgement], console: Console) -> None:
    """Print the verdicts, then the comparisons; both as tables."""
    columns = [
        TableColumn("verdict", [judgement.state for judgement in judged], "left"),
        TableColumn("model", [_model(judgement.row) for judgement in judged], "left", folds=True),
        TableColumn("device", [_device(judgement.row) for judgement in judged], "left", folds=True),
        TableColumn("as published", [as_published(judgement.row) for judgement in judged], "left", folds=True),
        TableColumn("decided by", [printable(judgement.sentence) for judgement in judged], "left", folds=True),
        TableColumn("not stated", [", ".join(judgement.not_stated) for judgement in judged], "left", rank=1, folds=True),
    ]
    console.print(fitted_table(columns, console.width, _STYLES), crop=False)
    compared = [(judgement.row, entry) for judgement in judged for entry in judgement.comparisons]
    if compared:
        print_text(console, "Compared with own runs and with other published rows:", "bold")
        columns = [
            TableColumn("outcome", [entry.outcome for _, entry in compared], "left"),
            TableColumn("model", [_model(row) for row, _ in compared], "left", folds=True),
            TableColumn("as published", [f"{_device(row)}: {as_published(row)}" for row, _ in compared], "left", folds=True),
            TableColumn("against", [f"{entry.kind}: {printable(entry.name)}" for _, entry in compared], "left", rank=1, folds=True),
            TableColumn("comparison", [printable(entry.sentence) for _, entry in compared], "left", folds=True),
        ]
        console.print(fitted_table(columns, console.width, _STYLES), crop=False)


def show_claim(judged: Sequence[RowJudgement], console: Console) -> None:
    """Print each figure of a claim with all its evidence and comparisons, a line each."""
    for judgement in judged:
        row = judgement.row
        print_text(console, f"{judgement.state}: {_model(row)} on {_device(row)}, {as_published(row)}", _STYLES[judgement.state])
        print_lines(console, [f"  {line}" for line in _claim_lines(judgement)])


def _claim_lines(judgement: RowJudgement) -> Iterator[str]:
    if not judgement.evidence:
        yield judgement.sentence
    for state in get_args(PublishedState):
        yield from (f"{state}: {entry.sentence}" for entry in judgement.evidence if entry.state == state)
    yield from (f"{entry.outcome}: {entry.sentence}" for entry in judgement.comparisons)
    if judgement.not_stated:
        yield f"not stated: {', '.join(judgement.not_stated)}"
