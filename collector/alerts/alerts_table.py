"""Alerts, checks and the health of rules as text, tables and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.figures import ABSENT, count, printable, stamp
from edgemeter.collector.alerts.check import AlertCheck
from edgemeter.collector.alerts.lifecycle import Alert, RuleHealth
from edgemeter.collector.alerts.outbox import UnsentNotice
from edgemeter.collector.alerts.waiting import WaitingChannel
from edgemeter.collector.trend.finding import iso


def check_text(result: AlertCheck, plan: Mapping[str, int]) -> str:
    """Return what a check did (or a dry run would do) as lines."""
    lines = [
        f"{change.event:8} [{change.alert.firing.severity}] {change.alert.firing.title}: {change.alert.firing.text}"
        for change in result.changes
    ]
    lines += [f"would send {count(notices, 'notice')} to {name}" for name, notices in plan.items()]
    lines += [f"sent {count(delivery.notices, 'notice')} to {delivery.channel}" for delivery in result.sent if delivery.notices]
    return "\n".join(map(printable, [*lines, _judged_text(result)]))


def _judged_text(result: AlertCheck) -> str:
    state = f"{count(result.open_alerts, 'alert')} open" if result.open_alerts else "no alert"
    if not result.judged:
        return f"judged no series: {state}"
    series, metrics = (len({getattr(trend, name) for trend in result.judged}) for name in ("key", "metric"))
    days = max(trend.last_day for trend in result.judged) - min(trend.first_day for trend in result.judged) + 1
    return f"judged {series:,} series of {count(metrics, 'metric')} over {count(days, 'day')}: {state}"


def check_json(result: AlertCheck, plan: Mapping[str, int]) -> str:
    """Return what a check did as JSON."""
    return json_document(
        {
            "changes": [{"event": change.event, "alert": alert_row(change.alert)} for change in result.changes],
            "sent": [asdict(delivery) for delivery in result.sent],
            "would_send": plan,
            "waiting": [asdict(channel) for channel in result.waiting],
        }
    )


def waiting_text(channel: WaitingChannel) -> str:
    """Return in one line how many notices a channel has not got, since when, why, and when they are tried again."""
    next_try = f"; again at {stamp(channel.next_ns)} UTC" if channel.next_ns else ""
    return printable(f"{channel.sentence}{next_try}")


def alerts_table(alerts: Sequence[Alert], *, with_members: bool = False) -> Table:
    """Return alerts as a table, of each event its members below it if they are asked for."""
    table = Table(*(Column(name, overflow="fold") for name in ("#", "state", "severity", "since", "rule", "alert", "evidence")))
    for alert in alerts:
        firing = alert.firing
        state = alert.outcome or "open" if alert.closed_ns is None else f"closed, {alert.outcome}"
        cells = (f"{alert.number}", state, firing.severity, stamp(alert.opened_ns), firing.rule, firing.title, firing.text)
        table.add_row(*(Text(printable(cell)) for cell in cells))
        for member in firing.members if with_members else ():
            table.add_row(*[""] * 5, Text(printable(member.subject)), Text(printable(member.text)))
    return table


def unsent_table(unsent_notices: Sequence[UnsentNotice]) -> Table:
    """Return the notices that wait as a table, with the reason."""
    table = Table(
        *(Column(name, overflow="fold") for name in ("notice", "alert", "channel", "event", "since", "tries", "again", "waits for"))
    )
    for unsent in unsent_notices:
        alert, since = f"#{unsent.alert.number} {unsent.alert.firing.title}", stamp(unsent.since_ns)
        next_try = stamp(unsent.next_ns) if unsent.next_ns else "at the next check"
        cells = (f"{unsent.number}", alert, unsent.channel, unsent.event, since, f"{unsent.tries}", next_try, _reason(unsent))
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _reason(unsent: UnsentNotice) -> str:
    return "the end of the channel's quiet times" if unsent.state == "quiet" else unsent.error or "its first delivery"


def unsent_row(unsent: UnsentNotice) -> dict[str, Any]:
    """Return a notice that waits, for machines."""
    return {
        "notice": unsent.number,
        "alert": unsent.alert.number,
        "channel": unsent.channel,
        "event": unsent.event,
        "since": stamp(unsent.since_ns),
        "tries": unsent.tries,
        "next": stamp(unsent.next_ns) if unsent.next_ns else None,
        "state": unsent.state,
        "reason": _reason(unsent),
    }


def health_table(health: Sequence[RuleHealth]) -> Table:
    """Return the health of rules as a table."""
    headings = ("rule", "opened", "open now", "confirmed", "dismissed", "not reviewed", "real", "most often")
    table = Table(*(Column(name, overflow="fold") for name in headings))
    for rule in health:
        real = ABSENT if rule.precise_ratio is None else f"{rule.precise_ratio:.0%}"
        figures = (rule.opened, rule.open_now, rule.confirmed, rule.dismissed, rule.not_judged)
        table.add_row(printable(rule.rule), *map(str, figures), real, printable(rule.noisiest or ABSENT))
    return table


def alert_row(alert: Alert) -> dict[str, Any]:
    """Return an alert for machines."""
    return {
        "number": alert.number,
        "state": "open" if alert.closed_ns is None else "closed",
        "outcome": alert.outcome,
        "remark": alert.remark,
        "opened": stamp(alert.opened_ns),
        "updated": stamp(alert.updated_ns),
        "closed": None if alert.closed_ns is None else stamp(alert.closed_ns),
        "first_day": iso(alert.firing.day) if alert.firing.day else None,
        **{name: value for name, value in asdict(alert.firing).items() if name != "day"},
    }
