"""The other views of a store (matrix, coverage, trade-offs): what each gathers from the runs, as rows for JSON and CSV."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.documents import Plain, csv_document
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.case_relation import PAIR_MARKS
from edgemeter.collector.compare.matrix import Matrix, RefusedRun, RowKey, row_name
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted, summaries_of
from edgemeter.collector.compare.trade_off import Cost, TradeOff
from edgemeter.collector.runs.cases import group_cases, named, names_of
from edgemeter.collector.runs.store import StoreContents

FlatRow = Mapping[str, Plain]


@dataclass(frozen=True, slots=True)
class GatheredCases:
    """The cases of a store summed up, and the runs that could not be used."""

    summaries: Sequence[CaseSummary]
    refused: Sequence[RefusedRun]


def gather(contents: StoreContents, days: DaysCounted = "current") -> GatheredCases:
    """Return the cases of all runs, of the current level of each or of all its days; raises UnavailableError if there is no run."""
    if not contents.runs:
        raise UnavailableError(
            "the store has no run yet: measure one with `edgemeter run --model FILE --broker ADDRESS`, or see `edgemeter demo`"
        )
    cases, left_out = group_cases(contents.runs)
    reasons = {entry.run: entry.reason for entry in left_out}
    used = {run.id for case in cases for run in case.runs}
    refused = [RefusedRun(run, reasons[run.id]) for run in contents.runs if run.id in reasons and run.id not in used]
    return GatheredCases(summaries_of(cases, days), refused)


def matrix_rows(matrix: Matrix) -> list[FlatRow]:
    """Return a flat row for each cell of a matrix."""
    return [_cell(matrix, row, column) for row in matrix.rows for column in matrix.columns]


def trade_off_rows(trade_offs: Sequence[TradeOff], cost: Cost) -> list[FlatRow]:
    """Return a flat row for each place of the trade-offs; `on_front` is whether nothing beats it."""
    rows: list[FlatRow] = []
    for trade_off in trade_offs:
        names = names_of(point.case.key for point in trade_off.places)
        for point in trade_off.places:
            key = point.case.key
            rows.append(
                {
                    **case_row(point.case),
                    "scenario": key.scenario,
                    "load": trade_off.stage.load or None,
                    "dataset_sha256": key.dataset_sha256,
                    "accuracy_metric": trade_off.stage.metric,
                    "accuracy_value": point.accuracy,
                    "latency_p50_ms" if cost == "latency" else "energy_gross_mj": point.cost,
                    "energy_scope": trade_off.stage.energy.scope if trade_off.stage.energy else None,
                    "energy_provenance": trade_off.stage.energy.provenance if trade_off.stage.energy else None,
                    "on_front": point.beaten_by is None,
                    "beaten_by": names[point.beaten_by.key] if point.beaten_by else None,
                    "verdict": point.case.verdict,
                    "runs": len(point.case.runs),
                    "level_since": point.case.segment.words if point.case.segment else None,
                }
            )
    return rows


def to_csv(rows: Sequence[FlatRow]) -> str:
    """Return flat rows, which have the same names, as CSV."""
    return csv_document(list(rows[0]) if rows else [], (row.values() for row in rows))


def case_row(case: CaseSummary) -> dict[str, Plain]:
    """Return what a case is, for a flat row."""
    key = case.key
    names = ("device", "role", "model", "precision", "runtime", "backend", "threads", "batch", "power_mode", "settings", "served_model")
    return {name: getattr(key, name) for name in names}


def _cell(matrix: Matrix, row: RowKey, column: str) -> FlatRow:
    cell = matrix.cells[row, column]
    interval = cell.figure.interval if cell.figure else None
    return {
        "row": row_name(matrix, row),
        matrix.across: column,
        "state": cell.state,
        "figure": matrix.figure.choice,
        "unit": matrix.figure.unit or None,
        "value": cell.figure.median if cell.figure else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "interval_over": interval.over if interval else None,
        "interval_within": interval.within if interval else None,
        "suspicion": interval.suspicion or None if interval else None,
        "runs": cell.figure.n if cell.figure else 0,
        "devices": cell.devices,
        "energy_scope": cell.energy.scope if cell.energy else None,
        "energy_provenance": cell.energy.provenance if cell.energy else None,
        "is_best": cell.is_best,
        "verdict": cell.case.verdict if cell.case else None,
        "case": named(cell.case.key) if cell.case else None,
        **{field.name: getattr(cell.case.key, field.name) if cell.case else None for field, _ in PAIR_MARKS},
        "level_since": cell.case.segment.words if cell.case and cell.case.segment else None,
        "age_days": cell.age_days,
        "reason": cell.reason,
    }
