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
    found = sorted(context.events.alerts(), key=lambda one: (one.closed_ns is not None, -one.opened_ns))
    if not found:
        text = "No alert was ever opened here. Evaluate the rules with: edgemeter trend alerts check --store LEDGER."
        return View("No alerts", note(text))
    columns = _columns(context.links)
    table, plain = grid("alerts", columns, found[:SHOWN], lambda one: {"data-at": str(one.opened_ns)})
    count = sum(one.closed_ns is None for one in found)
    chart = Chart(
        "When alerts were open",
        periods(min(len(found), DRAWN)),
        rows_table([_row(one) for one in found[:DRAWN]]),
        brushes=True,
        kind="wide",
    )
    more = note(f"{len(found) - SHOWN} older alerts: edgemeter trend alerts list --all.") if len(found) > SHOWN else ""
    parts = [
        section("when", "When", part("gallery", [context.sheet.draw(chart)]), note(f"Narrow the list to a period: {BRUSH}.")),
        section("list", "Alerts", table, more),
    ]
    return View(f"{figures.count(count, 'open alert')}, {len(found) - count} closed", join(parts), "", (plain,))


def _row(one: Alert) -> dict[str, str | int]:
    return {
        "alert": f"#{one.number} {one.firing.title}"[:80],
        "rule": one.firing.rule,
        "started_at_ns": one.opened_ns,
        "end_ns": one.closed_ns or time.time_ns(),
        "state": "open" if one.closed_ns is None else "closed",
        "text": one.firing.text,
    }


def _columns(links: Links) -> list[ViewColumn[Alert]]:
    return [
        ViewColumn("number", "#", lambda one: one.number),
        ViewColumn(
            "state",
            "State",
            lambda one: (one.outcome or "open") if one.closed_ns is None else f"closed, {one.outcome or 'not judged'}",
            is_text=True,
        ),
        ViewColumn("severity", "Severity", lambda one: one.firing.severity, is_text=True),
        ViewColumn("started_at_ns", "Opened (UTC)", lambda one: one.opened_ns, lambda one: figures.stamp(one.opened_ns)),
        ViewColumn(
            "closed_at_ns", "Closed (UTC)", lambda one: one.closed_ns, lambda one: figures.stamp(one.closed_ns) if one.closed_ns else ""
        ),
        ViewColumn("rule", "Rule", lambda one: one.firing.rule, is_text=True),
        ViewColumn("alert", "Alert", lambda one: one.firing.title, lambda one: _linked(one.firing, one.firing.title, links), is_text=True),
        ViewColumn("evidence", "Evidence", lambda one: one.firing.text, lambda one: _evidence(one, links), is_text=True),
    ]


def _evidence(one: Alert, links: Links) -> Markup:
    """Return what an alert rests on, of an event its members on demand."""
    members = one.firing.members
    if not members:
        return element("div", {"class": "prose"}, one.firing.text)
    lines = [
        element(
            "li", None, _linked(Firing("", member.subject, "", "", "", member.day, member.facts), member.subject, links), f": {member.text}"
        )
        for member in members[:MEMBERS_SHOWN]
    ]
    rest = [element("li", None, f"{len(members) - MEMBERS_SHOWN} more")] if len(members) > MEMBERS_SHOWN else []
    summary = element("summary", None, figures.count(len(members), "finding"))
    return element("div", {"class": "prose"}, one.firing.text, element("details", None, summary, element("ul", None, *lines, *rest)))


def _linked(one: Firing, text: str, links: Links) -> Markup:
    view, fields = page_address(one)
    return link(links.to(view, **fields) if view != "alerts" else None, text)
