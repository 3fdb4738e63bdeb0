"""The alerts: what is open, when each was opened and closed, and the way to its series and period."""

import time

from edgemeter.agent.base import figures
from edgemeter.collector.alerts.lifecycle import Alert
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.specs import periods
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import join, part
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.series import FIGURE_OF
from edgemeter.collector.web.view import Links, View, ViewColumn, ViewRequest, grid, link, note, section

SHOWN, DRAWN = 200, 40
# Of an alert's series the page shows so many days before its first day, and after.
DAYS_BEFORE, DAYS_AFTER, MS_PER_DAY = 14, 30, 86_400_000


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
        section("when", "When", part("gallery", [context.sheet.draw(chart)]), note("Drag over the chart to narrow the list to a period.")),
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
        ViewColumn(
            "alert", "Alert", lambda one: one.firing.title, lambda one: link(_reference(one, links), one.firing.title), is_text=True
        ),
        ViewColumn("evidence", "Evidence", lambda one: one.firing.text, is_text=True),
    ]


def _reference(one: Alert, links: Links) -> str | None:
    facts = one.firing.facts
    if "model" not in facts:
        return links.to("device", fleet=facts.get("fleet", ""), device=facts["device"]) if "device" in facts else None
    fields: dict[str, str] = {name: facts[name] for name in ("fleet", "device", "board", "model", "precision") if name in facts}
    metric = FIGURE_OF.get(facts.get("metric", ""))
    if metric:
        fields["metric"] = metric
    if one.firing.day:
        fields["between"] = f"{(one.firing.day - DAYS_BEFORE) * MS_PER_DAY},{(one.firing.day + DAYS_AFTER) * MS_PER_DAY}"
    return links.to("trend", **fields)
