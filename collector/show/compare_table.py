"""The comparison on a terminal: a table as wide as it fits, the reasons as numbered notes, what was left out, and the verdicts."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import ACCURACY, ENERGY, LATENCY
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_lines, print_notes, print_text, writable
from edgemeter.agent.contract.figures import Figure, FigureView, in_view
from edgemeter.agent.contract.mode_answer import WORDS
from edgemeter.agent.verdict.words import text_of
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow, answers_of, comparable
from edgemeter.collector.compare.judgement import verdict_lines
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped, names_of
from edgemeter.collector.runs.store import LeftOut
from edgemeter.collector.show.wording import Notes, accuracy_name, level_text, load_words, only, runtime_name

# Characters between two columns: a space and the table's own line, which is a space where the terminal knows more than ASCII.
GAP = 2
# Marks that one note covers.
OF_THE_KIND = ("other precision", "other class of precision", "other runtime")


def terminal_columns(rows: Sequence[ComparisonRow], notes: Notes) -> list[TableColumn]:
    """Return the columns; what all cases share has none, and what a cell has no room for is cited from `notes`."""
    # The words of the first case, and how many other cases violate the rule too.
    violated = grouped((violation.rule, violation) for row in rows for violation in row.case.violated)
    doubts = {
        rule: text_of(violations[0]) + (f" ({figures.count(len(violations) - 1, 'more case')} likewise)" if violations[1:] else "")
        for rule, violations in violated.items()
    }

    def verdict(case: CaseSummary) -> str:
        return case.verdict + "".join(f" [{notes.cite(doubts[violation.rule])}]" for violation in case.violated)

    return [
        *_differing(rows),
        _text("Precision", rows, lambda case: case.key.precision),
        _text("Runtime", rows, runtime_name),
        *(column for entry in in_view(FigureView.TABLE) for column in _figure(entry, rows, notes)),
        _number("Runs", rows, lambda row: _runs(row.case, notes), 0 if any(row.case.segment for row in rows) else 1),
        _text("Verdict", rows, verdict),
    ]


def _number(header: str, rows: Sequence[ComparisonRow], cell: Callable[[ComparisonRow], str], rank: int = 0) -> TableColumn:
    return TableColumn(header, tuple(cell(row) for row in rows), rank=rank)


def _text(header: str, rows: Sequence[ComparisonRow], cell: Callable[[CaseSummary], str], rank: int = 0) -> TableColumn:
    return TableColumn(header, tuple(figures.printable(cell(row.case)) for row in rows), "left", rank)


def _differing(rows: Sequence[ComparisonRow]) -> list[TableColumn]:
    columns = (
        _text("Device", rows, lambda case: case.key.device),
        _text("Fleet", rows, lambda case: case.key.fleet),
        _text("Power mode", rows, lambda case: case.key.power_mode or figures.ABSENT, 4),
        _text("Clocks", rows, lambda case: case.key.operating_point or figures.ABSENT, 4),
        _text("Threads", rows, lambda case: str(case.key.threads), 4),
        _text("Batch", rows, lambda case: str(case.key.batch)),
        _text("Backend", rows, lambda case: case.key.backend, 6),
        _text("Settings", rows, lambda case: case.key.settings or figures.ABSENT, 4),
        _text("Served model", rows, lambda case: case.key.served_model or figures.ABSENT, 4),
    )
    return [column for column in columns if only(column.cells) is None]


def _figure(entry: Figure, rows: Sequence[ComparisonRow], notes: Notes) -> list[TableColumn]:
    """Return the columns of a figure, none where no case has it; some figures have the reference's beside them, or a reason."""
    if entry.group == "accuracy":
        return _accuracies(rows, notes)
    if entry.name == ENERGY:
        return _gross_energies(rows, notes)
    if entry.name == "energy_net_mj":
        has_energy = any(row.case.energy for row in rows)
        return [_number(entry.heading, rows, lambda row: _net(row.case), entry.rank)] if has_energy else []
    if not any(row.case.spreads.get(entry.name) for row in rows):
        return []
    column = _number(entry.heading, rows, lambda row: entry.shown(median_of(row.case.spreads.get(entry.name))), entry.rank)
    return [column, _number("p50/ref", rows, lambda row: _against(row, notes))] if entry.name == LATENCY else [column]


def _against(row: ComparisonRow, notes: Notes) -> str:
    if row.not_ranked:
        return f"not ranked [{notes.cite(row.not_ranked)}]"
    if row.is_reference:
        return "reference"
    key = row.reference.key
    texts = [difference.words for difference in row.relation.marked if difference.mark not in OF_THE_KIND]
    if (key.precision, key.runtime) != (row.case.key.precision, row.case.key.runtime):
        kind = f"compared with {key.precision} on {key.runtime}: the reference has no run of the same precision on the same runtime"
        texts.insert(0, kind)
    if (judged := row.judgements[LATENCY]) and judged.decision.caution:
        texts.append(judged.decision.caution)
    return " ".join([figures.times(row.ratios.p50), *(f"[{notes.cite(text)}]" for text in texts)])


def _runs(case: CaseSummary, notes: Notes) -> str:
    if case.segment is None:
        return str(len(case.runs))
    return f"{len(case.runs)} [{notes.cite(f'{case.key.device}: only runs {level_text(case)} (--all-days counts them)')}]"


def _accuracies(rows: Sequence[ComparisonRow], notes: Notes) -> list[TableColumn]:
    """Return the columns of accuracy; none of language models alone, whose quality no run measures."""
    cases = [row.case for row in rows]
    if all(case.generates and not case.accuracy for case in cases):
        return []

    def difference(row: ComparisonRow) -> str:
        return "" if row.is_reference else figures.difference(row.ratios.values.get(ACCURACY))

    name = accuracy_name(cases)
    return [_number(name, rows, lambda row: _accuracy(row.case, notes)), _number(f"{name}-ref", rows, difference, 3)]


def _accuracy(case: CaseSummary, notes: Notes) -> str:
    if case.accuracy:
        return figures.accuracy(case.accuracy.value.median)
    return f"none [{notes.cite(f'no accuracy: {case.accuracy_reason}')}]"


def _gross_energies(rows: Sequence[ComparisonRow], notes: Notes) -> list[TableColumn]:
    energies = [row.case.energy for row in rows if row.case.energy]
    mixes_classes = len({energy.ranks_as for energy in energies}) > 1
    if not energies:
        return [_number("energy mJ", rows, lambda row: _gross(row.case, notes, shows_class=False))]
    return [
        _number("energy mJ", rows, lambda row: _gross(row.case, notes, shows_class=mixes_classes)),
        _number("mJ/ref", rows, lambda row: "" if row.is_reference else figures.times(row.ratios.values.get(ENERGY)), 2),
    ]


def _gross(case: CaseSummary, notes: Notes, *, shows_class: bool) -> str:
    if case.energy is None or case.gross_mj is None:
        return f"none [{notes.cite(f'no energy: {case.energy_reason}')}]"
    figure = figures.with_uncertainty(case.gross_mj.median, case.gross_u_mj)
    return f"{figure} {case.energy.ranks_as}" if shows_class else figure


def _net(case: CaseSummary) -> str:
    if case.energy is None:
        return ""
    if (net := case.spreads.get("energy_net_mj")) is None:
        return case.energy.net_state.replace("_", " ")
    return figures.with_uncertainty(net.median, case.uncertainties.get("energy_net_mj"))


REASONS_SHOWN = 8
# Of one model on one set of data in one scenario, of which there may be many: then fewer of each, but some.
ROWS_SHOWN, ROWS_OF_ALL, FEWEST_ROWS = 60, 120, 12


def shortened(comparison: Comparison) -> Comparison:
    """Return the comparison with as many rows as anybody reads: of each group the reference's, and those that differ most from it."""
    groups = comparable(comparison.rows)
    is_long = len(comparison.rows) > ROWS_OF_ALL
    limit = min(ROWS_SHOWN, max(FEWEST_ROWS, ROWS_OF_ALL // len(groups))) if is_long else ROWS_SHOWN
    rows: list[ComparisonRow] = []
    for group in groups:
        telling = set(map(id, sorted(group, key=_apart, reverse=True)[:limit]))
        rows += [row for row in group if id(row) in telling]
    return replace(comparison, rows=tuple(rows))


def _apart(row: ComparisonRow) -> tuple[bool, float]:
    """Order rows by how far the latency is from the reference's, in either direction; the reference's own are the first."""
    p50_ms, other = median_of(row.case.p50_ms), median_of(row.reference.p50_ms)
    return row.is_reference, abs(math.log(p50_ms / other)) if p50_ms and other and not row.not_ranked else 0.0


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print the comparison, as wide as the console is."""
    notes = Notes()
    columns = terminal_columns(comparison.rows, notes) if comparison.rows else []
    printable = [replace(column, cells=tuple(writable(cell, console) for cell in column.cells)) for column in columns]
    fitting = list(printable)
    while sum(column.full_width + GAP for column in fitting) > console.width and any(column.rank for column in fitting):
        fitting.remove(max(fitting, key=lambda column: column.rank))
    first = 0
    for rows in comparable(comparison.rows):
        print_text(console, _shared(rows), "bold")
        console.print(_table(rows, first, fitting), crop=False)
        console.print()
        first += len(rows)
    if not comparison.rows:
        print_text(console, "No run could be compared.", "bold")
    if unfit := len(printable) - len(fitting):
        print_text(console, f"{unfit} columns do not fit: widen the terminal, or see --output, --format csv or --format json", "dim")
    print_notes(console, notes.texts)
    _show_left_out(comparison.left_out, console)


def _shared(rows: Sequence[ComparisonRow]) -> str:
    """Return in words what the cases of a group share; what they do not share has a column."""
    cases = [row.case for row in rows]
    named = [(case, case.newest.dataset) for case in cases]
    shared = (
        only(case.key.model for case in cases),
        only(f"on {case.key.device}" for case in cases),
        only(
            f"data {data.name}" if case.generates else f"data {data.name} ({figures.count(data.images, 'image')})" for case, data in named
        ),
        only(f"{case.key.scenario}{load_words(case.key)}" for case in cases),
        only(figures.count(case.key.threads, "thread") for case in cases),
        only(f"energy at {case.energy.ranks_as}" for case in cases if case.energy),
    )
    return ", ".join(text for text in shared if text)


def _table(rows: Sequence[ComparisonRow], first: int, columns: Sequence[TableColumn]) -> Table:
    table = FixedTable(box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(Text(column.heading), justify=column.justify, width=column.full_width)
    for index, row in enumerate(rows, start=first):
        style = "bold" if row.is_reference else "yellow" if row.case.disturbed else None
        table.add_row(*(Text(column.cells[index]) for column in columns), style=style)
    return table


class FixedTable(Table):
    """A table of cells of one line in columns of known width: rich would measure, wrap and crop each cell by itself."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the header, a rule and the rows, in the look of `plain_table`."""
        box, widths = SIMPLE_HEAD.substitute(options), [column.width or 0 for column in self.columns]
        yield Segment(self._line((column.header for column in self.columns), box.head_vertical), console.get_style("table.header"))
        rule = [box.head_row_horizontal * (width + GAP - 1) for width in widths[:-1]] + [box.head_row_horizontal * widths[-1]]
        yield Segment(f"\n{box.head_row_cross.join(rule)}\n")
        for row, cells in zip(self.rows, zip(*(column.cells for column in self.columns), strict=True), strict=True):
            yield Segment(self._line(cells, box.mid_vertical), console.get_style(row.style) if row.style else None)
            yield Segment.line()

    def _line(self, cells: Iterable[object], between: str) -> str:
        parts = []
        for column, cell in zip(self.columns, map(str, cells), strict=True):
            blank = " " * ((column.width or 0) - cell_len(cell))
            parts.append(blank + cell if column.justify == "right" else cell + blank)
        return f" {between}".join(parts)


def _show_left_out(left_out: Sequence[LeftOut], console: Console) -> None:
    if not left_out:
        return
    print_text(console, f"Left out ({len(left_out)} runs or parts of runs):", "bold")
    reasons = Counter(entry.reason for entry in left_out).most_common()
    for reason, number in reasons[:REASONS_SHOWN]:
        print_text(console, f"{number:>5}  {reason}")
    if len(reasons) > REASONS_SHOWN:
        print_text(console, f"       and {figures.count(len(reasons) - REASONS_SHOWN, 'more reason')}: list every run with --format json")


def show_answers(comparison: Comparison, console: Console) -> None:
    """Print the answer of each case that ran in several power modes or clocks of one board."""
    for answer in answers_of(comparison):
        print_text(console, f"{answer.title}:", "bold")
        columns = [TableColumn(*cells, "left" if cells[0] in WORDS else "right") for cells in answer.columns.items()]
        console.print(fitted_table(columns, console.width))


def show_verdicts(comparison: Comparison, console: Console) -> None:
    """Print a line for each judgement of each case."""
    judged = [(row, lines) for row in comparison.rows if not row.is_reference and (lines := verdict_lines(row.case, row.judgements))]
    if judged:
        print_text(console, "Verdicts (disturbed runs marked ?):", "bold")
    names = names_of(key for row in comparison.rows for key in (row.case.key, row.reference.key))
    for row, lines in judged:
        doubt = " ?" if row.case.disturbed or row.reference.disturbed else ""
        head = f"  {names[row.case.key]}{doubt} against {names[row.reference.key]}"
        print_lines(console, [head, *(f"    {line}" for line in lines)])
