"""Alerts from check to check, and what each channel was last notified of; what it is sent is the difference to how they are."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from edgemeter.agent.base.figures import count, stamp
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.statements import Statements
from edgemeter.collector.alerts.firing import AlertFinding, Firing
from edgemeter.collector.alerts.rules import AlertRules, Channel
from edgemeter.collector.ledgers.place import LedgerPlace
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend.watch_file import open_watch, watch_file_beside

# The first day of a step moves a little with every new point, also beyond its interval; what fires again so soon after its end goes on.
SAME_DAYS = 5
AlertEvent = Literal["opened", "updated", "closed", "joined"]


class Alert(NamedTuple):
    """A firing from check to check; `closed_ns` is None while it is open."""

    number: int
    firing: Firing
    opened_ns: int
    closed_ns: int | None = None

    @property
    def state(self) -> str:
        """`open` or `closed`."""
        return "open" if self.closed_ns is None else "closed"


class Notified(NamedTuple):
    """The state of an alert as a channel knows it (None: it knows nothing), and since when and why it does not know how the alert is."""

    alert: int
    channel: str
    state: str | None
    sent_ns: int
    due_ns: int | None
    error: str | None

    def __str__(self) -> str:
        state = f"{self.state}, sent {stamp(self.sent_ns)} UTC" if self.state else "nothing sent"
        return f"{self.channel}: {state}" + (f"; {self.error or 'not tried yet'}" if self.due_ns else "")


def settled(alerts: Sequence[Alert], firings: Sequence[Firing], now_ns: int) -> list[tuple[AlertEvent, Alert]]:
    """Return how alerts change by what fires now.

    A finding that becomes part of an event stays the alert that it was; an alert that has `joined` goes on in another, which is no news.
    A later step of the same subject is another alert.
    """
    by_mark = grouped(((alert.firing.rule, part.subject), (part, alert)) for alert in alerts for part in alert.firing.findings)
    newest = max((alert.number for alert in alerts), default=0)
    changes: dict[int, tuple[AlertEvent, Alert]] = {}
    joined: set[int] = set()
    for firing in firings:
        same = {
            alert.number: alert
            for finding in firing.findings
            for earlier, alert in by_mark.get((firing.rule, finding.subject), ())
            if alert.number not in changes and _is_same(finding, earlier, alert, now_ns)
        }
        still_open = [number for number, alert in same.items() if alert.state == "open"]
        joined.update(still_open)
        if still_open:
            number = min(still_open)
            changes[number] = ("updated", same[number]._replace(firing=firing))
        elif not firing.is_explained:
            newest += not same
            number = min(same, default=newest)
            changes[number] = ("opened", Alert(number, firing, same[number].opened_ns if same else now_ns))
    ended = [alert._replace(closed_ns=now_ns) for alert in alerts if alert.state == "open" and alert.number not in changes]
    return [*changes.values(), *(("joined" if alert.number in joined else "closed", alert) for alert in ended)]


def _is_same(finding: AlertFinding, earlier: AlertFinding, alert: Alert, now_ns: int) -> bool:
    """Return whether a finding may be the earlier one of an alert.

    The alert follows the estimated day of a step, and could so wander from one to the next: one that begins after it opened is another.
    """
    if alert.closed_ns is not None and now_ns - alert.closed_ns > SAME_DAYS * NS_PER_DAY:
        return False
    if finding.first_days is None or earlier.first_days is None:
        return True
    is_near = max(finding.first_days[0], earlier.first_days[0]) - min(finding.first_days[1], earlier.first_days[1]) <= SAME_DAYS
    return is_near and finding.first_days[0] * NS_PER_DAY <= alert.opened_ns


def differences(alerts: Iterable[Alert], notified: Iterable[Notified], rules: AlertRules) -> dict[Channel, list[Alert]]:
    """Return by channel the alerts that it is to be sent, as they are now."""
    states = {(row.channel, row.alert): row.state for row in notified}
    named = {(rule.name, channel) for rule in rules.rule for channel in rule.channels}

    def is_due(channel: Channel, alert: Alert) -> bool:
        state = states.get((channel.name, alert.number), "unheard of")
        if alert.state == "closed":
            return state in (None, "open")
        # Alertmanager ends an alert that is not sent again.
        return (alert.firing.rule, channel.name) in named and (state != "open" or channel.kind == "alertmanager")

    return grouped((channel, alert) for channel in rules.channel for alert in alerts if is_due(channel, alert))


def read_alerts(statements: Statements) -> tuple[list[Alert], list[Notified]]:
    """Return all alerts, the oldest first, and what each channel knows of them."""
    rows = statements.execute("SELECT number, body, opened_ns, closed_ns FROM alerts ORDER BY number").fetchall()
    alerts = [Alert(number, msgspec.json.decode(body, type=Firing), *times) for number, body, *times in rows]
    query = "SELECT alert, channel, state, sent_ns, due_ns, error FROM notified ORDER BY channel, alert"
    return alerts, [Notified(*row) for row in statements.execute(query).fetchall()]


def alerts_of(ledger: LedgerPlace) -> tuple[list[Alert], list[Notified]]:
    """Return what `read_alerts` does of a ledger; nothing where none was ever checked."""
    if isinstance(ledger, Path) and not watch_file_beside(str(ledger)).exists():
        return [], []
    with open_watch(ledger, "read") as file, file.reading() as statements:
        return read_alerts(statements)


def waiting_texts(notified: Iterable[Notified]) -> list[str]:
    """Return of each channel that does not know how everything is, of how many alerts, since when, and why."""
    waiting = grouped((row.channel, row) for row in notified if row.due_ns)
    return [
        f"{count(len(rows), 'alert')} undelivered to {channel} since {stamp(min(row.due_ns or 0 for row in rows))} UTC: "
        f"{next((row.error for row in rows if row.error), 'not tried yet')}"
        for channel, rows in waiting.items()
    ]


def settle(
    statements: Statements, firings: Sequence[Firing], rules: AlertRules, now_ns: int
) -> tuple[list[tuple[AlertEvent, Alert]], Mapping[Channel, Sequence[Alert]]]:
    """Write how alerts change, and what each channel is to be sent; return both."""
    # Also where nothing changes: where nothing can be written, nothing is sent that would be sent again.
    statements.execute("INSERT INTO alert_checks VALUES (1, ?) ON CONFLICT (number) DO UPDATE SET checked_ns = ?", (now_ns, now_ns))
    changes = settled(read_alerts(statements)[0], firings, now_ns)
    bodies = [(alert.number, msgspec.json.encode(alert.firing), alert.opened_ns, alert.closed_ns) for _, alert in changes]
    insert = "INSERT INTO alerts VALUES (?, ?, ?, ?) ON CONFLICT (number)"
    statements.executemany(f"{insert} DO UPDATE SET body = excluded.body, closed_ns = excluded.closed_ns", bodies)
    joined = [(alert.number,) for event, alert in changes if event == "joined"]
    statements.executemany("UPDATE notified SET state = 'closed' WHERE alert = ?", joined)
    alerts, notified = read_alerts(statements)
    by_channel = differences(alerts, notified, rules)
    due = {(alert.number, channel.name) for channel, of_channel in by_channel.items() for alert in of_channel}
    clear = "UPDATE notified SET due_ns = NULL, error = NULL WHERE alert = ? AND channel = ?"
    statements.executemany(clear, [row[:2] for row in notified if row.due_ns is not None and row[:2] not in due])
    insert = "INSERT INTO notified VALUES (?, ?, NULL, 0, ?, NULL) ON CONFLICT (alert, channel)"
    rows = [(*key, now_ns) for key in sorted(due)]
    statements.executemany(f"{insert} DO UPDATE SET due_ns = coalesce(notified.due_ns, excluded.due_ns)", rows)
    return changes, by_channel
