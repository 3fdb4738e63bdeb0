"""Fixtures of the tests of the page.

They are the ledger of a simulated fleet, its page in this process, and a real browser with that
page.
"""

import time

import pytest

from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.server import PageServer
from tests.fixtures.browser import Browser, find_chromium
from tests.fixtures.health_factory import make_health
from tests.fixtures.ledgers import fill, report
from tests.fixtures.record_factory import make_record

DAYS = 12


@pytest.fixture(scope="session")
def fleet_ledger(tmp_path_factory):
    runs = simulated_fleet.records_of(make_record(), end_ns=time.time_ns(), days=DAYS)
    ledger = fill(tmp_path_factory.mktemp("fleet") / "ledger.sqlite", runs)
    healths = [
        make_health(device=f"simulated-pi5-{number:02}", certificate_not_after_ns=2**62)
        for number in range(1, 25)
    ]
    report(
        ledger,
        *(PresenceChange("simulated", health.device, health, time.time_ns()) for health in healths),
    )
    return ledger


@pytest.fixture(scope="session")
def fleet_book(fleet_ledger):
    return book_of(LedgerStore(fleet_ledger))


@pytest.fixture(scope="session")
def fleet_page(fleet_book):
    return PageServer(fleet_book, TrendEvents())


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(find_chromium(), tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def served_fleet_page(fleet_book):
    """Serve the page of the simulated fleet, to this file alone.

    Tests in other files set the clock by which the server's loop waits.
    """
    server = PageServer(fleet_book, TrendEvents())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def tab(browser, served_fleet_page):
    """Return a function that opens a view of the simulated fleet, or another address.

    Opened pages are closed after the test.
    """
    opened = []

    def open_tab(address="", **how):
        page = browser.open(address if "://" in address else served_fleet_page.url + address, **how)
        opened.append(page)
        return page

    yield open_tab
    for page in opened:
        page.close()
