"""The watch: the trends of all selected series, from the last result where no run is new; and requests for more runs.

For a suspected step more runs are requested of the board, so that it is confirmed in half the time, or fades if it is false.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.runs.cases import UNKNOWN_BOARD
from edgemeter.collector.trend.days import Days, days_of, of_type
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS, SeriesKey
from edgemeter.collector.trend.series_trend import SeriesTrend, trends
from edgemeter.collector.trend.watch_file import Annotation, Watch, cuts

# Raised whenever the same records would give different findings.
VERSION = 9
_BATCH = 500

# How many names an error lists.
SHOWN = 8
_Found = list[SeriesTrend]


@dataclass(frozen=True, slots=True)
class SeriesSelection:
    """Which series: a field that is None matches everything."""

    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    precision: str | None = None
    runtime: str | None = None

    def takes(self, key: SeriesKey) -> bool:
        """Return whether the series is selected."""
        return all(value is None or value == getattr(key, name) for name in self.__slots__ for value in [getattr(self, name)])


EVERY_SERIES = SeriesSelection()


def keys_of(history: History, selection: SeriesSelection) -> list[SeriesKey]:
    """Return the selected series.

    Raises:
        ConfigError: there are series, and none is selected.
    """
    every = history.series()
    found = [key for key in every if selection.takes(key)]
    if every and not found:
        selected = {name: value for name in selection.__slots__ if (value := getattr(selection, name)) is not None}
        nowhere = [name for name, value in selected.items() if all(getattr(key, name) != value for key in every)]
        if nowhere:
            there = sorted({str(getattr(key, nowhere[0])) for key in every})
            more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
            message = f"no run has {nowhere[0]} {selected[nowhere[0]]!r}; known are {', '.join(there[:SHOWN])}{more}"
        else:
            message = f"no run has {', '.join(f'{name} {value!r}' for name, value in selected.items())}: give fewer conditions"
        raise ConfigError(message)
    return found


def trends_of(
    history: History,
    annotations: Sequence[Annotation],
    metrics: Sequence[str],
    selection: SeriesSelection = EVERY_SERIES,
    *,
    by_type: bool = False,
) -> list[SeriesTrend]:
    """Return the trends of the metrics in every series, or in every board type with at least two devices."""
    keys = [key for key in history.series() if selection.takes(key)]
    if by_type:
        groups: dict[SeriesKey, list[SeriesKey]] = {}
        # Boards of unknown type have no trend in common.
        for key in (one for one in keys if one.board != UNKNOWN_BOARD):
            groups.setdefault(key.of_type(), []).append(key)
        selected = {key: members for key, members in groups.items() if len(members) > 1}
    else:
        selected = {key: [key] for key in keys}
    return [one for name in metrics for one in _of_metric(history, annotations, name, selected)]


def points(history: History, key: SeriesKey, name: str) -> Days:
    """Return the points of a metric in a series, or in a board type where `key` names no device."""
    members = [key] if key.device else [one for one in history.series() if one.of_type() == key]
    found = [days_of(METRICS[name], history.points(member)) for member in members]
    return found[0] if key.device and found else of_type(found)


def _of_metric(history: History, annotations: Sequence[Annotation], name: str, selected: dict[SeriesKey, list[SeriesKey]]) -> _Found:
    found: dict[SeriesKey, _Found] = {}
    stale: list[tuple[SeriesKey, str, str]] = []
    for key, members in selected.items():
        where = f"{name} {msgspec.json.encode(key).decode()}"
        stamp = _stamp(history, members, cuts(annotations, key, name))
        kept = history.recall(where, stamp)
        if kept is None:
            stale.append((key, where, stamp))
        else:
            found[key] = msgspec.json.decode(kept, type=_Found)
    for first in range(0, len(stale), _BATCH):
        part = stale[first : first + _BATCH]
        keys = [key for key, _, _ in part]
        days = [_days(history, selected[key], name) for key in keys]
        new = {one.key: [one] for one in trends(name, keys, days, [cuts(annotations, key, name) for key in keys])}
        found |= {key: new.get(key, []) for key in keys}
        history.keep((where, stamp, msgspec.json.encode(found[key])) for key, where, stamp in part)
    return [one for key in selected for one in found[key]]


def _days(history: History, members: Sequence[SeriesKey], name: str) -> Days:
    found = [days_of(METRICS[name], history.points(member)) for member in members]
    return found[0] if len(found) == 1 else of_type(found)


def _stamp(history: History, members: Sequence[SeriesKey], declared: dict[int, str]) -> str:
    newest = [history.newest(member) for member in members]
    text = f"{newest} {sorted(declared.items())}"
    return f"{VERSION} {hashlib.sha256(text.encode()).hexdigest()[:24]}"


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
