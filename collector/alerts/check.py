"""One check: evaluate the rules, update the alerts, send notifications.

Notifications that cannot be sent are kept, and retried at the next check.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.collector.alerts import lifecycle
from edgemeter.collector.alerts.channels import Notice, notice_of_alert, send_notices
from edgemeter.collector.alerts.firing import FiringContext, firings
from edgemeter.collector.alerts.lifecycle import AlertChange
from edgemeter.collector.alerts.rules import AlertRules
from edgemeter.collector.index.history import LedgerHistory
from edgemeter.collector.ledgers.place import ledger_place, open_ledger
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.watch_file import WatchStore, read_annotations

logger = logging.getLogger(__name__)

# After this many attempts a notification is dropped, and logged.
MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class Sent:
    """The delivery to a channel: how many notices, and why it failed (None: delivered)."""

    channel: str
    notices: int
    error: str | None


def planned_sends(rules: AlertRules, changes: Sequence[AlertChange]) -> dict[str, list[Notice]]:
    """Return the notices of `changes` for each channel."""
    of_rule = {rule.name: rule.channels for rule in rules.rule}
    return {
        channel.name: [
            notice_of_alert(change.event, change.alert, rules.link)
            for change in changes
            if change.event in channel.send and channel.name in of_rule.get(change.alert.firing.rule, ())
        ]
        for channel in rules.channel
    }


def send_changes(file: WatchStore, rules: AlertRules, changes: Sequence[AlertChange], now_ns: int) -> list[Sent]:
    """Send the notices of `changes`, and those that failed or waited before; return the outcome of each channel.

    In the quiet times of a channel, by this machine's clock, its notices wait.
    """
    plan = planned_sends(rules, changes)
    at = datetime.fromtimestamp(now_ns / 1e9).astimezone().time()
    sent = []
    for channel in rules.channel:
        waiting = [notice for notice in plan[channel.name] if channel.keeps_quiet(notice.severity, at)]
        _keep(file, channel.name, waiting)
        new = [notice for notice in plan[channel.name] if notice not in waiting]
        before = [(number, notice) for number, notice in _unsent(file, channel.name, rules) if not channel.keeps_quiet(notice.severity, at)]
        notices = [notice for _, notice in before] + new
        if channel.kind == "alertmanager":
            # It expects every open alert to be sent repeatedly; of several notices of an alert the first counts.
            names = {rule.name for rule in rules.rule if channel.name in rule.channels}
            still_open = [alert for alert in lifecycle.read_alerts(file) if alert.firing.rule in names]
            every_open = reversed(notices + [notice_of_alert("updated", alert, rules.link) for alert in still_open])
            notices = list({notice.number: notice for notice in every_open}.values())[::-1]
        if not notices:
            continue
        failure = None
        try:
            send_notices(channel, notices)
        except EdgemeterError as error:
            failure = str(error)
            _count_try(file, [number for number, _ in before], channel.name, failure)
            _keep(file, channel.name, new, failure)
        else:
            with file.writing() as connection:
                connection.executemany("DELETE FROM unsent WHERE number = ?", [(number,) for number, _ in before])
        sent.append(Sent(channel.name, len(notices), failure))
    return sent


def send_test(rules: AlertRules, name: str) -> None:
    """Send a test notice to a channel; raises ConfigError if the channel does not exist."""
    channels = {channel.name: channel for channel in rules.channel}
    if name not in channels:
        raise ConfigError(f"no channel {name!r}: the rules define {', '.join(channels) or 'none'}")
    text = "Sent by `edgemeter trend alerts test`: no alert has opened."
    notice = Notice("opened", 0, "test", "info", "test of Edgemeter", text, {}, "1970-01-01T00:00:00Z", None, rules.link)
    send_notices(channels[name], [notice])


def _unsent(file: WatchStore, channel: str, rules: AlertRules) -> list[tuple[int, Notice]]:
    with file.reading() as connection:
        rows = connection.execute("SELECT number, alert, event FROM unsent WHERE channel = ? ORDER BY number", (channel,)).fetchall()
    return [(number, notice_of_alert(event, lifecycle.find_alert(file, alert), rules.link)) for number, alert, event in rows]


def _keep(file: WatchStore, channel: str, notices: Sequence[Notice], error: str | None = None) -> None:
    """Keep notices for the next check: what could not be sent because of an `error`, or waits."""
    with file.writing() as connection:
        connection.executemany(
            "INSERT INTO unsent (alert, channel, event, tries, error) VALUES (?, ?, ?, ?, ?)",
            [(notice.number, channel, notice.event, int(error is not None), error) for notice in notices],
        )


def _count_try(file: WatchStore, numbers: Sequence[int], channel: str, error: str) -> None:
    with file.writing() as connection:
        connection.executemany("UPDATE unsent SET tries = tries + 1, error = ? WHERE number = ?", [(error, number) for number in numbers])
        lost = connection.execute("DELETE FROM unsent WHERE channel = ? AND tries >= ?", (channel, MOST_TRIES)).rowcount
    if lost:
        logger.error("channel %r did not take %d notices in %d tries: they are given up", channel, lost, MOST_TRIES)


@dataclass(frozen=True, slots=True)
class AlertCheck:
    """The result of a check: changes of alerts, and deliveries."""

    changes: Sequence[AlertChange]
    sent: Sequence[Sent]


def check_alerts(history: History, store: str, file: WatchStore, rules: AlertRules, now_ns: int, *, is_dry: bool = False) -> AlertCheck:
    """Check the rules once; with `is_dry` nothing is written and nothing sent."""
    with open_ledger(ledger_place(store), "read") if isinstance(history, LedgerHistory) else nullcontext() as ledger:
        devices = ledger.devices() if ledger else ()
    context = FiringContext(history, read_annotations(file), devices, now_ns)
    changes = lifecycle.settle_alerts(file, firings(rules.rule, context), now_ns, is_dry=is_dry)
    return AlertCheck(changes, () if is_dry else send_changes(file, rules, changes, now_ns))
