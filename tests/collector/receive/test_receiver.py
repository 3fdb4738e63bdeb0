"""A receiver with a real broker: what it reports while the ledger does not come to an end."""

import os
import sqlite3

import msgspec
import pytest

from edgemeter.agent.base import postgres_session, sqlite_file
from edgemeter.agent.contract import messages
from edgemeter.agent.contract import record as contract_record
from edgemeter.collector.receive import service
from tests.fixtures.collecting import collecting
from tests.fixtures.hostile import none_of
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.record_factory import make_record, make_series
from tests.fixtures.small_disk import fill, small_disk

pytestmark = pytest.mark.mosquitto
TOPIC = "edgemeter/v1/lab/pi-1/result"


@pytest.fixture
def collector(broker, tmp_path):
    """Return a collector that receives."""
    with collecting(broker, tmp_path / "ledger") as collector:
        yield collector


def test_health_fails_while_no_commit_ends(broker, collector, tmp_path, monkeypatch):
    """Another program holds the ledger: what is received waits, and whoever supervises sees it; afterwards all is well again."""
    assert min(sqlite_file.BUSY_TIMEOUT_S, postgres_session.DEADLINE_S) > service.UNWELL_S
    monkeypatch.setattr(service, "UNWELL_S", 1.5)
    sender = Peer(broker, "edgemeter/v1/lab/pi-1/receipt")
    other = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
    assert collector.unwell() is None
    other.execute("BEGIN IMMEDIATE")
    sender.session.publish(TOPIC, contract_record.encode(make_record(device="pi-1", fleet="lab", session=5, seq=1)))
    assert wait_until(lambda: "no commit has ended for" in (collector.unwell() or ""))
    other.execute("ROLLBACK")
    other.close()
    assert wait_until(lambda: [messages.decode_receipt(message.payload).held for message in sender.messages] == [((1, 1),)])
    assert wait_until(lambda: collector.unwell() is None)
    sender.close()


def test_health_fails_from_a_commit_that_failed_to_the_next_that_does_not(broker, tmp_path):
    """On a disk that somebody else fills: the reason in one line, also while nothing more comes."""
    with small_disk(tmp_path / "disk", 3) as disk, collecting(broker, disk / "ledger") as collector:
        fill(disk / "filler")
        sender = Peer(broker, "edgemeter/v1/lab/pi-1/receipt")
        series = msgspec.structs.replace(make_series(), data=os.urandom(200_000).hex())
        payload = contract_record.encode(make_record(device="pi-1", fleet="lab", session=5, seq=1, samples=(series,)))
        sender.session.publish(TOPIC, payload)
        assert wait_until(lambda: "the disk is full" in (collector.unwell() or ""))
        assert "\n" not in collector.unwell()
        (disk / "filler").unlink()
        assert wait_until(lambda: bool(sender.messages))
        assert wait_until(lambda: collector.unwell() is None)
        sender.close()


@pytest.mark.services
def test_a_flood_of_thousands_of_rejections_a_message_holds_nobody_up(broker, collector):
    """Twenty messages of 24 kB with 9,999 rejections each; the record of another device behind them gets its receipt."""
    sender = Peer(broker, "edgemeter/v1/lab/pi-1/receipt")
    for number in range(20):
        sender.session.publish("edgemeter/v1/lab/bad/result", none_of(10_000 * number))
    sender.session.publish(TOPIC, contract_record.encode(make_record(device="pi-1", fleet="lab", session=5, seq=1)))
    assert wait_until(lambda: bool(sender.messages))
    assert wait_until(lambda: collector.counts.messages == 21)
    assert collector.counts.rejections.total() == 20
    assert collector.unwell() is None
    sender.close()
