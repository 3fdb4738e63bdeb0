"""A check evaluates the rules, stores the changes and sends each channel the alerts it lacks.

Each channel is served by a thread of its own.

A channel is sent the difference between an alert's state and the state that it last received, which
is stored once it has answered: a killed check loses nothing, and nothing is sent twice unless the
answer was lost.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.number_text import count, stamp
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.figures import LATENCY
from edgemeter.collector.alerts.channels import sent_messages
from edgemeter.collector.alerts.firing import Alert, AlertFinding, FiringContext, firings
from edgemeter.collector.alerts.rules import SEVERITIES, AlertRules, Channel
from edgemeter.collector.ledgers.place import LedgerPlace, ledger_place
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.store import open_store
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.watch_file import (
    WatchStore,
    annotations_of,
    open_watch,
    watch_file_beside,
)

# For how long a channel starts messages in one check, and how long it waits at least for the last
# answer.
SENDING_S, ANSWER_S = 20.0, 20.0
# A process that was suspended can still read answers that have arrived.
LAST_S = 1.0
# Without an ok run for this many days, a check without findings means little.
NEWEST_DAYS = 7
AlertEvent = Literal["opened", "updated", "closed", "joined"]


class Notified(NamedTuple):
    """The state of an alert that a channel last received, and why it lacks the present one.

    The state is None if it received none.
    """

    alert: int
    channel: str
    state: str | None
    sent_ns: int
    error: str | None

    def __str__(self) -> str:
        state = f"{self.state}, sent {stamp(self.sent_ns)} UTC" if self.state else "nothing sent"
        return f"{self.channel}: {state}" + (f"; {self.error}" if self.error else "")


class AlertCheck(NamedTuple):
    """The changes of alerts in one check, with counts.

    It has the number that each channel accepted, the number of series, and whether any has a new ok
    run.
    """

    changes: Sequence[tuple[AlertEvent, Alert]]
    sent: Mapping[str, int]
    series: int
    has_new: bool


def check_alerts(
    stores: Sequence[str], rules: AlertRules, clock: Callable[[], int], *, is_test: bool = False
) -> AlertCheck:
    """Check the rules once on the runs in `stores`; the alerts are those of the first one.

    A test alert goes to all channels.

    Raises:
        TransientError: another check is in progress, or the store is locked.
        UnavailableError: the disk is full. Changes that could not be stored are not sent.
    """
    ledger = ledger_place(stores[0])
    # Read under the lock: a check with older facts would close alerts that a newer one opened.
    with open_watch(ledger) as file, file.checking():
        history = History(open_store(*stores))
        now_ns = clock()
        firing = firings(
            rules.rule,
            FiringContext(history, annotations_of(ledger), history.store.devices(), now_ns),
        )
        if is_test:
            finding = AlertFinding(
                "test", "test of Edgemeter", "the next check ends it", 0, {"at": stamp(now_ns)}
            )
            channels = tuple(channel.name for channel in rules.channel)
            firing.append(Alert("test", "info", channels, finding.title, finding.text, (finding,)))
        with file.writing() as statements:
            changes, due = _settle(statements, firing, rules.channel, now_ns)
        sent = _send(file, due, rules.link, now_ns)
        series = history.series()
        newest = history.columns(series, [LATENCY], history.newest_day() + 1 - NEWEST_DAYS)
        return AlertCheck(changes, sent, len(series), bool(newest.is_ok.any()))


class _Accepted(NamedTuple):
    """An alert that a channel accepted; the fields are those of the statement that stores it."""

    state: str
    sent_ns: int
    alert: int
    channel: str


def _send(
    file: WatchStore, due: Mapping[Channel, Sequence[Alert]], page: str | None, now_ns: int
) -> Counter[str]:
    """Send each channel its alerts and store the sent states; return how many each accepted."""
    accepted_alerts: list[_Accepted] = []
    errors: dict[str, str] = {}
    lock = threading.Lock()
    until_s = time.monotonic() + SENDING_S

    def write() -> None:
        # All of it each time: a failed write is repeated at the end.
        with file.writing() as statements:
            statements.executemany(
                "UPDATE notified SET state = ?, sent_ns = ?, error = NULL WHERE alert = "
                "? AND channel = ?",
                accepted_alerts,
            )
            statements.executemany(
                "UPDATE notified SET error = ? WHERE channel = ? AND error IS NOT NULL",
                [(error, name) for name, error in sorted(errors.items())],
            )

    def send(channel: Channel) -> None:
        messages = sent_messages(channel, due[channel], page, now_ns)
        try:
            # A process that was suspended for longer than others wait for its lock sends nothing:
            # they may have sent it.
            while time.monotonic() < until_s and (accepted := next(messages, None)):
                accepted_alerts.extend(
                    _Accepted(alert.state, now_ns, alert.number, channel.name) for alert in accepted
                )
                with lock:
                    file.in_need(write)
        except EdgemeterError as error:
            errors[channel.name] = str(error)
        # A failure of a service of Apprise affects only its channel; its text may contain secrets.
        except Exception as error:  # noqa: BLE001
            errors[channel.name] = f"it fails with {type(error).__name__}"

    threads = {
        channel.name: threading.Thread(target=send, args=(channel,), daemon=True) for channel in due
    }
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, until_s + ANSWER_S - time.monotonic()))
        thread.join(LAST_S)
        if thread.is_alive():
            errors[name] = f"no complete answer within {ANSWER_S:g} s"
    # Later answers are ignored: the file is about to be closed.
    lock.acquire()
    file.in_need(write)
    return Counter(alert.channel for alert in accepted_alerts)


def settled(
    alerts: Sequence[Alert], firing: Sequence[Alert], now_ns: int
) -> list[tuple[AlertEvent, Alert]]:
    """Return how alerts change, given the present firings.

    A finding keeps its alert, also as part of an event; an alert that has `joined` continues in
    another, without a notification.
    """
    open_alerts = {alert.number: alert for alert in alerts if alert.state == "open"}
    by_finding = {
        (alert.rule, *finding.facts.items()): alert
        for alert in open_alerts.values()
        for finding in alert.findings
    }
    newest = max((alert.number for alert in alerts), default=0)
    changes: dict[int, tuple[AlertEvent, Alert]] = {}
    joined: set[int] = set()
    for now in firing:
        same = set()
        for finding in now.findings:
            alert = by_finding.get((now.rule, *finding.facts.items()))
            # A step that begins after the alert of an earlier one opened is another alert.
            if alert is not None and (
                finding.kind != "step" or (finding.day + 1) * NS_PER_DAY <= alert.opened_ns
            ):
                same.add(alert.number)
        same -= changes.keys()
        joined |= same
        if same:
            number = min(same)
            changes[number] = (
                "updated",
                replace(now, number=number, opened_ns=open_alerts[number].opened_ns),
            )
        elif not now.is_explained:
            newest += 1
            changes[newest] = ("opened", replace(now, number=newest, opened_ns=now_ns))
    ended = [
        replace(alert, closed_ns=now_ns)
        for number, alert in open_alerts.items()
        if number not in changes
    ]
    return [
        *changes.values(),
        *(("joined" if alert.number in joined else "closed", alert) for alert in ended),
    ]


def differences(
    alerts: Iterable[Alert], notified: Iterable[Notified], channels: Iterable[Channel]
) -> dict[Channel, list[Alert]]:
    """Return the alerts to send to each channel, open ones first, the worst of them first.

    Alerts are in their present state.
    """
    states = {(row.channel, row.alert): row.state for row in notified}
    ordered = sorted(
        alerts, key=lambda alert: (alert.state == "closed", SEVERITIES.index(alert.severity))
    )

    def is_due(channel: Channel, alert: Alert) -> bool:
        key = channel.name, alert.number
        if alert.state == "closed":
            return key in states and states[key] != "closed"
        # Alertmanager ends an alert that is not repeated.
        return channel.name in alert.channels and (
            states.get(key) != "open" or channel.kind == "alertmanager"
        )

    return grouped(
        (channel, alert) for channel in channels for alert in ordered if is_due(channel, alert)
    )


def _settle(
    statements: Statements, firing: Sequence[Alert], channels: Sequence[Channel], now_ns: int
) -> tuple[list[tuple[AlertEvent, Alert]], dict[Channel, list[Alert]]]:
    """Store how alerts change, and which channels do not know that yet; return both."""
    # Also without changes: if nothing can be stored, nothing may be sent that would be repeated.
    statements.execute(
        "INSERT INTO alert_checks VALUES (1, ?) ON CONFLICT (number) DO UPDATE SET checked_ns = ?",
        (now_ns, now_ns),
    )
    changes = settled(read_alerts(statements)[0], firing, now_ns)
    statements.executemany(
        "INSERT INTO alerts VALUES (?, ?) ON CONFLICT (number) DO UPDATE SET body = excluded.body",
        [(alert.number, msgspec.json.encode(alert)) for _, alert in changes],
    )
    statements.executemany(
        "UPDATE notified SET state = 'closed' WHERE alert = ?",
        [(alert.number,) for event, alert in changes if event == "joined"],
    )
    due = differences(*read_alerts(statements), channels)
    statements.execute("UPDATE notified SET error = NULL WHERE error IS NOT NULL")
    statements.executemany(
        "INSERT INTO notified VALUES (?, ?, NULL, 0, 'not sent yet') ON CONFLICT (alert, "
        "channel) DO UPDATE SET error = excluded.error",
        [
            (alert.number, channel.name)
            for channel, of_channel in due.items()
            for alert in of_channel
        ],
    )
    return changes, due


def read_alerts(statements: Statements) -> tuple[list[Alert], list[Notified]]:
    """Return all alerts, oldest first, and the states that each channel received."""
    alerts = [
        msgspec.json.decode(body, type=Alert)
        for (body,) in statements.execute("SELECT body FROM alerts ORDER BY number").fetchall()
    ]
    return alerts, [
        Notified(*row)
        for row in statements.execute("SELECT * FROM notified ORDER BY channel, alert").fetchall()
    ]


def alerts_of(ledger: LedgerPlace) -> tuple[list[Alert], list[Notified]]:
    """Return `read_alerts` of a ledger; nothing if none was ever checked."""
    if isinstance(ledger, Path) and not watch_file_beside(str(ledger)).exists():
        return [], []
    with open_watch(ledger, "read") as file, file.reading() as statements:
        return read_alerts(statements)


def undelivered_texts(notified: Iterable[Notified]) -> list[str]:
    return [
        f"{count(len(of_channel), 'alert')} undelivered to {channel}: {of_channel[0]}"
        for channel, of_channel in grouped(
            (row.channel, row.error) for row in notified if row.error
        ).items()
    ]
