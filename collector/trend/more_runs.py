"""More runs: what a suspect asks of its board, so that a step is confirmed in half the time and a false one fades.

A request is written down; what carries it to the board reads `pending` and says what became of it (`settle`). All requests of the last
30 days together are at most a tenth of the runs of that time; the most suspicious series come first.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.run_figures import SeriesKey
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.trend.watch_file import WatchFile

RUNS = 5
EXTRA_RATIO = 0.10
OVER_DAYS = 30
# A request that nobody carried out by then is no longer of use.
EXPIRES_DAYS = 3

_INSERT = """INSERT OR IGNORE INTO requests (fleet, device, series, metric, day, runs, reason, state, changed_ns)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?)"""

State = Literal["pending", "sent", "done", "expired", "refused"]


@dataclass(frozen=True, slots=True)
class Request:
    """So many more runs of a series are wanted on `day`."""

    number: int
    key: SeriesKey
    metric: str
    day: int
    runs: int
    reason: str
    state: State


def ask(file: WatchFile, found: Sequence[SeriesTrend], *, day: int, runs_lately: int) -> list[Request]:
    """Write down what the suspects among `found` ask for on `day`, within the tenth of `runs_lately`; return the new requests."""
    suspects = sorted(
        (one for one in found if one.suspect is not None and one.key.device and day - one.last_day <= EXPIRES_DAYS),
        key=lambda one: one.chance,
    )
    with file.writing() as connection:
        connection.execute(
            "UPDATE requests SET state = 'expired', changed_ns = ? WHERE state IN ('pending', 'sent') AND day < ?",
            (time.time_ns(), day - EXPIRES_DAYS),
        )
        query = "SELECT coalesce(sum(runs), 0) FROM requests WHERE day > ? AND state NOT IN ('expired', 'refused')"
        room = int(EXTRA_RATIO * runs_lately) - int(connection.execute(query, (day - OVER_DAYS,)).fetchone()[0])
        for one in suspects:
            if room < RUNS:
                break
            values = (one.key.fleet, one.key.device, msgspec.json.encode(one.key), one.metric, day, RUNS, _reason(one), time.time_ns())
            room -= RUNS * connection.execute(_INSERT, values).rowcount
    return [request for request in read(file, "pending") if request.day == day]


def read(file: WatchFile, state: State | None = None) -> list[Request]:
    """Return the requests of a state, or all, oldest first."""
    query = "SELECT number, series, metric, day, runs, reason, state FROM requests WHERE ? IS NULL OR state = ? ORDER BY number"
    with file.reading() as connection:
        rows = connection.execute(query, (state, state)).fetchall()
    return [Request(row[0], msgspec.json.decode(row[1], type=SeriesKey), *row[2:]) for row in rows]


def settle(file: WatchFile, number: int, state: State) -> None:
    """Note what became of a request."""
    with file.writing() as connection:
        connection.execute("UPDATE requests SET state = ?, changed_ns = ? WHERE number = ?", (state, time.time_ns(), number))


def _reason(one: SeriesTrend) -> str:
    step = one.suspect
    return "" if step is None else f"{one.metric} may have stepped by {step.size:+.2g} on {iso(step.day)} (score {step.score:.1f})"
