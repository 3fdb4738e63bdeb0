"""The matrix: what may be compared down the side, devices or board types across, in each cell the best sound case or why there is none.

A row is one model in one class of precision on one set of data, in one scenario at one input size. Of the cases of a cell (runtimes,
threads, batches) the one with the best figure is shown; a case below the accuracy gate is shown only if there is no other.
The cell of a board type is over all its devices, and has their number.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import msgspec

from edgemeter.agent.base.metrics import gain
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.case_identity import CaseKey, key_of, precision_class
from edgemeter.agent.contract.case_relation import LIKENESSES, likeness
from edgemeter.agent.contract.figures import NO_TEXT, Figure, in_view
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare.comparison import most_precise, not_ranked
from edgemeter.collector.compare.spread import Spread
from edgemeter.collector.compare.summary import CaseSummary, summarise
from edgemeter.collector.runs.cases import UNKNOWN_BOARD, CaseRuns, CurrentSegment, EnergyClass, grouped

Across = Literal["device", "board"]
CellState = Literal["measured", "stale", "below accuracy gate", "no figure", "unusable", "never measured"]
# What a matrix may show, by the name in `--figure`.
CHOICES = {entry.choice: entry for entry in in_view("matrix")}
STALE_DAYS = 30


class RowKey(NamedTuple):
    """The key that all cells of a row share: the class of precision, and all that has to be equal for cases to be compared."""

    model: str
    task: str
    precision_class: str
    scenario: str
    samples_per_query: int | None
    target_per_s: float | None
    deadline: str | None
    together: str
    concurrency: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    dataset_sha256: str
    input_values: int | None
    served_model: str | None
    provenance: str


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One cell: its state, the best case with its figure, and why there is none; `is_best` of the row, among what ranks with it."""

    state: CellState
    case: CaseSummary | None = None
    figure: Spread | None = None
    energy: EnergyClass | None = None
    age_days: int | None = None
    devices: int = 0
    reason: str | None = None
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    """The rows and columns by name, and the cells by both; each has one."""

    figure: Figure
    across: Across
    rows: tuple[RowKey, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[RowKey, str], MatrixCell]


@dataclass(frozen=True, slots=True)
class RefusedRun:
    """A run that could not be used, and why."""

    run: RunRecord
    reason: str


def matrix(
    summaries: Sequence[CaseSummary],
    figure: str,
    now_ns: int,
    across: Across = "device",
    stale_days: int = STALE_DAYS,
    refused: Sequence[RefusedRun] = (),
) -> Matrix:
    """Return the matrix of a figure of `CHOICES`; a cell is stale after `stale_days` at `now_ns`, unusable where all runs are `refused`."""
    entry = CHOICES[figure]
    members = _by_board(summaries) if across == "board" else list(summaries)
    by_place = grouped(((row_of(member.key), _column(member.newest, across)), member) for member in members)
    unusable = {(row_of(key_of(refused_run.run)), _column(refused_run.run, across)): refused_run.reason for refused_run in refused}
    places = {*by_place, *unusable}
    rows = sorted({row for row, _ in places}, key=lambda row: [(value is not None, value) for value in row])
    columns = sorted({column for _, column in places})
    by_model = most_precise(summaries)
    cells = {
        (row, column): _cell(by_place.get((row, column), []), by_model, entry, unusable.get((row, column)))
        for row in rows
        for column in columns
    }
    for position, cell in cells.items():
        if cell.case is not None:
            age = max(0, (now_ns - cell.case.newest.started_at_ns) // NS_PER_DAY)
            is_stale = cell.state == "measured" and age > stale_days
            cells[position] = replace(cell, age_days=age, state="stale" if is_stale else cell.state)
    for row in rows:
        _mark_best(cells, [(row, column) for column in columns], entry)
    return Matrix(entry, across, tuple(rows), tuple(columns), cells)


def row_of(key: CaseKey) -> RowKey:
    """Return the row that a case belongs to; what does not bear on its scenario is None."""
    shared: dict[str, Any] = {field.name: value for (field, _), value in zip(LIKENESSES, likeness(key), strict=True)}
    # Of a language model each quantisation is another trade of speed for quality.
    return RowKey(precision_class=shared.pop("precision") or precision_class(key.precision), **shared)


def _column(run: RunRecord, across: Across) -> str:
    # Devices that do not report their type are not of one type: each is alone.
    name = run.device if across == "device" else run.environment.board or f"{run.device}, {UNKNOWN_BOARD}"
    return f"{name} ({run.environment.power_mode})" if run.environment.power_mode else name


def _by_board(summaries: Sequence[CaseSummary]) -> list[CaseSummary]:
    """Return the cases summed up over all devices of a board type, whatever their fleet and role."""
    runs: dict[tuple[str, CaseKey], list[CaseSummary]] = {}
    for summary in summaries:
        board = _column(summary.newest, "board")
        runs.setdefault((board, msgspec.structs.replace(summary.key, device=board, fleet="", role="")), []).append(summary)
    return [_of_devices(key, members) for (_, key), members in runs.items()]


def _of_devices(key: CaseKey, members: Sequence[CaseSummary]) -> CaseSummary:
    runs = tuple(sorted((run for member in members for run in member.runs), key=lambda run: run.started_at_ns))
    changed = [member.segment for member in members if member.segment]
    if not changed:
        return summarise(CaseRuns(key, runs))
    reason = f"the newest change of level, of {len(changed)} on {len({run.device for run in runs})} devices"
    segment = CurrentSegment(max(segment.since_ns for segment in changed), reason, sum(segment.earlier for segment in changed))
    return summarise(CaseRuns(key, runs, segment))


def _cell(cases: Sequence[CaseSummary], by_model: dict[str, list[CaseSummary]], figure: Figure, why_unusable: str | None) -> MatrixCell:
    if not cases:
        return MatrixCell("unusable", reason=why_unusable) if why_unusable else MatrixCell("never measured")
    gates = [(case, not_ranked(case, by_model[case.key.model])) for case in cases]
    ranked = [case for case, why in gates if why is None]
    if not ranked:
        return MatrixCell("below accuracy gate", cases[0], reason=gates[0][1], devices=_devices(cases[0]))
    candidates = [(case, spread) for case in ranked if (spread := case.spreads.get(figure.name))]
    if not candidates:
        return MatrixCell("no figure", ranked[0], reason=_why_none(ranked[0], figure), devices=_devices(ranked[0]))
    # Classes of energy do not rank with each other.
    classes = {id(case): case.energy.ranks_as for case, _ in candidates if figure.group == "energy" and case.energy}

    def order(member: tuple[CaseSummary, Spread]) -> tuple[tuple[bool, int], bool, float]:
        case, spread = member
        energy = classes.get(id(case))
        return energy.preference if energy else (False, 0), case.suspect > 0, _rank(case, figure, spread.median)

    case, spread = min(candidates, key=order)
    return MatrixCell("measured", case, spread, classes.get(id(case)), devices=_devices(case))


def _rank(case: CaseSummary, figure: Figure, value: float) -> float:
    if figure.group == "accuracy" and case.accuracy is not None:
        return -gain(value, case.accuracy.better)
    return -value if figure.better == "higher" else value


def _why_none(case: CaseSummary, figure: Figure) -> str:
    if figure.is_text_model_only and not case.generates:
        return NO_TEXT
    reasons = {"energy": case.energy_reason, "accuracy": case.accuracy_reason}
    return reasons.get(figure.group) or figure.why_absent


def _devices(case: CaseSummary) -> int:
    # A case is of one device, but for those that were summed up over a board type.
    return len({run.device for run in case.runs}) if case.key.device == _column(case.newest, "board") else 1


def _mark_best(cells: dict[tuple[RowKey, str], MatrixCell], places: Iterable[tuple[RowKey, str]], figure: Figure) -> None:
    """Mark the best cell of a row, of energies in each class: those of different classes do not rank together."""
    by_class: dict[EnergyClass | None, list[tuple[float, tuple[RowKey, str]]]] = {}
    for position in places:
        cell = cells[position]
        if cell.figure is not None and cell.case is not None and not cell.case.suspect:
            by_class.setdefault(cell.energy, []).append((_rank(cell.case, figure, cell.figure.median), position))
    for ranked in by_class.values():
        if len(ranked) > 1:
            _, best = min(ranked)
            cells[best] = replace(cells[best], is_best=True)


class CoverageGap(msgspec.Struct, frozen=True):
    """A cell that has no fresh figure: its row and column, its state, the age of its newest run, and why it has none."""

    row: str
    column: str
    state: CellState
    age_days: int | None
    reason: str | None


class MatrixCoverage(msgspec.Struct, frozen=True):
    """How many cells there are in each state, and those without a fresh figure."""

    cells: int
    states: dict[str, int]
    gaps: tuple[CoverageGap, ...]


def coverage(matrix: Matrix) -> MatrixCoverage:
    """Return the coverage of a matrix, the gaps by state, then row and column."""
    states: Counter[str] = Counter(cell.state for cell in matrix.cells.values())
    gaps = [
        CoverageGap(row_name(matrix, row), column, cell.state, cell.age_days, cell.reason)
        for (row, column), cell in matrix.cells.items()
        if cell.state != "measured"
    ]
    return MatrixCoverage(len(matrix.cells), dict(states), tuple(sorted(gaps, key=lambda gap: (gap.state, gap.row, gap.column))))


def row_name(matrix: Matrix, row: RowKey) -> str:
    """Return a row as people call it; of a language model its data are the numbers of its tokens."""
    cases = (matrix.cells[row, column].case for column in matrix.columns)
    lengths = next((case.newest.dataset.name for case in cases if case and case.generates), None)
    parts: list[str | None] = [row.model, row.served_model, row.precision_class, row.scenario]
    parts += [f"{row.samples_per_query} a query"] if row.samples_per_query else []
    parts += [f"{row.target_per_s:g} per s"] if row.target_per_s else []
    parts += [f"deadline {row.deadline}"] if row.deadline else []
    parts += [f"together with {row.together}"] if row.together else []
    parts += [f"{row.concurrency} users"] if row.concurrency else []
    values = f"{row.input_values} values" if row.input_values else None
    parts += [f"{lengths} ({row.dataset_sha256[:6]})"] if lengths else [f"data {row.dataset_sha256[:6]}", values]
    return " · ".join(filter(None, [*parts, row.provenance if row.provenance != "measured" else None]))
