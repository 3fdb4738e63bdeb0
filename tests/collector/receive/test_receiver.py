"""A receiver with a real broker: what it reports while the ledger does not come to an end."""

import sqlite3

import pytest

from edgemeter.agent.contract import messages
from edgemeter.agent.contract import record as contract_record
from edgemeter.collector.receive import service
from tests.fixtures.collecting import collecting
from tests.fixtures.hostile import none_of
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.record_factory import make_record

pytestmark = pytest.mark.mosquitto
TOPIC = "edgemeter/v1/lab/pi-1/result"


@pytest.fixture
def collector(broker, tmp_path):
    """Return a collector that receives."""
    with collecting(broker, tmp_path / "ledger") as collector:
        yield collector


def test_health_fails_while_no_commit_ends(broker, collector, tmp_path, monkeypatch):
    """Another program holds the ledger: what is received waits, and whoever supervises sees it; afterwards all is well again."""
    monkeypatch.setattr(service, "STALLED_S", 1.5)
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


@pytest.mark.slow
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
