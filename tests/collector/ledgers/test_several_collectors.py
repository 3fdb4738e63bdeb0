"""Test several collectors on one ledger in PostgreSQL.

The ledger is one whole, one collector drains at a time, and another takes over.
"""

import pytest

from edgemeter.agent.contract import messages, record
from edgemeter.agent.ledger.chunks import COLLISION
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.receive.monitor import CollectorMetrics
from tests.fixtures.collecting import at_end, collecting
from tests.fixtures.exposition import read_metrics
from tests.fixtures.ledgers import initialised
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.record_factory import make_record

__all__ = ["at_end"]

pytestmark = pytest.mark.postgresql


@pytest.fixture
def lab(postgresql, tmp_path, monkeypatch):
    """Return an empty ledger in PostgreSQL, with the caches in a folder of the test's own."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    return initialised(postgresql)


def run(seq, **changes):
    return record.encode(
        make_record(**({"device": "pi-1", "fleet": "lab", "session": 5, "seq": seq} | changes))
    )


def held_of(peer):
    receipts = [messages.decode_receipt(message.payload) for message in peer.messages]
    return {
        seq
        for receipt in receipts
        for first, last in receipt.held
        for seq in range(first, last + 1)
    }


@pytest.mark.mosquitto
def test_a_receipt_names_what_the_shared_ledger_holds_whichever_collector_sends_it(
    broker, lab, at_end
):
    """A repeat at another collector is a duplicate there, a cloned card a collision.

    Gaps, devices and metrics are those of the whole ledger.
    """
    collectors = [at_end.enter_context(collecting(broker, lab, group="g")) for _ in range(2)]
    device = Peer(broker, "edgemeter/v1/+/+/receipt")
    at_end.callback(device.session.close)
    first = [run(seq) for seq in range(1, 41)]
    for payload in [*first, *first, run(7), run(50)]:
        device.session.publish("edgemeter/v1/lab/pi-1/result", payload)
    assert wait_until(lambda: sum(collector.counts.messages for collector in collectors) == 82)
    assert all(collector.counts.messages for collector in collectors)
    assert wait_until(lambda: held_of(device) == {*range(1, 41), 50})
    for name, expected in (("inserted", 41), ("duplicates", 40), ("collisions", 1)):
        assert sum(getattr(collector.counts, name) for collector in collectors) == expected, name
    with open_ledger(lab, "read") as ledger:
        (session,) = ledger.sessions()
        assert (session.records, session.missing) == (41, 9)
        assert [entry.reason for entry in ledger.quarantined()] == [COLLISION]
    for collector in collectors:
        assert (
            read_metrics(CollectorMetrics(collector).text())[
                "edgemeter_collector_quarantine_entries"
            ]
            == 1
        )
        assert collector.unwell() is None


@pytest.mark.nightly
@pytest.mark.mosquitto
def test_what_arrives_while_another_collector_commits_is_read_and_receipted_after_its_own_commit(
    broker, lab, at_end
):
    """While one collector holds the counter, nothing is receipted or seen.

    Then everything is there, in the order of commits.
    """
    collector = at_end.enter_context(collecting(broker, lab, group="g"))
    device = Peer(broker, "edgemeter/v1/+/+/receipt")
    at_end.callback(device.session.close)
    payloads = [run(seq) for seq in range(1, 301)]
    with open_ledger(lab) as other:
        # For less than the time after which the server takes a frozen collector's transaction from
        # it.
        with other.writing() as statements:
            for payload in payloads:
                device.session.publish("edgemeter/v1/lab/pi-1/result", payload)
            wait_until(lambda: held_of(device), 2, patience=1.0)
            assert (held_of(device), collector.counts.inserted) == (set(), 0)
            assert statements.execute("SELECT count(*) FROM runs").fetchone() == (0,)
        assert wait_until(lambda: held_of(device) == set(range(1, 301)))
        assert wait_until(lambda: collector.counts.messages == 300)
        rows = other.query("SELECT row, seq, chunk FROM runs ORDER BY row")
        assert sorted(seq for _, seq, _ in rows) == list(range(1, 301))
        assert [chunk for *_, chunk in rows] == sorted(chunk for *_, chunk in rows)
        assert other.query("SELECT max(row), max(chunk) FROM runs") == other.query(
            "SELECT row, chunk FROM ledger"
        )


def test_a_lease_is_of_one_and_ends_with_it_or_after_its_time(lab):
    """A collector that closes returns the lease at once; a frozen or killed one loses it."""
    with open_ledger(lab) as first, open_ledger(lab) as other:
        assert first.lease("drain x")
        assert first.lease("drain x")
        assert not other.lease("drain x")
        assert other.lease("drain y")
        first.close()
        assert other.lease("drain x")
        with open_ledger(lab) as third:
            other.query("UPDATE leases SET until = clock_timestamp() - interval '1 s' RETURNING 1")
            assert third.lease("drain x")
            assert not other.lease("drain x")
