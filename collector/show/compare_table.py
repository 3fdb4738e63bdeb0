"""The comparison on a terminal: a table as wide as it fits, the reasons as numbered notes, and what was left out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgemeter.collector.compare.comparison import Comparison, Row, comparable
from edgemeter.collector.compare.store import LeftOut
from edgemeter.collector.show import figures
from edgemeter.collector.show.notes import Notes
from edgemeter.collector.show.table_columns import GAP, PADDING, Column, columns, fitting
from edgemeter.collector.show.wording import only

REASONS_SHOWN = 8
# Of one model on one set of data in one scenario.
ROWS_SHOWN = 60


def shortened(comparison: Comparison) -> Comparison:
    """Return the comparison with as many rows of each group as anybody reads, the reference's first."""
    return replace(comparison, rows=tuple(row for group in comparable(comparison.rows) for row in group[:ROWS_SHOWN]))


def show(comparison: Comparison, console: Console) -> None:
    """Print the comparison, as wide as the console is."""
    notes = Notes()
    every = columns(comparison.rows, notes) if comparison.rows else []
    kept = fitting(every, console.width)
    first = 0
    for rows in comparable(comparison.rows):
        _print(console, _shared(rows), "bold")
        console.print(_table(rows, first, kept, console), crop=False)
        console.print()
        first += len(rows)
    if not comparison.rows:
        _print(console, "No run could be compared.", "bold")
    if len(kept) < len(every):
        _print(console, f"{len(every) - len(kept)} columns did not fit: widen the terminal, or see --html, --csv or --json", "dim")
    for number, text in enumerate(notes.texts, start=1):
        _print(console, f"[{number}] {text}", "dim")
    _show_left_out(comparison.left_out, console)


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(_written(text, console, style), soft_wrap=True)


def _written(text: str, console: Console, style: str = "") -> Text:
    """Return text that this console can write, and that is not searched for markup: what a device sent cannot colour the terminal."""
    plain = figures.printable(text).replace("±", "+-") if console.options.ascii_only else figures.printable(text)
    return Text(plain.encode(console.encoding, "replace").decode(console.encoding), style)


def _shared(rows: Sequence[Row]) -> str:
    """Return in words what the cases of a group share; what they do not share has a column."""
    cases = [row.case for row in rows]
    shared = (
        only(case.key.model for case in cases),
        only(f"on {case.key.device}" for case in cases),
        only(f"data {case.newest.dataset.name} ({figures.count(case.newest.dataset.images, 'image')})" for case in cases),
        only(case.key.scenario for case in cases),
        only(figures.count(case.key.threads, "thread") for case in cases),
        only(f"energy at {case.energy.scope}" for case in cases if case.energy),
    )
    return ", ".join(text for text in shared if text)


def _table(rows: Sequence[Row], first: int, kept: Sequence[Column], console: Console) -> Table:
    """Return the table of a group of rows; `first` is the place of its first row in the columns."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, PADDING, 0, 0), show_edge=False)
    for column in kept:
        table.add_column(
            Text(column.header),
            justify="right" if column.is_number else "left",
            min_width=column.width - GAP,
            no_wrap=True,
            overflow="crop" if console.options.ascii_only else "ellipsis",
        )
    for index, row in enumerate(rows, start=first):
        style = "bold" if row.is_reference else "yellow" if row.case.suspect else None
        table.add_row(*(_written(column.cells[index], console) for column in kept), style=style)
    return table


def _show_left_out(left_out: Sequence[LeftOut], console: Console) -> None:
    if not left_out:
        return
    _print(console, f"Left out ({len(left_out)} runs or parts of runs):", "bold")
    reasons = Counter(entry.reason for entry in left_out).most_common()
    for reason, number in reasons[:REASONS_SHOWN]:
        _print(console, f"{number:>5}  {reason}")
    if len(reasons) > REASONS_SHOWN:
        _print(console, f"       and {figures.count(len(reasons) - REASONS_SHOWN, 'more reason')}: --json lists every run")
