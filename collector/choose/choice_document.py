"""A choice for machines (JSON, CSV) and on a terminal: the sentence, the cases by certainty, and what it rests on."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from edgemeter.agent.base import figures
from edgemeter.agent.base.documents import Plain, csv_document, json_document
from edgemeter.agent.base.terminal import REDUNDANT, TableColumn, fitted_table, print_lines, print_text
from edgemeter.collector.choose.candidate import ChoiceCandidate
from edgemeter.collector.choose.certainty import Certainty, LimitFinding, figure_text
from edgemeter.collector.choose.choice import Choice

FlatRow = Mapping[str, Plain]

# The state of a limit in a cell beside its figure.
MARKS: dict[Certainty, str] = {"meets": "yes", "may meet": "?", "does not meet": "no"}
ROWS_SHOWN = 40
_OF_CASE = ("device", "role", "model", "precision", "runtime", "backend", "threads", "batch", "power_mode", "settings", "served_model")
_STYLES = {"meets": "green", "may meet": "yellow", "does not meet": "dim"}


def to_json(choice: Choice) -> str:
    """Return the whole choice as text."""
    return json_document(choice_fields(choice))


def choice_fields(choice: Choice) -> dict[str, Any]:
    """Return `{"sentence", "limits", "by", "pick", "not_told_apart", "candidates": [...], ...}`."""
    return {
        "sentence": choice.sentence,
        "limits": choice.limits.text,
        "by": choice.by.name,
        "pick": choice.pick.name if choice.pick else None,
        "not_told_apart": [candidate.name for candidate in choice.rivals],
        "candidates": [{**row, "limits": list(map(_finding_row, candidate.findings))} for row, candidate in _rows_of(choice)],
        "statements": choice.statements,
        "confidence": choice.confidence,
        "other_cases": choice.unlike,
        "disturbed_runs_left_out": choice.disturbed,
    }


def to_csv(choice: Choice) -> str:
    """Return a row for each candidate, the best first."""
    rows = rows_of(choice)
    return csv_document(list(rows[0]), (row.values() for row in rows))


def rows_of(choice: Choice) -> list[FlatRow]:
    """Return a flat row for each candidate, the best first."""
    return [row for row, _ in _rows_of(choice)]


def _rows_of(choice: Choice) -> list[tuple[FlatRow, ChoiceCandidate]]:
    rows: list[tuple[FlatRow, ChoiceCandidate]] = []
    for candidate in choice.candidates:
        low, high = candidate.bounds or (None, None)
        row = {
            **{name: getattr(candidate.case.key, name) for name in _OF_CASE},
            "case": candidate.name,
            "state": candidate.state,
            "is_pick": candidate is choice.pick,
            "reason": candidate.reason,
            "by": choice.by.name,
            "unit": choice.by.unit or None,
            "value": candidate.objective,
            "low": low,
            "high": high,
            "runs": len(candidate.case.run_ids),
            "board": candidate.case.around.environment["board"],
        }
        rows.append((row, candidate))
    return rows


def _finding_row(finding: LimitFinding) -> FlatRow:
    low, high = finding.bounds or (None, None)
    return {
        "limit": finding.limit.text, "state": finding.state, "value": finding.value, "low": low, "high": high,
        "unit": finding.limit.figure.unit or None, "reason": finding.reason or None,
    }  # fmt: skip


def objective_text(choice: Choice, candidate: ChoiceCandidate) -> str:
    """Return the figure that is chosen by, with its interval, without its unit."""
    text = figures.ABSENT if candidate.objective is None else figure_text(choice.by, candidate.objective, candidate.bounds)
    return text.replace(f" {choice.by.unit} ", " ") if choice.by.unit else text


def basis(choice: Choice) -> str:
    """Return what the intervals rest on: their confidence, and for how many statements at once."""
    unlike = f" {figures.count(choice.unlike, 'case')} of another task, data, input or scenario left out." if choice.unlike else ""
    disturbed = f" {figures.count(choice.disturbed, 'disturbed run')} left out." if choice.disturbed else ""
    return (
        f"Chosen by {choice.by.title}. Intervals of {choice.confidence * 100:.4g}% each, so that all {choice.statements} statements "
        f"hold together in 95%, on these boards.{unlike}{disturbed}"
    )


def columns(choice: Choice) -> list[TableColumn]:
    """Return the first candidates as columns: state, case, the figure chosen by, each limit, and what decides."""
    candidates = choice.candidates[:ROWS_SHOWN]
    limited = [
        TableColumn(finding.limit.text, [_limit_cell(candidate.findings[index]) for candidate in candidates], rank=REDUNDANT)
        for index, finding in enumerate(candidates[0].findings)
    ]
    return [
        TableColumn("", ["ship" if candidate is choice.pick else "" for candidate in candidates], "left"),
        TableColumn("Limits", [candidate.state for candidate in candidates], "left", always=True),
        TableColumn("Case", [candidate.name for candidate in candidates], "left", folds=True),
        TableColumn(choice.by.heading, [objective_text(choice, candidate) for candidate in candidates], rank=1),
        *limited,
        TableColumn("Runs", [str(len(candidate.case.run_ids)) for candidate in candidates], rank=REDUNDANT),
        *([TableColumn("Decided by", [candidate.reason for candidate in candidates], "left", folds=True)] if _has_reason(choice) else []),
    ]


def _has_reason(choice: Choice) -> bool:
    return bool(choice.limits.figures) or any(candidate.gate for candidate in choice.candidates)


def _limit_cell(finding: LimitFinding) -> str:
    if finding.value is None:
        return MARKS[finding.state]
    return f"{finding.limit.figure.shown(finding.value)} {MARKS[finding.state]}"


def show(choice: Choice, console: Console) -> None:
    """Print the choice, as wide as the console is."""
    print_text(console, f"{choice.sentence}.", "bold")
    console.print(fitted_table(columns(choice), console.width, {**_STYLES, "ship": "bold green"}))
    hidden = len(choice.candidates) - ROWS_SHOWN
    cut = [f"{figures.count(hidden, 'more case')}: see them all with --format json, --format csv or --output"] if hidden > 0 else []
    print_lines(console, [*cut, basis(choice)])
