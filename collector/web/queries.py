"""What the views ask of the index: cases, runs of a case, changes; narrowed to what the reader picked."""

import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.runs.cases import Fingerprint
from edgemeter.collector.web.case_figures import ENERGIES, METRICS, WITH_INTERVAL, IndexedRun, sum_up
from edgemeter.collector.web.run_index import COLUMNS, FACETS, IndexedCase, decode_case

NS_PER_DAY = 86_400 * 1_000_000_000
LEVELS = {"current": "current level", "all": "all days"}
PERIODS = {"7": "last 7 days", "30": "last 30 days", "90": "last 90 days"}

_RUN_COLUMNS = ", ".join(f"runs.{name}" for name in COLUMNS)


@dataclass(frozen=True, slots=True)
class CaseFilter:
    """What the reader picked: a facet that is None may be anything; `days` back from the newest run, None: all.

    `level` is whether only the runs of a case's current level count, or all.
    """

    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    runtime: str | None = None
    precision: str | None = None
    days: int | None = None
    level: str = "current"

    def without(self, *names: str) -> "CaseFilter":
        """Return the same without these picks."""
        nothing: dict[str, Any] = dict.fromkeys(names)
        return replace(self, **nothing)

    def condition(self) -> tuple[str, list[str]]:
        """Return SQL over the columns of `cases`, and its values."""
        picked = {name: value for name in FACETS if (value := getattr(self, name)) is not None}
        return " AND ".join(f"cases.{name} = ?" for name in picked) or "1", list(picked.values())


def parse_filter(fields: Mapping[str, str]) -> CaseFilter:
    """Return the filter in an address; empty fields are ignored.

    Raises:
        ConfigError: the period or the level is invalid.
    """
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


def cases(
    connection: sqlite3.Connection, case_filter: CaseFilter, limit: int | None = None, offset: int = 0, metrics: Sequence[str] = METRICS
) -> list[IndexedCase]:
    """Return the cases with their figures over all runs, or over those of the period: then of these metrics only.

    Who asks for some metrics gets no text of the newest runs, which takes most of the time.
    """
    condition, values = case_filter.condition()
    return _cases(connection, condition, values, case_filter, limit, offset, metrics)


def cases_of_every_board(connection: sqlite3.Connection, case_filter: CaseFilter, limit: int, offset: int = 0) -> list[IndexedCase]:
    """Return so many cases with their figures over all runs, from each board type in turn: of none is there nothing to see."""
    condition, values = case_filter.condition()
    ordered = "SELECT case_number, row_number() OVER (PARTITION BY board ORDER BY model, fleet, device, precision, case_number) AS place"
    query = (
        f"SELECT case_number, key, board, newest, figures, current FROM cases JOIN"  # noqa: S608 - our own
        f" ({ordered} FROM cases WHERE figures IS NOT NULL AND {condition})"
        " USING (case_number) ORDER BY place, board LIMIT ? OFFSET ?"
    )
    return [decode_case(row) for row in connection.execute(query, (*values, limit, offset))]


def cases_of_baseline(connection: sqlite3.Connection, baseline: str, role: str, case_filter: CaseFilter) -> list[IndexedCase]:
    """Return the cases of a device, or of all devices in `role` where that is the baseline: of the same model and period, else of any."""
    own, values = CaseFilter(model=case_filter.model).condition()
    belongs = "json_extract(cases.key, '$.role') = ?" if baseline == role else "cases.device = ?"
    return _cases(connection, f"{own} AND {belongs}", [*values, baseline], case_filter, None, 0, METRICS)


def _cases(
    connection: sqlite3.Connection,
    condition: str,
    values: Sequence[str],
    case_filter: CaseFilter,
    limit: int | None,
    offset: int,
    metrics: Sequence[str],
) -> list[IndexedCase]:
    newest = "newest" if metrics == METRICS else "NULL"
    query = f"SELECT case_number, key, board, {newest}, figures, current FROM cases WHERE figures IS NOT NULL AND {condition}"  # noqa: S608 - our own
    query += " ORDER BY model, fleet, device, precision, runtime, case_number LIMIT ? OFFSET ?"
    found = [decode_case(row, metrics) for row in connection.execute(query, (*values, -1 if limit is None else limit, offset))]
    if case_filter.level == "all":
        found = [replace(case, current=case.figures) for case in found]
    days = case_filter.days
    return found if days is None else _within(connection, found, since_ns(connection, days), metrics)


def count_cases(connection: sqlite3.Connection, case_filter: CaseFilter) -> int:
    """Return how many cases there are."""
    condition, values = case_filter.condition()
    return int(connection.execute(f"SELECT count(*) FROM cases WHERE figures IS NOT NULL AND {condition}", values).fetchone()[0])  # noqa: S608


def since_ns(connection: sqlite3.Connection, days: int) -> int:
    """Return when the period of so many days began, counted from now or from the newest run where that is older."""
    newest = connection.execute("SELECT max(newest_ns) FROM cases").fetchone()[0] or 0
    return int(min(newest, time.time_ns())) - days * NS_PER_DAY


def runs_of(connection: sqlite3.Connection, case_number: int, *, newest: int) -> list[IndexedRun]:
    """Return the newest so many runs of a case, oldest first."""
    query = f"SELECT {_RUN_COLUMNS} FROM runs WHERE case_number = ? ORDER BY started_at_ns DESC LIMIT ?"  # noqa: S608 - our own names
    return [IndexedRun._make(row) for row in connection.execute(query, (case_number, newest))][::-1]


def p50_by_day(connection: sqlite3.Connection, start_ns: int, numbers: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return (case, day since 1970, mean p50 in ms of the usable runs) of these cases since then."""
    query = """SELECT case_number, started_at_ns / ? AS day, avg(p50_ms) FROM json_each(?) JOIN runs ON case_number = value
    WHERE started_at_ns >= ? AND is_usable AND p50_ms > 0 GROUP BY case_number, day"""
    return connection.execute(query, (NS_PER_DAY, msgspec.json.encode(numbers).decode(), start_ns)).fetchall()


def run_of(connection: sqlite3.Connection, run_id: str) -> IndexedRun | None:
    """Return the run of that id."""
    found = connection.execute(f"SELECT {_RUN_COLUMNS} FROM runs WHERE id = ? ORDER BY row DESC LIMIT 1", (run_id,)).fetchone()  # noqa: S608
    return IndexedRun._make(found) if found else None


def fingerprints(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Fingerprint]:
    """Return fingerprints by their numbers."""
    wanted = sorted(set(numbers))
    marks = ", ".join("?" * len(wanted))
    query = f"SELECT fingerprint, text FROM fingerprints WHERE fingerprint IN ({marks})"  # noqa: S608 - question marks only
    return {number: msgspec.json.decode(text, type=Fingerprint) for number, text in connection.execute(query, wanted)}


def _within(connection: sqlite3.Connection, found: Sequence[IndexedCase], start_ns: int, metrics: Sequence[str]) -> list[IndexedCase]:
    # Only what is needed is read.
    wanted = {"case_number", "started_at_ns", "verdict", "is_usable", "is_throttled", *metrics}
    wanted |= {"gross_u_mj", "net_u_mj", "energy_kind"} if ENERGIES & wanted else set()
    wanted |= {"accuracy_kind"} if "accuracy" in wanted else set()
    columns = ", ".join(name if name in wanted else "NULL" for name in COLUMNS)
    query = f"SELECT {columns} FROM runs WHERE case_number = ? AND started_at_ns >= ? ORDER BY started_at_ns"  # noqa: S608 - our own names
    # A view of some metrics only shows no intervals.
    intervals = WITH_INTERVAL if metrics == METRICS else frozenset()
    kept = []
    for case in found:
        runs = [IndexedRun._make(row) for row in connection.execute(query, (case.number, start_ns))]
        if runs:
            figures, segment = sum_up(runs, metrics, intervals), case.current.segment
            later = [run for run in runs if segment and run.started_at_ns >= segment.since_ns]
            current = msgspec.structs.replace(sum_up(later, metrics, intervals), segment=segment) if later else figures
            kept.append(replace(case, figures=figures, current=current))
    return kept
