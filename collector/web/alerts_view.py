"""The alerts: what is open, when each was opened and closed, and the way to its series and period."""

import time
from functools import partial
from operator import attrgetter

from edgemeter.agent.base import figures
from edgemeter.collector.alerts.firing import Firing, FiringMember, page_address
from edgemeter.collector.alerts.lifecycle import Alert
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.specs import periods
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import BRUSH, Links, View, ViewColumn, ViewGrid, ViewRequest

SHOWN, DRAWN = 200, 40


def alerts_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:  # noqa: ARG001 - every view has the same signature
    """Return the alerts, the open ones first, then the newest."""
    firings = sorted(context.events.alerts(), key=lambda firing: (firing.closed_ns is not None, -firing.opened_ns))
    if not firings:
        text = "No alert was ever opened here. `edgemeter trend alerts check --ledger LEDGER` evaluates the rules."
        return View("No alerts", context.render("message.html", text=text))
    alerts = ViewGrid("alerts", _COLUMNS, [firings[:SHOWN]], lambda alert: {"data-at": str(alert.opened_ns)})
    count = sum(alert.closed_ns is None for alert in firings)
    rows = [
        {
            "alert": f"#{alert.number} {alert.firing.title}"[:80],
            "rule": alert.firing.rule,
            "started_at_ns": alert.opened_ns,
            "end_ns": alert.closed_ns or time.time_ns(),
            "state": "open" if alert.closed_ns is None else "closed",
            "text": alert.firing.text,
        }
        for alert in firings[:DRAWN]
    ]
    chart = Chart("When alerts were open", periods(len(rows)), rows_table(rows), brushes=True, kind="wide")
    body = context.render(
        "alerts.html",
        waiting=context.events.waiting(),
        chart=chart,
        brush=BRUSH,
        alerts=alerts,
        address=partial(_address, context.links),
        member_address=partial(_member_address, context.links),
        older=len(firings) - SHOWN,
    )
    return View(f"{figures.count(count, 'open alert')}, {len(firings) - count} closed", body, "", (alerts.plain,))


def _state(alert: Alert) -> str:
    return (alert.outcome or "open") if alert.closed_ns is None else f"closed, {alert.outcome or 'not reviewed'}"


_COLUMNS: list[ViewColumn[Alert]] = [
    ViewColumn("number", "#", attrgetter("number")),
    ViewColumn("state", "State", _state, is_text=True),
    ViewColumn("severity", "Severity", attrgetter("firing.severity"), is_text=True),
    ViewColumn("started_at_ns", "Opened (UTC)", attrgetter("opened_ns"), lambda alert: figures.stamp(alert.opened_ns)),
    ViewColumn(
        "closed_at_ns",
        "Closed (UTC)",
        attrgetter("closed_ns"),
        lambda alert: figures.stamp(alert.closed_ns) if alert.closed_ns else "",
    ),
    ViewColumn("rule", "Rule", attrgetter("firing.rule"), is_text=True),
    ViewColumn("alert", "Alert", attrgetter("firing.title"), is_text=True),
    ViewColumn("evidence", "Evidence", attrgetter("firing.text"), is_text=True),
]


def _address(links: Links, firing: Firing) -> str | None:
    """Return the way to the series and the period of what fired."""
    view, fields = page_address(firing)
    return links.to(view, **fields) if view != "alerts" else None


def _member_address(links: Links, member: FiringMember) -> str | None:
    return _address(links, Firing("", member.subject, "", "", "", member.day, member.facts))
