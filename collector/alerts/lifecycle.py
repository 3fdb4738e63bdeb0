"""The life of an alert: it opens once, is updated while it lasts, and closes; what people say of it is kept for ever.

An alert of a step that fades and comes back is the same one. What somebody dismissed does not open again for the same day.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.alerts.firing import Firing
from edgemeter.collector.alerts.rules import Event
from edgemeter.collector.trend.watch_file import WatchFile

# The first bad day of a step moves a little with every new point.
SAME_DAYS = 5

Outcome = Literal["confirmed", "dismissed", "over"]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; `closed_ns` is None while it is open. `outcome` is what people said of it, or `over` where it ended by itself."""

    number: int
    firing: Firing
    opened_ns: int
    updated_ns: int
    closed_ns: int | None
    outcome: Outcome | None
    remark: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to an alert in one look."""

    event: Event
    alert: Alert


_COLUMNS = "number, body, opened_ns, updated_ns, closed_ns, outcome, remark"


def settle(file: WatchFile, found: Sequence[Firing], now_ns: int, *, is_dry: bool = False) -> list[Change]:
    """Open, update and close alerts by what is firing now; return what changed. With `is_dry` nothing is written."""
    firing = {(one.rule, one.subject): one for one in found}
    known = read(file, with_closed=True)
    open_now = {(one.firing.rule, one.firing.subject): one for one in known if one.closed_ns is None}
    changes: list[Change] = []
    for key, one in firing.items():
        held = open_now.get(key)
        if held is None:
            changes += _begin(known, one, now_ns)
        elif held.firing != one:
            changes.append(Change("updated", _with(held, one, now_ns)))
    changes += [Change("closed", _closed(alert, now_ns)) for key, alert in open_now.items() if key not in firing]
    return changes if is_dry else [Change(change.event, _write(file, change)) for change in changes]


def _begin(known: Sequence[Alert], one: Firing, now_ns: int) -> list[Change]:
    earlier = [
        alert
        for alert in known
        if (alert.firing.rule, alert.firing.subject) == (one.rule, one.subject) and abs(alert.firing.day - one.day) <= SAME_DAYS
    ]
    if any(alert.outcome == "dismissed" for alert in earlier):
        return []
    if earlier:
        return [Change("updated", _with(earlier[-1], one, now_ns))]
    return [Change("opened", Alert(0, one, now_ns, now_ns, None, None, None))]


def _with(alert: Alert, one: Firing, now_ns: int) -> Alert:
    outcome = None if alert.outcome == "over" else alert.outcome
    return Alert(alert.number, one, alert.opened_ns, now_ns, None, outcome, alert.remark)


def _closed(alert: Alert, now_ns: int) -> Alert:
    return Alert(alert.number, alert.firing, alert.opened_ns, now_ns, now_ns, alert.outcome or "over", alert.remark)


def _write(file: WatchFile, change: Change) -> Alert:
    alert = change.alert
    body = msgspec.json.encode(alert.firing)
    state = "open" if alert.closed_ns is None else "closed"
    with file.writing() as connection:
        if change.event == "opened":
            insert = "INSERT INTO alerts (rule, subject, state, body, opened_ns, updated_ns) VALUES (?, ?, ?, ?, ?, ?)"
            values = (alert.firing.rule, alert.firing.subject, state, body, alert.opened_ns, alert.updated_ns)
            number = int(connection.execute(insert, values).lastrowid or 0)
            return Alert(number, alert.firing, alert.opened_ns, alert.updated_ns, None, None, None)
        update = "UPDATE alerts SET state = ?, body = ?, updated_ns = ?, closed_ns = ?, outcome = ? WHERE number = ?"
        connection.execute(update, (state, body, alert.updated_ns, alert.closed_ns, alert.outcome, alert.number))
    return alert


def read(file: WatchFile, *, with_closed: bool = False) -> list[Alert]:
    """Return the open alerts, or all, oldest first."""
    query = f"SELECT {_COLUMNS} FROM alerts WHERE ? OR closed_ns IS NULL ORDER BY number"  # noqa: S608 - our own names
    with file.reading() as connection:
        return [_alert(row) for row in connection.execute(query, (with_closed,)).fetchall()]


def one_of(file: WatchFile, number: int) -> Alert:
    """Return an alert by its number.

    Raises:
        ConfigError: there is none.
    """
    with file.reading() as connection:
        row = connection.execute(f"SELECT {_COLUMNS} FROM alerts WHERE number = ?", (number,)).fetchone()  # noqa: S608 - our own names
    if row is None:
        message = f"there is no alert {number} in {str(file.path)!r}: see `edgemeter alerts list --all`"
        raise ConfigError(message)
    return _alert(row)


def say(file: WatchFile, number: int, outcome: Literal["confirmed", "dismissed"], remark: str | None) -> Alert:
    """Keep what people say of an alert; one that is dismissed is closed."""
    alert = one_of(file, number)
    now_ns = time.time_ns()
    closed_ns = alert.closed_ns if outcome == "confirmed" else alert.closed_ns or now_ns
    with file.writing() as connection:
        connection.execute(
            "UPDATE alerts SET outcome = ?, remark = ?, updated_ns = ?, closed_ns = ?, state = ? WHERE number = ?",
            (outcome, remark, now_ns, closed_ns, "open" if closed_ns is None else "closed", number),
        )
    return one_of(file, number)


def _alert(row: tuple[int, bytes, int, int, int | None, Outcome | None, str | None]) -> Alert:
    return Alert(row[0], msgspec.json.decode(row[1], type=Firing), *row[2:])
