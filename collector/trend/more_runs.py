"""Requests for more runs: for a suspected step they are asked of the board, so that it is confirmed in half the time, or fades if false."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.metrics import SeriesKey
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.trend.watch_file import Watch

MORE_RUNS = 5
EXTRA_RATIO = 0.10
OVER_DAYS = 30

# A request that was not carried out by then has expired.
EXPIRES_DAYS = 3

_INSERT = """INSERT INTO requests (fleet, device, series, metric, day, runs, reason, state, changed_ns)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?) ON CONFLICT DO NOTHING"""

RequestState = Literal["pending", "sent", "done", "expired", "refused"]


@dataclass(frozen=True, slots=True)
class MoreRunsRequest:
    """A request for `runs` more runs of a series on `day`."""

    number: int
    key: SeriesKey
    metric: str
    day: int
    runs: int
    reason: str
    state: RequestState


def request_more_runs(file: Watch, found: Sequence[SeriesTrend], *, day: int, runs_lately: int) -> list[MoreRunsRequest]:
    """Request runs for the suspects among `found` on `day`, at most a tenth of `runs_lately`; return the new requests."""
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
            if room < MORE_RUNS:
                break
            values = (one.key.fleet, one.key.device, msgspec.json.encode(one.key), one.metric, day, MORE_RUNS, _reason(one), time.time_ns())
            room -= MORE_RUNS * connection.execute(_INSERT, values).rowcount
    return [request for request in read_requests(file, "pending") if request.day == day]


def read_requests(file: Watch, state: RequestState | None = None) -> list[MoreRunsRequest]:
    """Return the requests of a state, or all, oldest first."""
    query = "SELECT number, series, metric, day, runs, reason, state FROM requests WHERE state = coalesce(?, state) ORDER BY number"
    with file.reading() as connection:
        rows = connection.execute(query, (state,)).fetchall()
    return [MoreRunsRequest(row[0], msgspec.json.decode(row[1], type=SeriesKey), *row[2:]) for row in rows]


def settle_requests(file: Watch, number: int, state: RequestState) -> None:
    """Store the new state of a request."""
    with file.writing() as connection:
        connection.execute("UPDATE requests SET state = ?, changed_ns = ? WHERE number = ?", (state, time.time_ns(), number))


def _reason(one: SeriesTrend) -> str:
    step = one.suspect
    return "" if step is None else f"{one.metric} may have stepped by {step.size:+.2g} on {iso(step.day)} (score {step.score:.1f})"
