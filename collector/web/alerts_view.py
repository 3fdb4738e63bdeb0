"""The alerts, open ones too, with links to their series and period.

Each has when it was opened and closed, and the state that each channel knows.
"""

from operator import attrgetter

from edgemeter.agent.base.number_text import count, stamp
from edgemeter.collector.alerts.check import undelivered_texts
from edgemeter.collector.alerts.firing import Alert, page_address
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.web.queries import CaseFilter, ViewContext
from edgemeter.collector.web.view import View, ViewColumn, ViewGrid, ViewRequest

SHOWN = 200


def alerts_view(
    context: ViewContext,
    request: ViewRequest,  # noqa: ARG001 - every view has the same signature
    case_filter: CaseFilter,  # noqa: ARG001 - every view has the same signature
) -> View:
    """Return the alerts, open ones first, then the newest."""
    stored, notified = context.events.alerts()
    if not stored:
        text = (
            "No alert was ever opened here. Evaluate the rules: `edgemeter trend alerts check "
            "--ledger LEDGER`."
        )
        return View("No alerts", context.render("message.html", text=text))
    alerts = sorted(stored, key=lambda alert: (alert.state == "closed", -alert.opened_ns))
    channels = {
        number: "; ".join(map(str, rows))
        for number, rows in grouped((row.alert, row) for row in notified).items()
    }
    by_channel: ViewColumn[Alert] = ViewColumn(
        "channels", "Channels", lambda alert: channels.get(alert.number, ""), is_text=True
    )
    shown_alerts = ViewGrid("alerts", [*_COLUMNS, by_channel], [alerts[:SHOWN]])
    waiting, older = undelivered_texts(notified), len(alerts) - SHOWN
    body = context.render(
        "alerts.html", waiting=waiting, alerts=shown_alerts, page_address=page_address, older=older
    )
    open_alerts = sum(alert.state == "open" for alert in alerts)
    return View(
        f"{count(open_alerts, 'open alert')}, {len(alerts) - open_alerts} closed",
        body,
        "",
        (shown_alerts.plain,),
    )


_COLUMNS: list[ViewColumn[Alert]] = [
    ViewColumn("number", "#", attrgetter("number")),
    ViewColumn("state", "State", attrgetter("state"), is_text=True),
    ViewColumn("severity", "Severity", attrgetter("severity"), is_text=True),
    ViewColumn(
        "started_at_ns",
        "Opened (UTC)",
        attrgetter("opened_ns"),
        lambda alert: stamp(alert.opened_ns),
    ),
    ViewColumn(
        "closed_at_ns",
        "Closed (UTC)",
        attrgetter("closed_ns"),
        lambda alert: stamp(alert.closed_ns) if alert.closed_ns else "",
    ),
    ViewColumn("rule", "Rule", attrgetter("rule"), is_text=True),
    ViewColumn("alert", "Alert", attrgetter("title"), is_text=True),
    ViewColumn("evidence", "Evidence", attrgetter("text"), is_text=True),
]
