"""The outbox of the alerts: what each channel has yet to be told, from the transaction that changes an alert until it is delivered or over.

Of an alert a channel waits for one notice, the newest: what is over before a channel heard of it is told as over alone, or, if the channel
is not told the end of alerts, only if it comes back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.statements import Statements
from edgemeter.collector.alerts.lifecycle import Alert, AlertChange, alerts_of
from edgemeter.collector.alerts.notices import Notice, notice_of_alert
from edgemeter.collector.alerts.rules import AlertEvent, AlertRules, Channel
from edgemeter.collector.alerts.waiting import SINCE
from edgemeter.collector.trend.watch_file import WatchStore

NS_PER_S = 1_000_000_000
# The pause after a failure doubles up to the longest; a refusal, which waiting alone does not mend, has one of its own.
FIRST_PAUSE_NS, LONGEST_PAUSE_NS, REFUSED_PAUSE_NS = 60 * NS_PER_S, 900 * NS_PER_S, 1800 * NS_PER_S

NoticeState = Literal["due", "quiet", "refused", "over"]
_ROWS = f"""SELECT channel, alert, unsent.number, event, tries, error, {SINCE}, next_ns, unsent.state
FROM unsent JOIN alerts ON alerts.number = alert ORDER BY channel, alert, unsent.number"""  # noqa: S608 - our own names
_INSERT = "INSERT INTO unsent (alert, channel, event, tries, since_ns, next_ns, state) VALUES (?, ?, ?, 0, ?, 0, 'due')"
# What was over before it was sent can come back for so long.
_OVER_NS = 60 * NS_PER_DAY


@dataclass(frozen=True, slots=True)
class UnsentNotice:
    """A notice that waits: the rows it consists of, why it was not accepted, and when it is tried again. `number` is that of the newest."""

    numbers: tuple[int, ...]
    channel: str
    alert: Alert
    event: AlertEvent
    tries: int
    error: str | None
    since_ns: int
    next_ns: int
    state: NoticeState

    @property
    def is_held(self) -> bool:
        """Whether nobody expects it now: it waits for the end of quiet times, or is over."""
        return self.state in ("quiet", "over")

    @property
    def number(self) -> int:
        """The number of the newest row."""
        return self.numbers[-1]

    def notice(self, page: str | None) -> Notice:
        """Return what is sent: the alert as it is now."""
        return notice_of_alert(self.event, self.alert, page, f"{self.since_ns:x}.{self.number}")

    def is_due(self, at_ns: int, now_ns: int) -> bool:
        """Return whether its pause is over at a time; one too far ahead of now is of a clock that was stepped back."""
        return not at_ns < self.next_ns <= now_ns + REFUSED_PAUSE_NS


def due_notices(of_channel: Sequence[UnsentNotice], now_ns: int) -> list[UnsentNotice]:
    """Return the notices of a channel that are tried now: where one is due, also others that wait because it could not be reached."""
    due = [unsent for unsent in of_channel if unsent.is_due(now_ns, now_ns)]
    return due and [unsent for unsent in of_channel if unsent.is_due(now_ns + LONGEST_PAUSE_NS * (unsent.state == "due"), now_ns)]


def unsent_notices(statements: Statements) -> list[UnsentNotice]:
    """Return everything that waits, by channel and alert."""
    rows = statements.execute(_ROWS).fetchall()
    alerts = {alert.number: alert for alert in alerts_of(statements, with_closed=True)} if rows else {}
    return [
        _newest(channel, alerts[alert], [row[2:] for row in of_alert]) for (channel, alert), of_alert in groupby(rows, lambda row: row[:2])
    ]


def _newest(channel: str, alert: Alert, rows: Sequence[tuple[int, AlertEvent, int, str | None, int, int, NoticeState]]) -> UnsentNotice:
    events = [row[1] for row in rows]
    event: AlertEvent = next(event for event in ("closed", "opened", "updated") if event in events)
    errors = [row[3] for row in rows if row[3] is not None]
    numbers, tries = tuple(row[0] for row in rows), max(row[2] for row in rows)
    return UnsentNotice(numbers, channel, alert, event, tries, errors[-1] if errors else None, *rows[-1][4:])


def planned_notices(rules: AlertRules, changes: Sequence[AlertChange]) -> Iterator[tuple[Channel, AlertChange]]:
    """Yield each channel with the changes that it is told."""
    of_rule = {rule.name: rule.channels for rule in rules.rule}
    for channel in rules.channel:
        for change in changes:
            if change.event in channel.send and channel.name in of_rule.get(change.alert.firing.rule, ()):
                yield channel, change


def queue_notices(statements: Statements, rules: AlertRules, changes: Sequence[AlertChange], now_ns: int) -> None:
    """Queue what the changes of a check, and alerts that nobody acknowledged, have the channels told."""
    # Who was not told yet that an alert is over need not be told that it is back.
    unaware = set(statements.execute("SELECT channel, alert FROM unsent WHERE event = 'closed'").fetchall())
    for change in changes:
        superseded = "updated" if change.event == "closed" else "closed"
        statements.execute("DELETE FROM unsent WHERE alert = ? AND event = ?", (change.alert.number, superseded))
    for channel, change in planned_notices(rules, changes):
        if change.event != "opened" or (channel.name, change.alert.number) not in unaware:
            _queue(statements, channel.name, change.alert.number, change.event, now_ns)
    _queue_repeats(statements, rules, now_ns)


def _queue(statements: Statements, channel: str, alert: int, event: AlertEvent, now_ns: int) -> None:
    # What repeats an alert only where nothing of it waits.
    waits = "SELECT 1 FROM unsent WHERE channel = ? AND alert = ?"
    if event != "updated" or statements.execute(waits, (channel, alert)).fetchone() is None:
        statements.execute(_INSERT, (alert, channel, event, now_ns))


def _queue_repeats(statements: Statements, rules: AlertRules, now_ns: int) -> None:
    of_rule = {rule.name: rule for rule in rules.rule}
    # Alertmanager expects every open alert to be sent repeatedly.
    managers = {channel.name for channel in rules.channel if channel.kind == "alertmanager"}
    listeners = {channel.name for channel in rules.channel if "opened" in channel.send} - managers
    query = "SELECT number, rule, coalesce(repeated_ns, opened_ns), outcome FROM alerts WHERE closed_ns IS NULL"
    for number, name, before_ns, outcome in statements.execute(query).fetchall():
        rule = of_rule.get(name)
        channels = managers.intersection(rule.channels) if rule else set()
        # Where the clock was stepped back it is due as well.
        if rule and rule.repeat_hours and outcome is None and not 0 <= now_ns - before_ns < rule.repeat_hours * 3600 * NS_PER_S:
            channels |= listeners.intersection(rule.channels)
            statements.execute("UPDATE alerts SET repeated_ns = ? WHERE number = ?", (now_ns, number))
        for channel in channels:
            _queue(statements, channel, number, "updated", now_ns)


def update_states(statements: Statements, rules: AlertRules, now_ns: int) -> None:
    """Hold what waits for the end of a channel's quiet times, by this machine's clock, or is over; release the others."""
    at = datetime.fromtimestamp(now_ns / 1e9).astimezone().time()
    channels = {channel.name: channel for channel in rules.channel}
    for unsent in unsent_notices(statements):
        channel, closed_ns = channels.get(unsent.channel), unsent.alert.closed_ns
        state: NoticeState = "refused" if unsent.state == "refused" else "due"
        if closed_ns is not None and unsent.event != "closed":
            state = "over"
        elif channel is not None and channel.keeps_quiet(unsent.alert.firing.severity, at):
            state = "quiet"
        if state == "over" and closed_ns is not None and now_ns - closed_ns > _OVER_NS:
            delivered(statements, [unsent])
        elif state != unsent.state:
            changes = [(state, number) for number in unsent.numbers]
            statements.executemany("UPDATE unsent SET state = ? WHERE number = ?", changes)


def delivered(statements: Statements, unsent_notices: Sequence[UnsentNotice]) -> None:
    """Forget what is delivered."""
    numbers = [(number,) for unsent in unsent_notices for number in unsent.numbers]
    statements.executemany("DELETE FROM unsent WHERE number = ?", numbers)


def not_delivered(
    statements: Statements, unsent_notices: Sequence[UnsentNotice], error: str, next_ns: int, state: NoticeState | None = None
) -> None:
    """Keep what was not accepted, with the reason and in its `state` or a new one, until it is tried again."""
    values = [(error, next_ns, state or unsent.state, number) for unsent in unsent_notices for number in unsent.numbers]
    statements.executemany("UPDATE unsent SET tries = tries + 1, error = ?, next_ns = ?, state = ? WHERE number = ?", values)


def drop_notices(file: WatchStore, numbers: Sequence[int], channel: str | None) -> int:
    """Drop notices by their numbers, or all of a channel; return how many. Raises ConfigError if nothing of that kind waits."""
    with file.writing() as statements:
        waiting = unsent_notices(statements)
        dropped = [unsent for unsent in waiting if unsent.channel == channel or not {*numbers}.isdisjoint(unsent.numbers)]
        if not dropped:
            raise ConfigError(f"no such notice waits in {file.where!r}: see `edgemeter trend alerts list`")
        delivered(statements, dropped)
    return len(dropped)
