"""Facts about the page of alerts: a notice that nobody has is said at the top."""

import re

from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.trend.watch_file import WatchFile, watch_file_beside
from edgemeter.collector.web import overview
from edgemeter.collector.web.alerts_view import alerts_view
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.served_page import view_context

BODY = b"""{"rule": "r", "subject": "a", "severity": "critical", "title": "step", "text": "x", "day": 20000,
 "facts": {"device": "pi-1", "model": "tiny-detector", "metric": "energy_gross_mj"}}"""
AT_NS = 1_800_000_000 * 10**9


def test_what_a_channel_has_not_got_stands_above_the_alerts(tmp_path):
    """On the overview too, with channel, day, and the reason as text; quiet times are no failure. An alert leads to its series."""
    ledger = fill(tmp_path / "ledger.sqlite", [make_run()])
    with WatchFile(watch_file_beside(str(ledger))) as file, file.writing() as statements:
        for number, closed_ns in ((1, None), (2, AT_NS + 9)):
            alert = (number, BODY, AT_NS + number, AT_NS + number, closed_ns)
            statements.execute("INSERT INTO alerts VALUES (?, 'r', 'a', 'open', ?, ?, ?, ?, NULL, NULL, NULL)", alert)
        for channel, state in (("pager", "due"), ("chat", "quiet")):
            insert = "INSERT INTO unsent (alert, channel, event, tries, error, since_ns, state) VALUES (1, ?, 'opened', 2, '<b>503', ?, ?)"
            statements.execute(insert, (channel, AT_NS, state))
    with view_context(ledger, TrendEvents(LedgerSource(ledger))) as context:
        for view in (
            alerts_view(context, ViewRequest("alerts"), CaseFilter()),
            overview.overview(context, ViewRequest("overview"), CaseFilter()),
        ):
            text = str(view.body)
            assert "1 notice undelivered to pager since 2027-01-15 08:00:00 UTC: &lt;b&gt;503" in text
            assert "undelivered to chat" not in text
        view = alerts_view(context, ViewRequest("alerts"), CaseFilter())
    # The open one first, though a newer one was closed.
    assert [row["number"] for row in view.tables[0].dicts()] == [1, 2]
    link, _ = re.findall(r'<a href="/trend\?([^"]*)">step</a>', str(view.body))
    assert {"device=pi-1", "metric=energy_gross_mj"} < set(link.split("&amp;"))
