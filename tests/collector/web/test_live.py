"""Facts about what comes while a page is open: nothing is missed, nothing leaks, and the reader need not reload."""

import threading
import time
from contextlib import ExitStack

import msgspec
import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.web import live
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.live_stream import Stream, clients
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.served_page import served


def deliver(ledger, seq, device="pi-1", **changes):
    """Commit a run to the ledger, as the collector does; return its id."""
    run = msgspec.structs.replace(make_run(id=f"{device}-run-{seq}", device=device, **changes), session=9, seq=seq)
    with SqliteLedger(ledger) as opened:
        opened.commit([Arrival(run, record.encode(run), f"edgemeter/v1/lab/{device}/result", time.time_ns())])
    return run.id


@pytest.fixture
def ledger(tmp_path):
    """Return a ledger of two runs."""
    return fill(tmp_path / "ledger.sqlite", [make_run(id="first"), make_reference(id="reference")])


@pytest.fixture
def serve(ledger):
    """Serve the ledger's page, at a port if one is named; everything is stopped at the end."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(served(ledger, heartbeat_s=0.2, **options))


def test_a_client_gets_each_run_once_with_the_row_of_the_ledger_as_id(serve, ledger):
    """From where it asks; then as they come."""
    server = serve()
    stream = Stream(server, after=1)
    assert (stream.answer.status, stream.answer.headers["Content-Type"]) == (200, "text/event-stream")
    name, row, news = stream.event()
    assert name == "runs"
    assert row == 2
    assert news["count"] == 1
    assert [run["id"] for run in news["runs"]] == ["reference"]
    run_id = deliver(ledger, 1)
    _, row, news = stream.event()
    assert (row, news["count"], [run["id"] for run in news["runs"]]) == (3, 1, [run_id])
    stream.close()


def test_a_client_that_comes_back_gets_what_it_missed(serve, ledger):
    """The id of the last event that it got counts, not where it began."""
    server = serve()
    missed = [deliver(ledger, seq) for seq in (1, 2, 3)]
    assert wait_until(lambda: server.index.position() == 5)
    stream = Stream(server, after=0, last=3)
    _, row, news = stream.event()
    assert (row, news["count"], [run["id"] for run in news["runs"]]) == (5, 2, missed[:0:-1])
    stream.close()


def test_the_state_of_a_device_comes_when_it_changes(serve, ledger):
    """And only that of the device."""
    with SqliteLedger(ledger) as opened:
        opened.commit((), (), [PresenceChange("lab", name, DeviceState(state="online", session=1), 5) for name in ("pi-1", "pi-2")])
    server = serve()
    # States are read where a client is there; those of the moment at which a client comes are no news to it.
    first = Stream(server, after=2)
    assert wait_until(lambda: server.live._states)
    stream = Stream(server, after=2)
    # The first comment: it has seen them.
    stream.answer.readline(), stream.answer.readline(), stream.answer.readline()
    with SqliteLedger(ledger) as opened:
        opened.commit((), (), [PresenceChange("lab", "pi-2", DeviceState(state="lost", session=1), 6)])
    assert stream.event() == ("devices", 2, {"devices": [["lab", "pi-2", "lost"]]})
    first.close(), stream.close()


def test_clients_are_bounded_and_one_that_has_gone_leaves_nothing(serve):
    """Neither its place nor its thread."""
    server = serve()
    before = threading.active_count()
    streams = [Stream(server, after=2) for _ in range(live.MOST_CLIENTS)]
    assert wait_until(lambda: clients(server) == live.MOST_CLIENTS)
    refused = Stream(server, after=2)
    assert refused.answer.status == 503
    assert f"{live.MOST_CLIENTS} pages are live already" in refused.answer.read().decode()
    for stream in (*streams, refused):
        stream.close()
    assert wait_until(lambda: clients(server) == 0)
    assert wait_until(lambda: threading.active_count() <= before)
    second = Stream(server, after=0)
    assert second.event()[2]["count"] == 2
    second.close()


def test_events_are_for_those_who_may_see_the_page(serve):
    """Without the token there is none."""
    server = serve(token="open sesame")
    stream = Stream(server, after=0)
    assert stream.answer.status == 401
    stream.close()


def test_the_end_of_the_server_ends_its_streams(serve):
    """A client is not left waiting."""
    server = serve()
    stream = Stream(server, after=2)
    assert wait_until(lambda: clients(server) == 1)
    server.stop()
    assert wait_until(lambda: clients(server) == 0)
    stream.close()


@pytest.mark.chromium
@pytest.mark.services
def test_a_delivered_run_appears_without_a_reload(browser, serve, ledger):
    """In the table, with a line that says so; a part of the page that did not change stays the same element, a zoomed chart zoomed."""
    server = serve()
    page = browser.open(f"{server.url}device?device=pi-1", width=1280)
    page.drawn()
    page.run("window.kept = document.getElementById('machine')")
    page.run("void zoomed(drawn[0], 0.5)")
    page.until("location.search.includes('c1=')")
    domain = page.run("drawn[0].view.scale('x').domain().map(Number)")
    run_id = deliver(ledger, 1)
    page.until(f"document.querySelector('#runs table').textContent.includes('{run_id}')")
    page.until("document.querySelector('.live').textContent.startsWith('1 new run since this page was opened')")
    assert page.run("window.kept === document.getElementById('machine')")
    assert page.run("document.querySelector('.live a').getAttribute('href')") == f"/run?id={run_id}"
    page.until("document.querySelectorAll('figure.chart-figure').length === document.querySelectorAll('figure.is-drawn').length")
    assert page.run("document.querySelector('footer').dataset.position") == "3"
    assert page.run("drawn.find(one => one.title.includes('tiny-detector')).view.scale('x').domain().map(Number)") == pytest.approx(domain)
    assert page.complaints() == []
    page.close()


@pytest.mark.chromium
@pytest.mark.services
def test_a_dropped_connection_catches_up(browser, serve, ledger):
    """The server is away while runs come; when it is back, they are on the page."""
    server = serve()
    page = browser.open(f"{server.url}device?device=pi-1", width=1280)
    page.drawn()
    page.run("window.same = true")
    deliver(ledger, 1)
    page.until("document.querySelector('.live').textContent.startsWith('1 new run')")
    port = server.port
    server.stop()
    missed = [deliver(ledger, seq) for seq in (2, 3)]
    serve(port=port)
    page.until(f"document.querySelector('#runs table').textContent.includes('{missed[-1]}')")
    page.until("document.querySelector('.live').textContent.startsWith('3 new runs')")
    assert page.run("window.same")
    page.close()
