"""The views of a store beside the table: what each gathers from the runs, and its documents for JSON and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.errors import UnavailableError
from edgemeter.collector.compare.cases import group
from edgemeter.collector.compare.coverage import row_name
from edgemeter.collector.compare.matrix import UNITS, Matrix, Refused, RowKey
from edgemeter.collector.compare.naming import named, names_of
from edgemeter.collector.compare.store import Contents
from edgemeter.collector.compare.summary import Summary, summarise
from edgemeter.collector.compare.trade_off import Absent, Cost, TradeOff

Value = str | int | float | bool | None
Flat = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The cases of a store summed up, and the runs that could not be used."""

    summaries: Sequence[Summary]
    refused: Sequence[Refused]


def gather(contents: Contents) -> Gathered:
    """Return the cases of all runs.

    Raises:
        UnavailableError: there is no run at all.
    """
    if not contents.runs:
        message = "the store holds no run yet: measure one with `edgemeter run --model FILE --broker ADDRESS`, or see `edgemeter demo`"
        raise UnavailableError(message)
    cases, left_out = group(contents.runs)
    reasons = {entry.run: entry.reason for entry in left_out}
    used = {run.id for case in cases for run in case.runs}
    refused = [Refused(run, reasons[run.id]) for run in contents.runs if run.id in reasons and run.id not in used]
    return Gathered([summarise(case) for case in cases], refused)


def matrix_rows(found: Matrix) -> list[Flat]:
    """Return a flat row for each cell of a matrix."""
    return [_cell(found, row, column) for row in found.rows for column in found.columns]


def trade_off_rows(found: Sequence[TradeOff], cost: Cost) -> list[Flat]:
    """Return a flat row for each place of the trade-offs; `on_front` is whether nothing beats it."""
    rows: list[Flat] = []
    for trade_off in found:
        names = names_of(place.case.key for place in trade_off.places)
        for place in trade_off.places:
            key = place.case.key
            rows.append(
                {
                    **_case(place.case),
                    "scenario": key.scenario,
                    "dataset_sha256": key.dataset_sha256,
                    "accuracy_metric": trade_off.stage.metric,
                    "accuracy_value": place.accuracy,
                    "latency_p50_ms" if cost == "latency" else "energy_gross_mj": place.cost,
                    "energy_scope": trade_off.stage.scope,
                    "on_front": place.beaten_by is None,
                    "beaten_by": names[place.beaten_by.key] if place.beaten_by else None,
                    "verdict": place.case.verdict,
                    "runs": len(place.case.runs),
                }
            )
    return rows


def absent_rows(absent: Sequence[Absent]) -> list[Flat]:
    """Return a flat row for each case without a place, with the reason."""
    return [{**_case(one.case), "reason": one.reason} for one in absent]


def to_json(document: Mapping[str, object]) -> str:
    """Return a document as text."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def to_csv(rows: Sequence[Flat]) -> str:
    """Return flat rows as CSV (RFC 4180, header first); absent is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows({name: str(value).lower() if isinstance(value, bool) else value for name, value in row.items()} for row in rows)
    return text.getvalue()


def _case(case: Summary) -> dict[str, Value]:
    key = case.key
    names = ("device", "role", "model", "precision", "runtime", "backend", "threads", "batch")
    return {name: getattr(key, name) for name in names}


def _cell(found: Matrix, row: RowKey, column: str) -> Flat:
    cell = found.cells[row, column]
    interval = cell.figure.interval if cell.figure else None
    unit = UNITS[found.figure]
    return {
        "row": row_name(row),
        found.across: column,
        "state": cell.state,
        "figure": found.figure,
        "unit": unit or None,
        "value": cell.figure.median if cell.figure else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "interval_over": interval.over if interval else None,
        "runs": cell.figure.n if cell.figure else 0,
        "devices": cell.devices,
        "energy_scope": cell.scope,
        "is_best": cell.is_best,
        "verdict": cell.case.verdict if cell.case else None,
        "case": named(cell.case.key) if cell.case else None,
        "age_days": cell.age_days,
        "reason": cell.reason,
    }
