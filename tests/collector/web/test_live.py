"""Facts about what comes while a page is open: nothing is missed, nothing leaks, and the reader need not reload."""

import json
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
from tests.fixtures.served_page import ask, page_of, served


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
def page(ledger):
    """Return the page of the ledger; where nothing is new, its feed says so at once."""
    with page_of(ledger, heartbeat_s=0.0) as page:
        yield page


def parsed(event):
    """Return name, id and content of an event."""
    name, number, content = (line.partition(": ")[2] for line in event.decode().strip().split("\n"))
    return name, int(number), json.loads(content)


def test_a_client_gets_each_run_once_with_the_row_of_the_ledger_as_id(page, ledger):
    """From where it asks; then as they come."""
    page.update()
    events = page.live.events(1)
    assert next(events).startswith(b"retry: ")
    name, row, news = parsed(next(events))
    assert (name, row, news["count"], [run["id"] for run in news["runs"]]) == ("runs", 2, 1, ["reference"])
    assert next(events) == b": nothing new\n\n"
    run_id = deliver(ledger, 1)
    page.update()
    name, row, news = parsed(next(events))
    assert (name, row, news["count"], [run["id"] for run in news["runs"]]) == ("runs", 3, 1, [run_id])
    assert next(events) == b": nothing new\n\n"


def test_a_client_that_comes_back_gets_what_it_missed(page, ledger):
    """The id of the last event that it got counts, not where it began."""
    missed = [deliver(ledger, seq) for seq in (1, 2, 3)]
    page.update()
    status, headers, body = ask(page, "/live?after=0", last=b'"count"', Last_Event_ID="3")
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    name, row, news = parsed(body.partition(b"\n\n")[2])
    assert (name, row, news["count"], [run["id"] for run in news["runs"]]) == ("runs", 5, 2, missed[:0:-1])


def test_the_state_of_a_device_comes_when_it_changes(page, ledger):
    """And only that of the device; those of the moment at which a client comes are no news to it."""
    with SqliteLedger(ledger) as opened, page.live.client():
        opened.commit((), (), [PresenceChange("lab", name, DeviceState(state="online", session=1), 5) for name in ("pi-1", "pi-2")])
        page.update()
        events = page.live.events(2)
        assert [next(events), next(events)][1] == b": nothing new\n\n"
        opened.commit((), (), [PresenceChange("lab", "pi-2", DeviceState(state="lost", session=1), 6)])
        page.update()
        assert parsed(next(events)) == ("devices", 2, {"devices": [["lab", "pi-2", "lost"]]})


def test_clients_are_bounded_and_one_that_has_gone_leaves_its_place(page):
    """The one too many is told to come again."""
    with ExitStack() as stack:
        for _ in range(live.MOST_CLIENTS):
            stack.enter_context(page.live.client())
        assert ask(page, "/live?after=2")[0] == 503
    assert not page.live.has_clients
    page.update()
    assert b'"count":2' in ask(page, "/live?after=0", last=b'"count"')[2]
    assert not page.live.has_clients
    # Nor is a client left waiting at the end of the feed.
    page.live.end()
    assert [*page.live.events(0)] == [b"retry: 2000\n\n"]


@pytest.mark.chromium
def test_runs_appear_without_a_reload_also_those_of_a_dropped_connection(browser, ledger):
    """A part of the page that did not change stays the same element, a zoomed chart zoomed; what came while it was away is there too."""
    with served(ledger) as server:
        page = browser.open(f"{server.url}device?device=pi-1", width=1280)
        page.drawn()
        page.run("window.same = document.getElementById('machine')")
        page.run("void zoomed(drawn[0], 0.5)")
        page.until("location.search.includes('c1=')")
        domain = page.run("drawn[0].view.scale('x').domain().map(Number)")
        run_id = deliver(ledger, 1)
        page.until(f"document.querySelector('#runs table').textContent.includes('{run_id}')")
        page.until("document.querySelector('.live').textContent.startsWith('1 new run')")
        assert page.run("document.querySelector('.live a').getAttribute('href')") == f"/run?id={run_id}"
        page.until("document.querySelectorAll('figure.chart-figure').length === document.querySelectorAll('figure.is-drawn').length")
        zoomed = "drawn.find(one => one.title.includes('tiny-detector')).view.scale('x').domain().map(Number)"
        assert page.run(zoomed) == pytest.approx(domain)
        assert page.complaints() == []
    missed = [deliver(ledger, seq) for seq in (2, 3)]
    with served(ledger, port=server.port):
        page.until(f"document.querySelector('#runs table').textContent.includes('{missed[-1]}')")
        page.until("document.querySelector('.live').textContent.startsWith('3 new runs')")
        assert page.run("window.same === document.getElementById('machine')")
        page.close()
