"""What the tests of the page share: a ledger of a simulated fleet, its page served, and a real browser."""

import time

import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.web.context import NoEvents
from edgemeter.collector.web.run_index import open_index
from edgemeter.collector.web.server import PageServer
from edgemeter.collector.web.sources import LedgerSource
from tests.fixtures.browser import Browser, find_chromium
from tests.fixtures.record_factory import make_record

DAYS = 12


def fill(path, runs):
    """Commit runs to the ledger at `path`; those without a number get one."""
    with SqliteLedger(path) as ledger:
        arrivals = []
        for seq, run in enumerate(runs, start=1):
            one = (
                run
                if run.session is not None
                else record.decode(record.encode(run).replace(b'"session":null,"seq":null', b'"session":7,"seq":%d' % seq))
            )
            arrivals.append(Arrival(one, record.encode(one), f"edgemeter/v1/{one.fleet}/{one.device}/result", time.time_ns()))
        ledger.commit(arrivals)
    return path


@pytest.fixture(scope="session")
def fleet_ledger(tmp_path_factory):
    """Return the ledger of a simulated fleet over some days."""
    runs = simulated_fleet.records_of(make_record(), end_ns=time.time_ns(), days=DAYS)
    return fill(tmp_path_factory.mktemp("fleet") / "ledger.sqlite", runs)


@pytest.fixture(scope="session")
def fleet_index(fleet_ledger):
    """Return the index of that ledger, up to date."""
    index = open_index(LedgerSource(fleet_ledger))
    index.refresh()
    return index


@pytest.fixture(scope="session")
def fleet_page(fleet_index):
    """Serve the page of the simulated fleet; return its server."""
    server = PageServer(fleet_index, NoEvents())
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Return a real browser, or skip."""
    with Browser(find_chromium(), tmp_path_factory.mktemp("chromium")) as one:
        yield one
