"""The alerts: what is open, when each was opened and closed, and the way to its series and period."""

import time

from edgemeter.agent.base import figures
from edgemeter.collector.alerts.firing import Firing, page_address
from edgemeter.collector.alerts.lifecycle import Alert
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.specs import periods
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import Markup, element, join, part
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import BRUSH, Links, View, ViewColumn, ViewRequest, grid, link, note, section

SHOWN, DRAWN, MEMBERS_SHOWN = 200, 40, 20


def alerts_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:  # noqa: ARG001 - every view has the same signature
    """Return the alerts, the open ones first, then the newest."""
    firings = sorted(context.events.alerts(), key=lambda firing: (firing.closed_ns is not None, -firing.opened_ns))
    if not firings:
        text = "No alert was ever opened here. `edgemeter trend alerts check --ledger LEDGER` evaluates the rules."
        return View("No alerts", note(text))
    table, plain = grid("alerts", _columns(context.links), firings[:SHOWN], lambda alert: {"data-at": str(alert.opened_ns)})
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
    remark = note(f"{len(firings) - SHOWN} older alerts: edgemeter trend alerts list --all.") if len(firings) > SHOWN else ""
    parts = [
        *(element("p", {"class": "caution"}, channel.sentence) for channel in context.events.waiting()),
        section("when", "When", part("gallery", [context.sheet.draw(chart)]), note(f"Narrow the list to a period: {BRUSH}.")),
        section("list", "Alerts", table, remark),
    ]
    return View(f"{figures.count(count, 'open alert')}, {len(firings) - count} closed", join(parts), "", (plain,))


def _columns(links: Links) -> list[ViewColumn[Alert]]:
    def state(alert: Alert) -> str:
        return (alert.outcome or "open") if alert.closed_ns is None else f"closed, {alert.outcome or 'not reviewed'}"

    def closed(alert: Alert) -> str:
        return figures.stamp(alert.closed_ns) if alert.closed_ns else ""

    return [
        ViewColumn("number", "#", lambda alert: alert.number),
        ViewColumn("state", "State", state, is_text=True),
        ViewColumn("severity", "Severity", lambda alert: alert.firing.severity, is_text=True),
        ViewColumn("started_at_ns", "Opened (UTC)", lambda alert: alert.opened_ns, lambda alert: figures.stamp(alert.opened_ns)),
        ViewColumn("closed_at_ns", "Closed (UTC)", lambda alert: alert.closed_ns, closed),
        ViewColumn("rule", "Rule", lambda alert: alert.firing.rule, is_text=True),
        ViewColumn(
            "alert", "Alert", lambda alert: alert.firing.title, lambda alert: _linked(alert.firing, alert.firing.title, links), is_text=True
        ),
        ViewColumn("evidence", "Evidence", lambda alert: alert.firing.text, lambda alert: _evidence(alert.firing, links), is_text=True),
    ]


def _evidence(firing: Firing, links: Links) -> Markup:
    if not firing.members:
        return element("div", {"class": "prose"}, firing.text)
    members = [(Firing("", member.subject, "", "", "", member.day, member.facts), member) for member in firing.members[:MEMBERS_SHOWN]]
    lines = [element("li", None, _linked(event, member.subject, links), f": {member.text}") for event, member in members]
    if len(firing.members) > MEMBERS_SHOWN:
        lines.append(element("li", None, f"{len(firing.members) - MEMBERS_SHOWN} more"))
    summary = element("summary", None, figures.count(len(firing.members), "finding"))
    return element("div", {"class": "prose"}, firing.text, element("details", None, summary, element("ul", None, *lines)))


def _linked(firing: Firing, text: str, links: Links) -> Markup:
    view, fields = page_address(firing)
    return link(links.to(view, **fields) if view != "alerts" else None, text)
