"""The queries of the views to the index: cases, runs of a case, changes; narrowed by the reader's filter."""

import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.run_figures import RUN_COLUMNS, VALUE_COLUMNS, RunFigures, run_of_row
from edgemeter.agent.contract.series import Fingerprint
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted
from edgemeter.collector.index.index_file import COUNTED, FACETS, IndexedCase, decode_case
from edgemeter.collector.index.stored_summaries import of_newest_runs, read_summaries

LEVELS: dict[DaysCounted, str] = {"current": "current level", "all": "all levels"}
PERIODS = {"7": "last 7 days", "30": "last 30 days", "90": "last 90 days"}
_IN_ORDER = "ORDER BY model, fleet, device, precision, runtime, case_number LIMIT ? OFFSET ?"
_RUN_COLUMNS = ", ".join((*RUN_COLUMNS, *VALUE_COLUMNS))


@dataclass(frozen=True, slots=True)
class CaseFilter:
    """The reader's filter: facets (None: all), `days` back from the newest run (None: all), and whether only the current `level` counts."""

    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    runtime: str | None = None
    precision: str | None = None
    days: int | None = None
    level: DaysCounted = "current"

    def without(self, *names: str) -> "CaseFilter":
        """Return the same without these picks."""
        nothing: dict[str, Any] = dict.fromkeys(names)
        return replace(self, **nothing)

    def condition(self) -> tuple[str, list[str]]:
        """Return SQL over the columns of `cases`, and its values."""
        picked = {name: value for name in FACETS if (value := getattr(self, name)) is not None}
        return " AND ".join(f"cases.{name} = ?" for name in picked) or "1", list(picked.values())


def parse_filter(fields: Mapping[str, str]) -> CaseFilter:
    """Return the filter in an address; empty fields are ignored. Raises ConfigError if the period or the level is invalid."""
    days = fields.get("days", "")
    if days and not re.fullmatch(r"[1-9]\d{0,4}", days, re.ASCII):
        raise ConfigError(f"days={days!r} is not a period: give a number of days, such as days=30")
    level = fields.get("level", "current")
    if level not in LEVELS:
        raise ConfigError(f"level={level!r} is unknown: give level=all for every run, or leave it away for the current level")
    picked = {name: fields.get(name) or None for name in FACETS}
    return CaseFilter(**picked, days=int(days) if days else None, level=level)


def choices(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the values that each facet has, sorted."""
    return {
        name: [value for (value,) in connection.execute(f"SELECT DISTINCT {name} FROM cases ORDER BY {name}")]  # noqa: S608 - our own names
        for name in FACETS
    }


def cases(connection: sqlite3.Connection, case_filter: CaseFilter, limit: int = -1, offset: int = 0) -> list[IndexedCase]:
    """Return the cases, counted over all their runs, or over those of the period."""
    condition, values = case_filter.condition()
    return _cases(connection, f"WHERE runs AND {condition} {_IN_ORDER}", [*values, limit, offset], case_filter)


def cases_of_every_board(connection: sqlite3.Connection, case_filter: CaseFilter, limit: int, offset: int = 0) -> list[IndexedCase]:
    """Return a limited number of cases, from each board type in turn, so that every type is shown."""
    condition, values = case_filter.condition()
    ordered = "SELECT case_number, row_number() OVER (PARTITION BY board ORDER BY model, fleet, device, precision, case_number) AS place"
    picked = f"JOIN ({ordered} FROM cases WHERE runs AND {condition}) USING (case_number) ORDER BY place, board LIMIT ? OFFSET ?"
    return _cases(connection, picked, [*values, limit, offset], case_filter)


def cases_of_reference(connection: sqlite3.Connection, reference: str, role: str, case_filter: CaseFilter) -> list[IndexedCase]:
    """Return the cases of a device, or of all devices in `role` where that is the reference: of the same model and period, else of any."""
    condition, values = CaseFilter(model=case_filter.model).condition()
    belongs = "json_extract(cases.key, '$.role') = ?" if reference == role else "cases.device = ?"
    return _cases(connection, f"WHERE runs AND {condition} AND {belongs} {_IN_ORDER}", [*values, reference, -1, 0], case_filter)


def _cases(connection: sqlite3.Connection, picked: str, values: Sequence[str | int], case_filter: CaseFilter) -> list[IndexedCase]:
    is_current = case_filter.level == "current"
    if case_filter.days is None:
        counts = ", ".join(name if is_current or name != "latency_p50_ms" else "latency_p50_of_all_ms" for name in COUNTED)
        query = f"SELECT case_number, key, board, {counts} FROM cases {picked}"  # noqa: S608 - our own names
        return [decode_case(row) for row in connection.execute(query, values)]
    level = "since_ns" if is_current else "0 AS since_ns"
    query = f"""SELECT picked.case_number, key, board, {", ".join(COUNTED.values())}
    FROM (SELECT case_number, key, board, {level}, row_number() OVER () AS place FROM cases {picked}) AS picked
    CROSS JOIN measured ON measured.case_number = +picked.case_number WHERE started_at_ns >= ? GROUP BY place"""  # noqa: S608 - our own names
    return [decode_case(row) for row in connection.execute(query, (*values, since_ns(connection, case_filter.days)))]


def summaries(connection: sqlite3.Connection, indexed_cases: Sequence[IndexedCase], case_filter: CaseFilter) -> list[CaseSummary]:
    """Return the summaries of those of the cases that have a usable run, as `compare` makes them: of their level, and of the period."""
    usable = {case.key: case.usable for case in indexed_cases}
    numbers = [case.number for case in indexed_cases if case.usable]
    stored = read_summaries(connection, lambda: nullcontext(connection), case_filter.level, numbers)
    return list(stored) if case_filter.days is None else [of_newest_runs(case_summary, usable[case_summary.key]) for case_summary in stored]


def count_cases(connection: sqlite3.Connection, case_filter: CaseFilter) -> int:
    """Return how many cases there are."""
    condition, values = case_filter.condition()
    return int(connection.execute(f"SELECT count(*) FROM cases WHERE runs AND {condition}", values).fetchone()[0])  # noqa: S608


def since_ns(connection: sqlite3.Connection, days: int) -> int:
    """Return the start of a period of days that ends now, or at the newest run where that is older."""
    newest = connection.execute("SELECT max(newest_ns) FROM cases").fetchone()[0] or 0
    return int(min(newest, time.time_ns())) - days * NS_PER_DAY


def runs_of(connection: sqlite3.Connection, case_number: int, *, newest: int) -> list[RunFigures]:
    """Return the newest runs of a case, oldest first."""
    query = f"SELECT {_RUN_COLUMNS} FROM runs WHERE case_number = ? ORDER BY started_at_ns DESC LIMIT ?"  # noqa: S608 - our own names
    return [run_of_row(row) for row in connection.execute(query, (case_number, newest))][::-1]


def fingerprints(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Fingerprint]:
    """Return fingerprints by their numbers."""
    query = "SELECT fingerprint, text FROM common JOIN json_each(?) ON fingerprint = value"
    rows = connection.execute(query, (msgspec.json.encode(sorted(set(numbers))).decode(),))
    return {number: msgspec.json.decode(text, type=Fingerprint) for number, text in rows}
