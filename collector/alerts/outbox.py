"""The outbox of the alerts: what each channel has yet to be told, from the transaction that changes an alert until it is delivered or over.

Of an alert a channel waits for one notice, the newest: what is over before a channel heard of it is told as over alone, or, if the channel
is not told the end of alerts, only if it comes back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import time
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

    def is_due(self, now_ns: int, within_ns: int = 0) -> bool:
        """Return whether it is tried now; a time too far ahead is of a clock that was stepped back."""
        return not now_ns + within_ns < self.next_ns <= now_ns + REFUSED_PAUSE_NS


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


def queue_notices(statements: Statements, rules: AlertRules, changes: Sequence[AlertChange], now_ns: int, at: time) -> None:
    """Queue what the changes of a check, and alerts that nobody acknowledged, have the channels told; `at` is the time of the day."""
    for change in changes:
        superseded = {"closed": "updated", "updated": "closed"}.get(change.event)
        statements.execute("DELETE FROM unsent WHERE alert = ? AND event = ?", (change.alert.number, superseded))
    for channel, change in planned_notices(rules, changes):
        keep_notice(statements, channel.name, change.alert.number, change.event, now_ns)
    _queue_repeats(statements, rules, now_ns)
    _update_states(statements, rules, now_ns, at)


def keep_notice(statements: Statements, channel: str, alert: int, event: AlertEvent, now_ns: int) -> None:
    """Queue one notice; what repeats an alert only where nothing of it waits."""
    waits = "SELECT 1 FROM unsent WHERE channel = ? AND alert = ?"
    if event != "updated" or statements.execute(waits, (channel, alert)).fetchone() is None:
        statements.execute(_INSERT, (alert, channel, event, now_ns))


def _queue_repeats(statements: Statements, rules: AlertRules, now_ns: int) -> None:
    of_rule = {rule.name: rule for rule in rules.rule if rule.repeat_hours is not None}
    channels = {channel.name for channel in rules.channel if "opened" in channel.send and channel.kind != "alertmanager"}
    query = "SELECT number, rule, coalesce(repeated_ns, opened_ns) FROM alerts WHERE closed_ns IS NULL AND outcome IS NULL"
    for number, name, told_ns in statements.execute(query).fetchall() if of_rule else ():
        rule = of_rule.get(name)
        # Where the clock was stepped back it is due as well.
        if rule is None or rule.repeat_hours is None or 0 <= now_ns - told_ns < rule.repeat_hours * 3600 * NS_PER_S:
            continue
        for channel in channels.intersection(rule.channels):
            keep_notice(statements, channel, number, "updated", now_ns)
        statements.execute("UPDATE alerts SET repeated_ns = ? WHERE number = ?", (now_ns, number))


def _update_states(statements: Statements, rules: AlertRules, now_ns: int, at: time) -> None:
    channels = {channel.name: channel for channel in rules.channel}
    for unsent in unsent_notices(statements):
        channel, closed_ns = channels.get(unsent.channel), unsent.alert.closed_ns
        state: NoticeState = "refused" if unsent.state == "refused" else "due"
        if closed_ns is not None and unsent.event != "closed":
            state = "over"
        elif channel is not None and channel.keeps_quiet(unsent.alert.firing.severity, at):
            state = "quiet"
        if state == "over" and closed_ns is not None and now_ns - closed_ns > _OVER_NS:
            delivered(statements, unsent.numbers)
        elif state != unsent.state:
            _update(statements, unsent.numbers, "state = ?", state)


def delivered(statements: Statements, numbers: Sequence[int]) -> None:
    """Forget rows that are delivered."""
    statements.executemany("DELETE FROM unsent WHERE number = ?", [(number,) for number in numbers])


def drop_notices(file: WatchStore, numbers: Sequence[int], channel: str | None) -> int:
    """Drop notices by their numbers, or all of a channel; return how many. Raises ConfigError if nothing of that kind waits."""
    with file.writing() as statements:
        waiting = unsent_notices(statements)
        dropped = [unsent for unsent in waiting if unsent.channel == channel or not {*numbers}.isdisjoint(unsent.numbers)]
        if not dropped:
            raise ConfigError(f"no such notice waits in {file.where!r}: see `edgemeter trend alerts list`")
        delivered(statements, [number for unsent in dropped for number in unsent.numbers])
    return len(dropped)


def refused(statements: Statements, unsent: UnsentNotice, error: str, now_ns: int) -> None:
    """Keep a notice whose message was refused; the next time it has a message of its own."""
    changes = "state = 'refused', tries = tries + 1, error = ?, next_ns = ?"
    _update(statements, unsent.numbers, changes, error, now_ns + REFUSED_PAUSE_NS)


def failed(statements: Statements, waiting: Sequence[UnsentNotice], error: str, now_ns: int, pause_ns: int | None = None) -> None:
    """Keep the notices of a channel that could not be reached, for `pause_ns`, by default longer after each failure."""
    tries = max((unsent.tries for unsent in waiting), default=0)
    pause_ns = min(FIRST_PAUSE_NS << min(tries, 10), LONGEST_PAUSE_NS) if pause_ns is None else pause_ns
    for unsent in waiting:
        _update(statements, unsent.numbers, "tries = tries + 1, error = ?, next_ns = ?", error, now_ns + pause_ns)


def _update(statements: Statements, numbers: Sequence[int], changes: str, *values: object) -> None:
    statements.executemany(f"UPDATE unsent SET {changes} WHERE number = ?", [(*values, number) for number in numbers])  # noqa: S608 - ours
