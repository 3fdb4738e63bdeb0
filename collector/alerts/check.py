"""One check: evaluate the rules, update the alerts and queue what the channels are told, in one transaction; then deliver."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.statements import Statements
from edgemeter.collector.alerts import delivery, lifecycle, outbox
from edgemeter.collector.alerts.channels import send_notices
from edgemeter.collector.alerts.delivery import Sent
from edgemeter.collector.alerts.firing import FiringContext, firings, judged_trends
from edgemeter.collector.alerts.lifecycle import AlertChange
from edgemeter.collector.alerts.notices import Notice
from edgemeter.collector.alerts.rules import AlertRules
from edgemeter.collector.alerts.waiting import WaitingChannel, waiting_channels
from edgemeter.collector.index.history import LedgerHistory
from edgemeter.collector.ledgers.place import ledger_place, open_ledger
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.trend.watch_file import WatchStore, read_annotations

_BEGUN = "INSERT INTO alert_checks (number, started_ns) VALUES (1, ?) ON CONFLICT (number) DO UPDATE SET started_ns = excluded.started_ns"


@dataclass(frozen=True, slots=True)
class AlertCheck:
    """The result of a check: changes of alerts, what became of each channel, and where notices still wait.

    `judged` are the series whose trends the rules read, and `open_alerts` how many alerts are open after the check.
    """

    judged: Sequence[SeriesTrend]
    open_alerts: int
    changes: Sequence[AlertChange]
    sent: Sequence[Sent]
    waiting: Sequence[WaitingChannel]


def check_alerts(history: History, store: str, file: WatchStore, rules: AlertRules, now_ns: int, *, is_dry: bool = False) -> AlertCheck:
    """Check the rules once; with `is_dry` nothing is written and nothing sent.

    Raises:
        TransientError: another check is in progress, or somebody else holds the store.
        UnavailableError: the disk is full. What was not noted is not sent.
    """
    with open_ledger(ledger_place(store), "read") if isinstance(history, LedgerHistory) else nullcontext() as ledger:
        devices = ledger.devices() if ledger else ()
    context = FiringContext(history, read_annotations(file), devices, now_ns)
    firing_now, judged = firings(rules.rule, context), judged_trends(rules.rule, context)
    if is_dry:
        with file.reading() as statements:
            alerts = lifecycle.alerts_of(statements, with_closed=True)
            changes, ended = lifecycle.alert_changes(alerts, firing_now, now_ns)
            changed = [change.alert for change in (*changes, *ended)]
            numbers = {alert.number for alert in changed}
            after = [*changed, *(alert for alert in alerts if alert.number not in numbers)]
            open_alerts = sum(alert.closed_ns is None for alert in after)
            return AlertCheck(judged, open_alerts, changes, (), _waiting(waiting_channels(statements), rules))

    def queue(statements: Statements, changes: Sequence[AlertChange]) -> None:
        outbox.queue_notices(statements, rules, changes, now_ns)
        _begin(statements, rules, now_ns)

    with file.checking():
        changes = lifecycle.settle_alerts(file, firing_now, now_ns, queue)
        sent = delivery.deliver(file, rules, now_ns)
        with file.writing() as statements:
            statements.execute("UPDATE alert_checks SET ended_ns = ?", (time.time_ns(),))
            waiting, open_alerts = waiting_channels(statements), len(lifecycle.alerts_of(statements))
    return AlertCheck(judged, open_alerts, changes, sent, _waiting(waiting, rules))


def send_waiting(file: WatchStore, rules: AlertRules, now_ns: int, *, is_retry: bool = False) -> Sequence[Sent]:
    """Send what waits from earlier checks, with `is_retry` also what is not due yet: an evaluation that fails must not hold it up.

    Raises:
        TransientError, UnavailableError: as `check_alerts`.
    """
    with file.checking():
        with file.writing() as statements:
            _begin(statements, rules, now_ns)
        return delivery.deliver(file, rules, now_ns, is_retry=is_retry)


def _begin(statements: Statements, rules: AlertRules, now_ns: int) -> None:
    # Written each time: where nothing can be written, nothing is sent that would be sent again.
    statements.execute(_BEGUN, (now_ns,))
    outbox.update_states(statements, rules, now_ns)


def planned_sends(rules: AlertRules, changes: Sequence[AlertChange]) -> Mapping[str, int]:
    """Return how many notices of `changes` each channel would be sent."""
    return Counter(channel.name for channel, _ in outbox.planned_notices(rules, changes))


def send_test(rules: AlertRules, name: str) -> None:
    """Send a test notice to a channel; raises ConfigError if the channel does not exist."""
    channels = {channel.name: channel for channel in rules.channel}
    if name not in channels:
        raise ConfigError(f"no channel {name!r}: the rules define {', '.join(channels) or 'none'}")
    text = "Sent by `edgemeter trend alerts test`: no alert has opened."
    notice = Notice("opened", 0, "test", "info", "test of Edgemeter", text, {}, "1970-01-01T00:00:00Z", None, rules.link)
    channel = channels[name]
    delivery.within(delivery.MESSAGE_S, lambda: send_notices(channel, [notice]), channel)


def _waiting(channels: Sequence[WaitingChannel], rules: AlertRules) -> list[WaitingChannel]:
    """Return where notices wait; those of a channel that was removed are kept, as the file of rules may be the wrong one."""
    names = {channel.name for channel in rules.channel}
    gone = "the rules have no such channel: restore it, or drop them with `edgemeter trend alerts drop`"
    return [channel if channel.channel in names else replace(channel, error=gone, next_ns=0) for channel in channels]
