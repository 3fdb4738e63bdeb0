"""Alerts, checks and the health of rules as text, tables and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.figures import ABSENT, count, printable, stamp
from edgemeter.collector.alerts.channels import Notice
from edgemeter.collector.alerts.check import AlertCheck
from edgemeter.collector.alerts.lifecycle import Alert, RuleHealth
from edgemeter.collector.trend.finding import iso


def check_text(done: AlertCheck, plan: Mapping[str, Sequence[Notice]]) -> str:
    """Return what a check did (or a dry run would do) as lines."""
    lines = [
        f"{change.event:8} [{change.alert.firing.severity}] {change.alert.firing.title}: {change.alert.firing.text}"
        for change in done.changes
    ]
    lines += [f"would send {count(len(notices), 'notice')} to {name}" for name, notices in plan.items() if notices]
    lines += [f"sent {count(one.notices, 'notice')} to {one.channel}" for one in done.sent if one.error is None]
    return "\n".join(map(printable, lines)) or "no changes"


def check_json(done: AlertCheck, plan: Mapping[str, Sequence[Notice]]) -> str:
    """Return what a check did as JSON."""
    return json_document(
        {
            "changes": [{"event": change.event, "alert": _row(change.alert)} for change in done.changes],
            "sent": [asdict(one) for one in done.sent],
            "would_send": {name: len(notices) for name, notices in plan.items() if notices},
        }
    )


def alerts_table(found: Sequence[Alert], *, with_members: bool = False) -> Table:
    """Return alerts as a table, of each event its members below it if they are asked for."""
    shown = Table(*(Column(name, overflow="fold") for name in ("#", "state", "severity", "since", "rule", "alert", "evidence")))
    for alert in found:
        one = alert.firing
        state = alert.outcome or "open" if alert.closed_ns is None else f"closed, {alert.outcome}"
        cells = (f"{alert.number}", state, one.severity, stamp(alert.opened_ns), one.rule, one.title, one.text)
        shown.add_row(*(Text(printable(cell)) for cell in cells))
        for member in one.members if with_members else ():
            shown.add_row(*[""] * 5, Text(printable(member.subject)), Text(printable(member.text)))
    return shown


def alerts_json(found: Sequence[Alert]) -> str:
    """Return alerts as JSON."""
    return json_document({"alerts": [_row(alert) for alert in found]})


def health_table(found: Sequence[RuleHealth]) -> Table:
    """Return the health of rules as a table."""
    headings = ("rule", "opened", "open now", "confirmed", "dismissed", "not judged", "real", "most often")
    shown = Table(*(Column(name, overflow="fold") for name in headings))
    for one in found:
        real = ABSENT if one.precise_ratio is None else f"{one.precise_ratio:.0%}"
        figures = (one.opened, one.open_now, one.confirmed, one.dismissed, one.not_judged)
        shown.add_row(printable(one.rule), *map(str, figures), real, printable(one.noisiest or ABSENT))
    return shown


def health_json(found: Sequence[RuleHealth]) -> str:
    """Return the health of rules as JSON."""
    return json_document({"rules": [asdict(one) for one in found]})


def _row(alert: Alert) -> dict[str, Any]:
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
