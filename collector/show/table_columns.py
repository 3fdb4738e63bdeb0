"""The columns that a comparison has on a terminal, and which of them give way on a narrow one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgemeter.collector.compare.comparison import Row
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.compare.summary import Summary, rule_of
from edgemeter.collector.show import figures
from edgemeter.collector.show.notes import Notes
from edgemeter.collector.show.wording import accuracy_name, only, runtime_name

# What a column takes beside its text: a space on its right and the table's own space between columns.
PADDING = 1
GAP = PADDING + 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column with the text of its cells; where the terminal is too narrow the highest `rank` goes first, rank 0 never."""

    header: str
    cells: tuple[str, ...]
    rank: int
    is_number: bool

    @property
    def width(self) -> int:
        """Characters that the column takes on the terminal."""
        return max(len(text) for text in (self.header, *self.cells)) + GAP


def columns(rows: Sequence[Row], notes: Notes) -> list[Column]:
    """Return the columns; what all cases share has none, and what a cell has no room for is cited from `notes`."""
    cases = [row.case for row in rows]
    doubts = _doubts(cases)
    return [
        *_differing(rows),
        _text("Precision", rows, lambda case: case.key.precision),
        _text("Runtime", rows, runtime_name),
        _number("p50 ms", rows, lambda row: figures.significant(median_of(row.case.p50_ms))),
        _number("p50/ref", rows, lambda row: _against(row, notes)),
        _number("p90 ms", rows, lambda row: figures.significant(median_of(row.case.p90_ms)), 2),
        _number("per s", rows, lambda row: figures.significant(row.case.throughput_per_s.median), 5),
        _number(accuracy_name(cases), rows, lambda row: _accuracy(row.case, notes)),
        _number(
            f"{accuracy_name(cases)}-ref",
            rows,
            lambda row: "" if row.is_reference else figures.difference(row.ratios.accuracy_difference),
            3,
        ),
        _number("Peak MB", rows, lambda row: figures.significant(median_of(row.case.peak_mb)), 1),
        *_energy(rows, notes),
        _number("Runs", rows, lambda row: str(len(row.case.runs)), 1),
        _text("Verdict", rows, lambda case: _verdict(case, doubts, notes)),
    ]


def fitting(every: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit into `width` characters, dropping by rank."""
    kept = list(every)
    while sum(column.width for column in kept) > width and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    return kept


def _number(header: str, rows: Sequence[Row], cell: Callable[[Row], str], rank: int = 0) -> Column:
    return Column(header, tuple(cell(row) for row in rows), rank, is_number=True)


def _text(header: str, rows: Sequence[Row], cell: Callable[[Summary], str], rank: int = 0) -> Column:
    return Column(header, tuple(figures.printable(cell(row.case)) for row in rows), rank, is_number=False)


def _differing(rows: Sequence[Row]) -> list[Column]:
    every = (
        _text("Device", rows, lambda case: case.key.device),
        _text("Fleet", rows, lambda case: case.key.fleet),
        _text("Power mode", rows, lambda case: case.key.power_mode or figures.ABSENT, 4),
        _text("Threads", rows, lambda case: str(case.key.threads), 4),
        _text("Batch", rows, lambda case: str(case.key.batch)),
        _text("Backend", rows, lambda case: case.key.backend, 6),
    )
    return [column for column in every if only(column.cells) is None]


def _against(row: Row, notes: Notes) -> str:
    if row.not_ranked:
        return f"not ranked [{notes.cite(row.not_ranked)}]"
    if row.is_reference:
        return "reference"
    ratio = figures.times(row.ratios.p50)
    key = row.reference.key
    if (key.precision, key.runtime) == (row.case.key.precision, row.case.key.runtime):
        return ratio
    note = f"compared with {key.precision} on {key.runtime}: the reference has no run of the same precision on the same runtime"
    return f"{ratio} [{notes.cite(note)}]"


def _accuracy(case: Summary, notes: Notes) -> str:
    if case.accuracy:
        return figures.accuracy(case.accuracy.value.median)
    return f"none [{notes.cite(f'no accuracy: {case.accuracy_reason}')}]"


def _doubts(cases: Sequence[Summary]) -> dict[str, str]:
    """Return a note for each broken rule: the evidence of the first case, and how many other cases broke it too."""
    broken: dict[str, list[str]] = {}
    for reason in (reason for case in cases for reason in case.verdict_reasons):
        broken.setdefault(rule_of(reason), []).append(reason)
    return {
        rule: found[0] + (f"; {figures.count(len(found) - 1, 'more case')} likewise" if found[1:] else "") for rule, found in broken.items()
    }


def _verdict(case: Summary, doubts: Mapping[str, str], notes: Notes) -> str:
    return case.verdict + "".join(f" [{notes.cite(doubts[rule_of(reason)])}]" for reason in case.verdict_reasons)


def _energy(rows: Sequence[Row], notes: Notes) -> list[Column]:
    found = [row.case.energy for row in rows if row.case.energy]
    mixes_scopes = len({energy.scope for energy in found}) > 1
    if not found:
        return [_number("Energy mJ", rows, lambda row: _gross(row.case, notes, shows_scope=False))]
    return [
        _number("Gross mJ", rows, lambda row: _gross(row.case, notes, shows_scope=mixes_scopes)),
        _number("mJ/ref", rows, lambda row: "" if row.is_reference else figures.times(row.ratios.energy_gross), 2),
        _number("Net mJ", rows, lambda row: _net(row.case), 3),
    ]


def _gross(case: Summary, notes: Notes, *, shows_scope: bool) -> str:
    if case.energy is None:
        return f"none [{notes.cite(f'no energy: {case.energy_reason}')}]"
    figure = figures.with_uncertainty(case.energy.gross_mj.median, case.energy.gross_u_mj)
    return f"{figure} {case.energy.scope}" if shows_scope else figure


def _net(case: Summary) -> str:
    if case.energy is None:
        return ""
    if case.energy.net_mj is None:
        return case.energy.net_state.replace("_", " ")
    return figures.with_uncertainty(case.energy.net_mj.median, case.energy.net_u_mj)
