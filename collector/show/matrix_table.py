"""The matrix, its coverage and the trade-offs on a terminal."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from edgemeter.agent.base import figures
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.terminal import plain_table, print_notes, print_text
from edgemeter.agent.contract.case_relation import relation
from edgemeter.collector.compare.matrix import Matrix, MatrixCell, MatrixCoverage, row_name
from edgemeter.collector.compare.spread import MedianInterval
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.compare.trade_off import AbsentCase, Cost, TradeOff
from edgemeter.collector.runs.cases import named, names_of
from edgemeter.collector.show.wording import Notes

Down = TypeVar("Down")
Over = TypeVar("Over")
# So many columns any terminal has room for.
FEW_COLUMNS = 4


def show_matrix(matrix: Matrix, console: Console) -> None:
    """Print the matrix; what does not fit into a cell is below."""
    unit = f" in {matrix.figure.unit}" if matrix.figure.unit else ""
    print_text(console, f"{matrix.figure.title}{unit}; median (95%), * best of what is alike, ? suspect, ~ stale", "bold")
    notes = Notes()
    rows = {row: row_name(matrix, row) for row in matrix.rows}
    columns = {column: column for column in matrix.columns}
    bests = {(row, cell.energy): cell.case for (row, _), cell in matrix.cells.items() if cell.is_best}
    cells = {(row, column): _cell(cell, bests.get((row, cell.energy)), notes) for (row, column), cell in matrix.cells.items()}
    if len(columns) > max(FEW_COLUMNS, len(rows)):
        # A fleet has more devices than a terminal has columns for: devices become rows.
        _grid(console, columns, rows, {(column, row): text for (row, column), text in cells.items()})
    else:
        _grid(console, rows, columns, cells)
    print_notes(console, notes.texts)


def _grid(console: Console, down: Mapping[Down, str], across: Mapping[Over, str], cells: Mapping[tuple[Down, Over], str]) -> None:
    table = plain_table()
    table.add_column("")
    for name in across.values():
        table.add_column(_text(name), justify="right")
    for row, name in down.items():
        table.add_row(_text(name), *(_text(cells[row, column]) for column in across))
    console.print(table, crop=False)


def show_coverage(coverage: MatrixCoverage, console: Console) -> None:
    """Print how many cells are measured, and every other with the reason."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(coverage.states.items()))
    print_text(console, f"{figures.count(coverage.cells, 'cell')}: {states}", "bold")
    for gap in coverage.gaps:
        age = f", last {figures.count(gap.age_days, 'day')} ago" if gap.age_days is not None else ""
        why = f": {gap.reason}" if gap.reason else ""
        print_text(console, f"{gap.state:>20}  {gap.row} on {gap.column}{age}{why}")


def show_trade_offs(trade_offs: Sequence[TradeOff], absent: Sequence[AbsentCase], cost: Cost, console: Console) -> None:
    """Print each trade-off, cheapest first, the Pareto front marked, and below what has no place in any."""
    for trade_off in trade_offs:
        stage = trade_off.stage
        at = f", energy at {stage.energy}" if stage.energy else ""
        scenario = ", ".join(filter(None, (stage.scenario, stage.load)))
        header = f"{stage.task}, {scenario}, {figures.count(stage.images, 'image')} of data {stage.dataset_sha256[:6]}{at}"
        print_text(console, header, "bold")
        numbers = ("p50 ms" if cost == "latency" else "mJ gross", metric_name(stage.metric))
        table = plain_table("", "case", *numbers, "beaten by", right=numbers)
        names = names_of(placed.case.key for placed in trade_off.places)
        for placed in trade_off.places:
            doubt = " ?" if placed.case.suspect else ""
            since = f" ({placed.case.segment.words})" if placed.case.segment else ""
            name, mark = f"{names[placed.case.key]}{doubt}{since}", "" if placed.beaten_by else "*"
            beaten = names[placed.beaten_by.key] if placed.beaten_by else "on the front"
            cells = (mark, name, figures.significant(placed.cost), figures.accuracy(placed.accuracy), beaten)
            table.add_row(*map(_text, cells))
        console.print(table, crop=False)
    if not trade_offs:
        print_text(console, "No case has both figures.", "bold")
    names = names_of(entry.case.key for entry in absent)
    for entry in absent:
        reason = entry.reason.removeprefix(f"{named(entry.case.key)}: ")
        print_text(console, f"no point: {names[entry.case.key]}: {reason}", "dim")


def _cell(cell: MatrixCell, best: CaseSummary | None, notes: Notes) -> str:
    if cell.figure is None:
        return f"{cell.state} [{notes.cite(cell.reason)}]" if cell.reason else "-"
    marks = f"{'*' * cell.is_best}{'?' * bool(cell.case and cell.case.suspect)}{'~' * (cell.state == 'stale')}"
    energy = f" {cell.energy}" if cell.energy else ""
    segment = cell.case.segment if cell.case else None
    since = f" [{notes.cite(f'only runs {segment.words}')}]" if segment else ""
    marked = relation(cell.case.key, best.key).marked if cell.case and best else ()
    different = "".join(f" [{notes.cite(f'{difference.words} of the best')}]" for difference in marked)
    return f"{figures.significant(cell.figure.median)}{marks} {_spread(cell.figure.interval, cell.figure.n)}{energy}{since}{different}"


def _spread(interval: MedianInterval | None, runs: int) -> str:
    if interval is None:
        return f"({figures.count(runs, 'run')})"
    within = f" within {interval.within}" if interval.within else ""
    suspicion = f"; {interval.suspicion}" if interval.suspicion else ""
    return f"({figures.span(interval.low, interval.high)}; {interval.over}{within}{suspicion})"


def _text(text: str) -> Text:
    return Text(figures.printable(text))
