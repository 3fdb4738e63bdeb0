"""The watch: the trends of all selected series, from the last result where no run is new; and requests for more runs.

For a suspected step more runs are requested of the board, so that it is confirmed in half the time, or fades if it is false.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.runs.cases import UNKNOWN_BOARD
from edgemeter.collector.trend.days import Days, days_of_series, of_type
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.history import History, without_garbage_collection
from edgemeter.collector.trend.metrics import METRICS, NO_SERIES, SeriesKey
from edgemeter.collector.trend.run_columns import names_of
from edgemeter.collector.trend.series_trend import SeriesTrend, trends
from edgemeter.collector.trend.watch_file import Annotation, Watch, cuts

# Raised whenever the same records would give different findings, or they are kept in another form.
VERSION = 10
_BATCH = 500

# How many names an error lists.
SHOWN = 8
_Found = list[SeriesTrend]
_decode = msgspec.msgpack.Decoder(_Found).decode


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
    with without_garbage_collection():
        found = {name: _kept(history, annotations, name, list(selected)) for name in metrics}
        stale = [key for key in selected if any(key not in found[name] for name in metrics)]
        for part in _portions(stale, selected):
            _compute(history, annotations, {key: selected[key] for key in part}, found)
    return [one for name in metrics for key in selected for one in found[name][key]]


def trends_of_one(history: History, annotations: Sequence[Annotation], name: str, key: SeriesKey) -> list[SeriesTrend]:
    """Return the trends of a metric in a series; none where no run has it."""
    found = {name: _kept(history, annotations, name, [key])}
    if key not in found[name]:
        _compute(history, annotations, {key: [key]}, found)
    return found[name][key]


def points(history: History, key: SeriesKey, name: str) -> Days:
    """Return the points of a metric in a series, or in a board type where `key` names no device."""
    members = [key] if key.device else [one for one in history.series() if one.of_type() == key]
    days = days_of_series(METRICS[name], history.columns(members, names_of([METRICS[name]])))
    return days[0] if key.device else of_type(days)


def _kept(history: History, annotations: Sequence[Annotation], name: str, keys: Sequence[SeriesKey]) -> dict[SeriesKey, _Found]:
    """Return what was computed before and is still true."""
    declaring = [one for one in annotations if one.begins_level]
    found: dict[SeriesKey, _Found] = {}
    for key, declared, body in history.kept(f"{VERSION} {name}", keys):
        if declared == (_declared(declaring, key, name) if declaring else ""):
            found[key] = _decode(body)
            for one in found[key]:
                msgspec.structs.force_setattr(one, "key", key)
    return found


def _declared(annotations: Sequence[Annotation], key: SeriesKey, name: str) -> str:
    """Return the declared new levels of a series as text."""
    return "; ".join(f"{day} {text}" for day, text in sorted(cuts(annotations, key, name).items()))


def _portions(keys: Sequence[SeriesKey], selected: Mapping[SeriesKey, Sequence[SeriesKey]]) -> Iterator[list[SeriesKey]]:
    """Yield the keys in portions of which so many runs are held at once as memory takes."""
    portion: list[SeriesKey] = []
    size = 0
    for key in keys:
        if portion and size + len(selected[key]) > _BATCH:
            yield portion
            portion, size = [], 0
        portion.append(key)
        size += len(selected[key])
    if portion:
        yield portion


def _compute(
    history: History,
    annotations: Sequence[Annotation],
    selected: Mapping[SeriesKey, Sequence[SeriesKey]],
    found: Mapping[str, dict[SeriesKey, _Found]],
) -> None:
    """Compute what is not in `found` yet by metric, and keep it."""
    read = history.columns([member for members in selected.values() for member in members], names_of(METRICS[name] for name in found))
    for name, known in found.items():
        keys = [key for key in selected if key not in known]
        every = iter(days_of_series(METRICS[name], read) if keys else ())
        by_key = {key: [next(every) for _ in members] for key, members in selected.items()} if keys else {}
        days = [by_key[key][0] if key.device else of_type(by_key[key]) for key in keys]
        new = {one.key: [one] for one in trends(name, keys, days, [cuts(annotations, key, name) for key in keys])}
        known |= {key: new.get(key, []) for key in keys}
        results = ((key, _declared(annotations, key, name), _encode(known[key])) for key in keys)
        history.keep(f"{VERSION} {name}", results)


def _encode(found: _Found) -> bytes:
    # The key is known to who asks, and larger than the rest.
    return msgspec.msgpack.encode([msgspec.structs.replace(one, key=NO_SERIES) for one in found])


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
