"""The life of an alert: it opens once, is updated while it lasts, and closes; people confirm or dismiss it.

The verdicts give the health of the rules: how many alerts opened, which rules fire most often, and which never.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.statements import Statements
from edgemeter.collector.alerts.firing import AlertMark, Firing
from edgemeter.collector.alerts.rules import SEVERITIES, AlertEvent
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.watch_file import Annotation, WatchStore, add_annotation, newest_number

# The first day of a step moves a little with every new point, also beyond its interval.
SAME_DAYS = 5

AlertOutcome = Literal["confirmed", "dismissed", "over"]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; `closed_ns` is None while it is open. `outcome` is the verdict of people, or `over` if it ended by itself."""

    number: int
    firing: Firing
    opened_ns: int
    updated_ns: int
    closed_ns: int | None
    outcome: AlertOutcome | None
    remark: str | None


@dataclass(frozen=True, slots=True)
class AlertChange:
    """A change of an alert in one check."""

    event: AlertEvent
    alert: Alert


_COLUMNS = "number, body, opened_ns, updated_ns, closed_ns, outcome, remark"


def settle_alerts(
    file: WatchStore, firings: Sequence[Firing], now_ns: int, queue: Callable[[Statements, Sequence[AlertChange]], None] | None = None
) -> list[AlertChange]:
    """Open, update and close alerts according to what fires now, in one transaction with what `queue` does; return the changes."""
    with file.writing() as statements:
        changes, ended_silently = alert_changes(alerts_of(statements, with_closed=True), firings, now_ns)
        # What ends is written first: its subject may go over to another.
        for change in (*ended_silently, *(change for change in changes if change.event == "closed")):
            _write(statements, change)
        changes = [change if change.event == "closed" else AlertChange(change.event, _write(statements, change)) for change in changes]
        if queue is not None:
            queue(statements, changes)
    return changes


def alert_changes(alerts: Sequence[Alert], firings: Sequence[Firing], now_ns: int) -> tuple[list[AlertChange], list[AlertChange]]:
    """Return how `alerts` (all that there were) change by what fires now, and which of them end without a word.

    A finding that becomes part of an event stays the alert that it was; further alerts of its members end in it without a word. A later
    step of the same subject is another alert.
    """
    open_now = {mark: alert for alert in alerts if alert.closed_ns is None for mark in alert.firing.marks}
    still: set[int] = set()
    joined: set[int] = set()
    changes: list[AlertChange] = []
    for firing in firings:
        numbers = {
            alert.number: alert
            for mark, first_days in firing.marks.items()
            if (alert := open_now.get(mark)) and _is_same(first_days, alert, mark)
        }
        first = min(numbers.keys() - still, default=None)
        joined |= numbers.keys()
        if first is None:
            changes += _begin([alert for alert in alerts if alert.closed_ns is not None and alert.number not in still], firing, now_ns)
            still.update(change.alert.number for change in changes[-1:])
            continue
        still.add(first)
        lasting = _with(numbers[first], _keeping_rule(firing, numbers[first].firing), now_ns)
        if numbers[first].firing != lasting.firing:
            changes.append(AlertChange("opened" if _is_worse(lasting.firing, numbers[first].firing) else "updated", lasting))
    ended = {alert.number: alert for alert in open_now.values() if alert.number not in still}
    closed = [
        AlertChange("closed", replace(alert, updated_ns=now_ns, closed_ns=now_ns, outcome=alert.outcome or "over"))
        for alert in ended.values()
    ]
    ended_silently = [change for change in closed if change.alert.number in joined]
    return [*changes, *(change for change in closed if change.alert.number not in joined)], ended_silently


def _is_same(first_days: tuple[int, int] | None, alert: Alert, mark: AlertMark) -> bool:
    """Return whether a step with these first days may be the one of the alert; what has no such days is a state, which goes on.

    The alert follows the estimated day, and could so wander from one step to the next: one that begins after it opened is another.
    """
    earlier = alert.firing.marks[mark]
    if first_days is None or earlier is None:
        return True
    is_near = max(first_days[0], earlier[0]) - min(first_days[1], earlier[1]) <= SAME_DAYS
    return is_near and first_days[0] * NS_PER_DAY <= alert.opened_ns


def _is_worse(firing: Firing, earlier: Firing) -> bool:
    """Return whether an alert became more severe, which is told as if it had opened."""
    return SEVERITIES.index(firing.severity) < SEVERITIES.index(earlier.severity)


def _keeping_rule(firing: Firing, earlier: Firing) -> Firing:
    """Return the firing by the rule that its alert has, if that still fires for it and no other is more severe."""
    is_kept = firing.severity == earlier.severity and any(member.rule == earlier.rule for member in firing.members)
    return replace(firing, rule=earlier.rule) if is_kept else firing


def _begin(closed: Sequence[Alert], firing: Firing, now_ns: int) -> list[AlertChange]:
    # The same alert: most of what fires now fired then, at about the same time.
    earlier = [
        alert
        for alert in closed
        if 2 * len(firing.marks.keys() & alert.firing.marks.keys()) > len(firing.marks) and abs(alert.firing.day - firing.day) <= SAME_DAYS
    ]
    if any(alert.outcome == "dismissed" for alert in earlier):
        return []
    if earlier:
        return [AlertChange("opened" if earlier[-1].outcome == "over" else "updated", _with(earlier[-1], firing, now_ns))]
    return [AlertChange("opened", Alert(0, firing, now_ns, now_ns, None, None, None))]


def _with(alert: Alert, firing: Firing, now_ns: int) -> Alert:
    outcome = None if alert.outcome == "over" else alert.outcome
    return replace(alert, firing=firing, updated_ns=now_ns, closed_ns=None, outcome=outcome)


def _write(statements: Statements, change: AlertChange) -> Alert:
    alert = change.alert
    body = msgspec.json.encode(alert.firing)
    state = "open" if alert.closed_ns is None else "closed"
    if not alert.number:
        insert = "INSERT INTO alerts (rule, subject, state, body, opened_ns, updated_ns) VALUES (?, ?, ?, ?, ?, ?)"
        statements.execute(insert, (alert.firing.rule, alert.firing.subject, state, body, alert.opened_ns, alert.updated_ns))
        return replace(alert, number=newest_number(statements, "alerts"))
    update = "UPDATE alerts SET rule = ?, subject = ?, state = ?, body = ?, updated_ns = ?, closed_ns = ?, outcome = ? WHERE number = ?"
    values = (alert.firing.rule, alert.firing.subject, state, body, alert.updated_ns, alert.closed_ns, alert.outcome, alert.number)
    statements.execute(update, values)
    return alert


def read_alerts(file: WatchStore, *, with_closed: bool = False) -> list[Alert]:
    """Return the open alerts, or all, oldest first."""
    with file.reading() as statements:
        return alerts_of(statements, with_closed=with_closed)


def alerts_of(statements: Statements, *, with_closed: bool = False) -> list[Alert]:
    """Return the open alerts, or all, oldest first."""
    query = f"SELECT {_COLUMNS} FROM alerts WHERE ? OR closed_ns IS NULL ORDER BY number"  # noqa: S608 - our own names
    return [_alert(row) for row in statements.execute(query, (with_closed,)).fetchall()]


def find_alert(file: WatchStore, number: int) -> Alert:
    """Return an alert by its number; raises ConfigError if it does not exist."""
    with file.reading() as connection:
        row = connection.execute(f"SELECT {_COLUMNS} FROM alerts WHERE number = ?", (number,)).fetchone()  # noqa: S608 - our own names
    if row is None:
        raise ConfigError(f"no alert {number} in {file.where!r}: see `edgemeter trend alerts list --all`")
    return _alert(row)


def judge_alert(file: WatchStore, number: int, outcome: Literal["confirmed", "dismissed"], remark: str | None) -> Alert:
    """Store the verdict on an alert; a dismissed one is closed."""
    alert = find_alert(file, number)
    now_ns = time.time_ns()
    closed_ns = alert.closed_ns if outcome == "confirmed" else alert.closed_ns or now_ns
    with file.writing() as connection:
        connection.execute(
            "UPDATE alerts SET outcome = ?, remark = ?, updated_ns = ?, closed_ns = ?, state = ? WHERE number = ?",
            (outcome, remark, now_ns, closed_ns, "open" if closed_ns is None else "closed", number),
        )
        # Who judges it knows how it is: what repeats it need not be sent any more.
        connection.execute("DELETE FROM unsent WHERE alert = ? AND event = 'updated'", (number,))
    return find_alert(file, number)


def _alert(row: tuple[int, bytes, int, int, int | None, AlertOutcome | None, str | None]) -> Alert:
    return Alert(row[0], msgspec.json.decode(row[1], type=Firing), *row[2:])


def acknowledge(file: WatchStore, number: int, remark: str | None) -> str:
    """Confirm an alert; if it concerns a series, a new level begins on its day. Return what was done, in words."""
    firing = judge_alert(file, number, "confirmed", remark).firing
    series = [(member.day, member.facts) for member in firing.members] or [(firing.day, firing.facts)]
    text = remark or f"acknowledged: {firing.title}"
    notes = dict.fromkeys(
        Annotation(day, text, fleet=facts.get("fleet"), device=facts.get("device"), model=facts.get("model"), metric=facts["metric"])
        for day, facts in series
        if day and "metric" in facts
    )
    if not notes:
        return f"alert {number} is confirmed"
    numbers = [add_annotation(file, note) for note in notes]
    many = f"annotations {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"annotation {numbers[0]}"
    return f"alert {number} is confirmed; {many}: a new level begins on {iso(min(note.day for note in notes))}"


def dismiss(file: WatchStore, number: int, remark: str | None) -> str:
    """Dismiss a false alert; return what was done, in words."""
    judge_alert(file, number, "dismissed", remark)
    return f"alert {number} is dismissed and does not open again for the same day"


@dataclass(frozen=True, slots=True)
class RuleHealth:
    """One rule over a period: its alerts by outcome. `precise_ratio` is the share of judged alerts that were confirmed."""

    rule: str
    opened: int
    open_now: int
    confirmed: int
    dismissed: int
    not_judged: int
    precise_ratio: float | None
    noisiest: str | None


def rules_health(alerts: Sequence[Alert], names: Sequence[str], now_ns: int, days: int) -> list[RuleHealth]:
    """Return the health of the rules `names`, and of removed rules with alerts, over the last `days`."""
    lately = [alert for alert in alerts if alert.opened_ns >= now_ns - days * NS_PER_DAY or alert.closed_ns is None]
    rule_names = [*names, *dict.fromkeys(alert.firing.rule for alert in lately if alert.firing.rule not in names)]
    return [_of_rule(name, [alert for alert in lately if alert.firing.rule == name]) for name in rule_names]


def _of_rule(name: str, alerts: Sequence[Alert]) -> RuleHealth:
    confirmed, dismissed = (sum(alert.outcome == outcome for alert in alerts) for outcome in ("confirmed", "dismissed"))
    subjects = sorted(alert.firing.subject for alert in alerts)
    return RuleHealth(
        rule=name,
        opened=len(alerts),
        open_now=sum(alert.closed_ns is None for alert in alerts),
        confirmed=confirmed,
        dismissed=dismissed,
        not_judged=len(alerts) - confirmed - dismissed,
        precise_ratio=confirmed / (confirmed + dismissed) if confirmed + dismissed else None,
        noisiest=max(subjects, key=subjects.count, default=None),
    )
