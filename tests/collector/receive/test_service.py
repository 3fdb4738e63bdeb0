"""The collector's metrics against what is known otherwise: the ledger, the device's own clock, a sink that is down."""

import sqlite3
import time
from contextlib import closing

import msgspec
import pytest

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.health import Health, encode_health
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.sink import open_sink
from edgemeter.collector.receive.monitor import as_text
from edgemeter.collector.receive.service import FLEETS_LIMIT, OTHER_FLEETS, Collector
from edgemeter.collector.trend.watch_file import watch_file_beside
from tests.fixtures.collecting import collecting
from tests.fixtures.exposition import read_metrics
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import peer
from tests.fixtures.record_factory import STARTED_AT_NS, make_record
from tests.fixtures.servers import LOOPBACK

TOPIC = "edgemeter/v1/lab/pi-1/result"
# A collector that is only asked connects to nothing.
NO_BROKER = BrokerAddress(LOOPBACK, 1)


@pytest.fixture
def collector(broker, tmp_path):
    """Return a collector that receives, and drains to a server that is down."""
    with collecting(broker, tmp_path / "ledger", InfluxConfig("http://127.0.0.1:1", "t", "o")) as collector:
        yield collector


@pytest.fixture
def device(broker):
    """Return a device that keeps its receipts."""
    with peer(broker, "edgemeter/v1/+/+/receipt") as device:
        yield device


def metrics(collector):
    """Return what the collector serves, as a scraper reads it; without the prefix."""
    metrics = read_metrics(as_text(collector.metrics()))
    shorter = {key if isinstance(key, tuple) else (key, None): value for key, value in metrics.items()}
    return {(name.removeprefix("edgemeter_collector_"), label): value for (name, label), value in shorter.items()}


def run(seq, **changes):
    """Return the message of one record."""
    return contract_record.encode(make_record(**({"device": "pi-1", "fleet": "lab", "session": 5, "seq": seq} | changes)))


def health(device, fleet, waiting):
    """Return what a device reports."""
    return Health(device=device, fleet=fleet, session=5, told_ns=1, agent="0.1.0", waiting_records=waiting)


@pytest.mark.mosquitto
def test_rejections_are_counted_by_reason(collector, device):
    """One, two, three ... of each; a reason that never occurred is 0, and no other label exists."""
    assert {value for (name, _), value in metrics(collector).items() if name == "rejections_total"} == {0}
    sent = {
        "topic": [("edgemeter/v1/lab//result", run(1))],
        "presence": [("edgemeter/v1/lab/pi-1/health", b"{}")],
        "payload": [(TOPIC, b"x\x9c broken"), (TOPIC, b"[{]")],
        "record": [(TOPIC, b"%d" % number) for number in range(3)],
        "origin": [(f"edgemeter/v1/lab/pi-{number}/result", run(9)) for number in (2, 3, 4, 5)],
        "collision": [(TOPIC, run(1))],
    }
    for topic, payload in ((TOPIC, run(1)), *(payload for payloads in sent.values() for payload in payloads)):
        device.session.publish(topic, payload)
    assert wait_until(lambda: metrics(collector)["messages_total", None] == 13)
    counts = {reason: value for (name, reason), value in metrics(collector).items() if name == "rejections_total"}
    assert counts == {**{reason: len(payloads) for reason, payloads in sent.items()}, "sink": 0}
    with SqliteLedger(collector.place, "read") as ledger:
        assert sum(entry.times for entry in ledger.quarantined()) == sum(counts.values())


@pytest.mark.mosquitto
def test_the_latency_of_receipts_is_that_which_the_device_sees(collector, device):
    """Two are fast; one waits while another program holds the ledger. What was rejected has no receipt and does not count."""
    other = sqlite3.connect(collector.place, isolation_level=None)
    began_s = time.monotonic()
    device.session.publish(TOPIC, run(1))
    device.session.publish(TOPIC, b"garbage")
    assert wait_until(lambda: len(device.messages) == 1)
    other.execute("BEGIN IMMEDIATE")
    device.session.publish(TOPIC, run(2))
    # A pass of the writer waits at most a second for a message: the rest is the message's own wait.
    assert wait_until(lambda: metrics(collector)["stalled_seconds", None] > 2.2)
    other.execute("ROLLBACK")
    other.close()
    assert wait_until(lambda: len(device.messages) == 2)
    seen_s = time.monotonic() - began_s
    assert wait_until(lambda: metrics(collector)["receipt_seconds_count", None] == 2)
    metrics_now = metrics(collector)
    assert 1.0 < metrics_now["receipt_seconds_sum", None] < 2 * seen_s
    assert metrics_now["receipt_seconds_bucket", "1.0"] <= 1
    assert metrics_now["receipt_seconds_bucket", "+Inf"] == 2


@pytest.mark.mosquitto
def test_the_lag_of_a_sink_is_the_age_of_the_oldest_record_that_it_does_not_have(collector, device):
    """A server that was never reached has one too; a sink that has everything has none."""
    assert {label: value for (name, label), value in metrics(collector).items() if name == "sink_lag_seconds"} == {sink_of(collector): 0}
    for seq in (1, 2):
        device.session.publish(TOPIC, run(seq))
        assert wait_until(lambda seq=seq: len(device.messages) == seq)
    with SqliteLedger(collector.place) as ledger:
        first, second = (record.received_ns for record in ledger.records())
        ledger.advance("one behind", 1)
        ledger.advance("complete", 2)
    before_ns = time.time_ns()
    metrics_now = metrics(collector)
    after_ns = time.time_ns()
    for sink, oldest_ns in ((sink_of(collector), first), ("one behind", second)):
        assert (before_ns - oldest_ns) / 1e9 <= metrics_now["sink_lag_seconds", sink] <= (after_ns - oldest_ns) / 1e9
    assert metrics_now["sink_lag_seconds", "complete"] == 0
    assert metrics_now["sink_row", sink_of(collector)] == 0


@pytest.mark.mosquitto
def test_a_sink_that_has_everything_has_no_lag_and_what_it_refused_is_counted(influx_place, broker, device, tmp_path):
    """A real InfluxDB that takes one of two records: in the other is a field that somebody else wrote with another type."""
    with closing(open_sink(influx_place.config())) as sink:
        sink.write([f"run,device=x order_place=1.5 {STARTED_AT_NS}"])
    with collecting(broker, tmp_path / "ledger", influx_place.config()) as collector:
        for payload in (run(1), run(2, order_place=2)):
            device.session.publish(TOPIC, payload)
        assert wait_until(lambda: 2 in [value for (name, _), value in metrics(collector).items() if name == "sink_row"])
        metrics_now = metrics(collector)
    assert metrics_now["rejections_total", "sink"] == 1
    assert [value for (name, _), value in metrics_now.items() if name == "sink_lag_seconds"] == [0]


def sink_of(collector):
    """Return the label of the server that is down."""
    (label,) = (label for name, label in metrics(collector) if name == "sink_row" and "127.0.0.1:1" in label)
    return label


@pytest.mark.mosquitto
def test_the_backlog_is_what_devices_report_by_fleet(collector, device):
    """Sum and highest of a fleet; a device that has delivered reports so, and one that cannot read its outbox is not called empty."""
    for name, fleet, waiting in (("pi-1", "lab", 700), ("pi-2", "lab", 44), ("pi-1", "barn", 3)):
        device.session.publish(f"edgemeter/v1/{fleet}/{name}/health", encode_health(health(name, fleet, waiting)))
    assert wait_until(lambda: backlog(collector) == {"lab": (744, 700), "barn": (3, 3)})
    device.session.publish("edgemeter/v1/lab/pi-1/health", encode_health(health("pi-1", "lab", 0)))
    assert wait_until(lambda: backlog(collector) == {"lab": (44, 44), "barn": (3, 3)})
    unknown = msgspec.structs.replace(health("pi-1", "barn", 0), outbox_trouble="it is damaged")
    device.session.publish("edgemeter/v1/barn/pi-1/health", encode_health(unknown))
    assert wait_until(lambda: backlog(collector) == {"lab": (44, 44)})


def backlog(collector):
    """Return sum and highest of every fleet."""
    metrics_now = metrics(collector)
    fleets = [label for name, label in metrics_now if name == "outbox_records"]
    return {fleet: (metrics_now["outbox_records", fleet], metrics_now["outbox_records_max", fleet]) for fleet in fleets}


def test_names_of_fleets_cannot_grow_the_metrics_without_bound(tmp_path):
    """Those with most have labels of their own, the others one together; nothing is lost from the sum."""
    changes = [PresenceChange(f"f-{number}", "pi", health("pi", f"f-{number}", number), 7) for number in range(FLEETS_LIMIT + 5)]
    with SqliteLedger(tmp_path / "ledger") as ledger:
        ledger.commit([Arrival(make_record(session=5, seq=1), run(1), TOPIC, 7)], changes=changes)
    fleets = backlog(Collector(NO_BROKER, tmp_path / "ledger"))
    assert len(fleets) == FLEETS_LIMIT + 1
    assert fleets[OTHER_FLEETS] == (0 + 1 + 2 + 3 + 4, 4)
    assert sum(total for total, _ in fleets.values()) == sum(range(FLEETS_LIMIT + 5))


def test_alerts_that_cannot_be_read_are_unknown_not_absent(tmp_path):
    """No alerts yet yield nothing; a state that cannot be read yields 0."""
    SqliteLedger(tmp_path / "ledger").close()
    monitored = Collector(NO_BROKER, tmp_path / "ledger")
    assert ("alerts_readable", None) not in metrics(monitored)
    watch_file_beside(str(tmp_path / "ledger")).write_bytes(b"no database" * 100)
    unreadable = metrics(monitored)
    assert unreadable["alerts_readable", None] == 0
    assert not any(name.startswith("alert_notices") for name, _ in unreadable)
