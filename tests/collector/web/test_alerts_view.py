"""Facts about the page of alerts: an alert of which a channel was not told is said at the top."""

import re

import msgspec

from edgemeter.collector.alerts.firing import Alert, AlertFinding
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.trend.watch_file import WatchFile, watch_file_beside
from edgemeter.collector.web import overview
from edgemeter.collector.web.alerts_view import alerts_view
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.served_page import view_context

FACTS = {"device": "pi-1", "model": "tiny-detector", "metric": "energy_gross_mj"}
AT_NS = 1_800_000_000 * 10**9


def write_alert(statements, number, title="step", severity="critical", closed_ns=None):
    """Write an alert that opened so many ns after `AT_NS`."""
    findings = (AlertFinding(title, title, "x", 20_000, FACTS),)
    alert = Alert(
        "r",
        severity,
        (),
        title,
        "x",
        findings,
        number=number,
        opened_ns=AT_NS + number,
        closed_ns=closed_ns,
    )
    statements.execute("INSERT INTO alerts VALUES (?, ?)", (number, msgspec.json.encode(alert)))


def test_what_a_channel_was_not_told_stands_above_the_alerts(tmp_path):
    """The overview has it too, with channel and the reason as text.

    An alert leads to its series, and shows what was told.
    """
    ledger = fill(tmp_path / "ledger.sqlite", [make_run()])
    with WatchFile(watch_file_beside(str(ledger))) as file, file.writing() as statements:
        for number, closed_ns in ((1, None), (2, AT_NS + 9)):
            write_alert(statements, number, closed_ns=closed_ns)
        statements.execute("INSERT INTO notified VALUES (1, 'pager', NULL, 0, '<b>503')")
        statements.execute("INSERT INTO notified VALUES (1, 'chat', 'open', ?, NULL)", (AT_NS,))
    context = view_context(ledger, TrendEvents(LedgerStore(ledger)))
    for view in (
        alerts_view(context, ViewRequest("alerts"), CaseFilter()),
        overview.overview(context, ViewRequest("overview"), CaseFilter()),
    ):
        text = str(view.body)
        assert "1 alert undelivered to pager: &lt;b&gt;503" in text
        assert "undelivered to chat" not in text
    view = alerts_view(context, ViewRequest("alerts"), CaseFilter())
    # The open one first, though a newer one was closed.
    newest, closed = view.tables[0].dicts()
    assert (newest["number"], closed["number"]) == (1, 2)
    assert (
        newest["channels"]
        == "chat: open, sent 2027-01-15 08:00:00 UTC; pager: nothing sent; <b>503"
    )
    link, _ = re.findall(r'<a href="/trend\?([^"]*)">step</a>', str(view.body))
    assert {"device=pi-1", "metric=energy_gross_mj"} < set(link.split("&amp;"))


def test_the_overview_names_critical_alerts_before_newer_ones(tmp_path):
    """A warning takes none of the six places from a worse alert; each leads to its series."""
    ledger = fill(tmp_path / "ledger.sqlite", [make_run()])
    with WatchFile(watch_file_beside(str(ledger))) as file, file.writing() as statements:
        write_alert(statements, 1)
        for number in range(2, 8):
            write_alert(statements, number, "drift", "warning")
    context = view_context(ledger, TrendEvents(LedgerStore(ledger)))
    text = str(overview.overview(context, ViewRequest("overview"), CaseFilter()).body)
    assert re.findall(
        r'<b>(critical|warning)</b>: <a href="/trend\?[^"]*device=pi-1[^"]*">(\w+)</a>', text
    ) == [
        ("critical", "step"),
        *[("warning", "drift")] * 5,
    ]
