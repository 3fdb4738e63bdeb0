"""Coverage: which cells of a matrix were measured, which have grown stale, and which never were."""

from collections import Counter

import msgspec

from edgemeter.collector.compare.matrix import CellState, Matrix, RowKey


class Gap(msgspec.Struct, frozen=True):
    """A cell that has no fresh figure: its row and column, its state, the age of its newest run, and why it has none."""

    row: str
    column: str
    state: CellState
    age_days: int | None
    reason: str | None


class Coverage(msgspec.Struct, frozen=True):
    """How many cells there are in each state, and those without a fresh figure."""

    cells: int
    states: dict[str, int]
    gaps: tuple[Gap, ...]


def coverage(found: Matrix) -> Coverage:
    """Return the coverage of a matrix, the gaps by state, then row and column."""
    states: Counter[str] = Counter(cell.state for cell in found.cells.values())
    gaps = [
        Gap(row_name(row), column, cell.state, cell.age_days, cell.reason)
        for (row, column), cell in found.cells.items()
        if cell.state != "measured"
    ]
    return Coverage(len(found.cells), dict(states), tuple(sorted(gaps, key=lambda gap: (gap.state, gap.row, gap.column))))


def row_name(row: RowKey) -> str:
    """Return a row as people call it."""
    parts = [row.model, row.precision_class, row.scenario]
    parts += [f"{row.samples_per_query} a query"] if row.samples_per_query else []
    parts += [f"{row.target_per_s:g} per s"] if row.target_per_s else []
    parts += [f"data {row.dataset_sha256[:6]}", *([f"{row.input_values} values"] if row.input_values else [])]
    return " · ".join([*parts, *([row.provenance] if row.provenance != "measured" else [])])
