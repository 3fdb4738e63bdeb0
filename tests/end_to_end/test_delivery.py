"""Facts about the delivery from a device through a real broker to a collector, and to InfluxDB."""

import signal

import pytest

from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.influx_config import InfluxConfig
from tests.fixtures.collecting import (
    TUNED,
    CollectorProcess,
    at_end,
    collecting,
    embedded_broker,
    publishing,
)
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import started
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import Influx, mosquitto

__all__ = ["at_end"]


def seqs_in(ledger, session, device="pi-1"):
    """Return the ranges that the ledger holds of one session."""
    with SqliteLedger(ledger, "read") as opened:
        return opened.ranges(device, session)


@pytest.mark.services
def test_every_record_arrives_once_whole_and_the_outbox_is_empty(tmp_path, at_end):
    """Every record arrives once and whole, and the outbox is empty afterwards.

    The whole way is in one process. Records of two earlier sessions, which found no collector, go
    out with the third.
    """
    sent = []
    for _ in range(2):
        with Outbox(tmp_path / "outbox") as outbox:
            sent += [outbox.put(make_record(repeat=number)) for number in range(5)]
    broker = at_end.enter_context(embedded_broker())
    with (
        Outbox(tmp_path / "outbox") as outbox,
        collecting(broker, tmp_path / "ledger") as collector,
        publishing(broker, outbox) as publisher,
    ):
        sent += [outbox.put(make_record(repeat=number)) for number in range(200)]
        publisher.wake()
        assert publisher.drain(120) == 0
        assert collector.counts.inserted == len(sent)
        with SqliteLedger(tmp_path / "ledger", "read") as ledger:
            stored = {entry.record.id: entry.record for entry in ledger.records(with_samples=True)}
            assert stored == {record.id: record for record in sent}
            (device,) = ledger.devices()
            assert (device.state, device.session, device.birth.arch) == (
                "online",
                outbox.session,
                "aarch64",
            )
        assert seqs_in(tmp_path / "ledger", outbox.session) == [(1, 200)]


@pytest.mark.mosquitto
def test_a_broker_that_is_killed_loses_and_doubles_nothing(tmp_path, at_end):
    """A SIGKILL of the broker, with its queue and sessions, neither loses nor doubles a record.

    Outbox and receipts do not depend on it.
    """
    server = mosquitto(tmp_path, *TUNED)
    address = at_end.enter_context(started(server))
    ledger = tmp_path / "ledger"
    with (
        Outbox(tmp_path / "outbox") as outbox,
        collecting(address, ledger) as collector,
        publishing(address, outbox) as publisher,
    ):
        for _ in range(400):
            outbox.put(make_record())
        publisher.wake()
        assert wait_until(lambda: collector.counts.inserted > 0)
        server.kill()
        server.start()
        assert publisher.drain(180) == 0
        assert seqs_in(ledger, outbox.session) == [(1, 400)]
        assert collector.counts.inserted == 400


@pytest.mark.influx
def test_every_run_is_in_influxdb_with_the_numbers_of_the_ledger(influxd, tmp_path, at_end):
    """Every run in InfluxDB, after broker and ledger, has the numbers that the device measured."""
    server = Influx(influxd, tmp_path)
    at_end.enter_context(started(server))
    server.set_up()
    address = at_end.enter_context(embedded_broker())
    config = InfluxConfig(server.url, server.token, bucket=server.bucket)
    with (
        Outbox(tmp_path / "outbox") as outbox,
        publishing(address, outbox) as publisher,
        collecting(address, tmp_path / "ledger", config) as collector,
    ):
        sent = [
            outbox.put(make_record(repeat=number, throughput_per_s=80.5 + number))
            for number in range(30)
        ]
        publisher.wake()
        assert publisher.drain(60) == 0
        assert collector.settled(120), collector.trouble()
    rows = server.query("SELECT id, throughput_per_s, latency_p50_ms, accuracy_value FROM run")
    expected = {
        (record.id, record.throughput_per_s, record.latency.p50_ms, record.accuracy.value)
        for record in sent
    }
    assert {
        (row["id"], row["throughput_per_s"], row["latency_p50_ms"], row["accuracy_value"])
        for row in rows
    } == expected
    assert server.query('SELECT lag_rows FROM "collector"'), (
        "the collector reports how far its drain is"
    )


@pytest.mark.services
def test_the_command_brings_its_own_broker_and_ends_cleanly_on_ctrl_c(tmp_path, at_end):
    """`edgemeter collector up` on a desk prints its address, and at Ctrl-C what it kept."""
    collector = at_end.enter_context(CollectorProcess(tmp_path / "ledger", "--port", "0"))
    with Outbox(tmp_path / "outbox") as outbox, publishing(collector.address, outbox) as publisher:
        outbox.put(make_record())
        assert publisher.drain(60) == 0
    status, message = collector.end(signal.SIGINT)
    assert (status, message.count("\n")) == (0, 1)
    assert seqs_in(tmp_path / "ledger", outbox.session) == [(1, 1)]
