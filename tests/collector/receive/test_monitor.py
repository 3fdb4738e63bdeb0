"""Test the collector's metrics against the ledger, its messages and a delayed sink."""

import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.health import Health, encode_health
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.bucket import Bucket
from edgemeter.collector.receive.collector import Collector
from edgemeter.collector.receive.monitor import CollectorMetrics, Monitor
from edgemeter.collector.trend.watch_file import watch_file_beside
from tests.fixtures.collecting import RESULTS, CollectorProcess, collecting, embedded_broker, intake
from tests.fixtures.exposition import read_metrics
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import peer
from tests.fixtures.record_factory import STARTED_AT_NS, make_record
from tests.fixtures.servers import LOOPBACK

# A collector that is only asked connects to nothing.
NO_BROKER = BrokerAddress(LOOPBACK, 1)


@pytest.fixture
def bench(tmp_path):
    with intake(tmp_path / "ledger") as bench:
        yield bench


def metrics(collector):
    """Return what the collector serves, as a scraper reads it; without the prefix."""
    metrics = read_metrics(CollectorMetrics(collector).text())
    shorter = {
        key if isinstance(key, tuple) else (key, None): value for key, value in metrics.items()
    }
    return {
        (name.removeprefix("edgemeter_collector_"), label): value
        for (name, label), value in shorter.items()
    }


def get(monitor, path):
    try:
        with urllib.request.urlopen(
            f"http://{monitor.host}:{monitor.port}{path}", timeout=150
        ) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def run(seq, **changes):
    return contract_record.encode(
        make_record(**({"device": "pi-1", "fleet": "lab", "session": 5, "seq": seq} | changes))
    )


def health(device, fleet, waiting):
    return Health(
        device=device, fleet=fleet, session=5, told_ns=1, agent="0.1.0", waiting_records=waiting
    )


def test_rejections_are_counted_by_reason(bench):
    """Each reason has its own count; one that never occurred is 0, and no other label exists."""
    assert {
        value for (name, _), value in metrics(bench.collector).items() if name == "rejections_total"
    } == {0}
    sent = {
        "topic": [("edgemeter/v1/lab//result", run(1))],
        "presence": [("edgemeter/v1/lab/pi-1/health", b"{}")],
        "payload": [(RESULTS, b"x\x9c broken"), (RESULTS, b"[{]")],
        "record": [(RESULTS, b"%d" % number) for number in range(3)],
        "origin": [(f"edgemeter/v1/lab/pi-{number}/result", run(9)) for number in (2, 3, 4, 5)],
        "collision": [(RESULTS, run(1))],
    }
    for topic, payload in (
        (RESULTS, run(1)),
        *(payload for payloads in sent.values() for payload in payloads),
    ):
        bench.bring(payload, topic=topic)
    metrics_now = metrics(bench.collector)
    assert metrics_now["messages_total", None] == 13
    counts = {
        reason: value for (name, reason), value in metrics_now.items() if name == "rejections_total"
    }
    assert counts == {**{reason: len(payloads) for reason, payloads in sent.items()}, "sink": 0}
    with SqliteLedger(bench.collector.place, "read") as ledger:
        assert sum(entry.times for entry in ledger.quarantined()) == sum(counts.values())


def test_the_latency_of_receipts_is_from_the_reading_of_a_message_to_its_receipt(bench):
    """A rejected message has no receipt and does not count.

    A value belongs to the bucket of its bound.
    """
    for seq, seconds in ((1, 1.0), (2, 2.2)):
        bench.watch = lambda seconds=seconds: setattr(bench, "now_s", bench.now_s + seconds)
        bench.bring(run(seq), b"garbage")
    metrics_now = metrics(bench.collector)
    assert metrics_now["receipt_seconds_sum", None] == pytest.approx(3.2)
    bounds = [
        metrics_now["receipt_seconds_bucket", bound] for bound in ("0.5", "1.0", "2.5", "+Inf")
    ]
    assert bounds == [0, 1, 2, 2]
    assert metrics_now["receipt_seconds_count", None] == 2


def test_the_lag_of_a_sink_is_the_age_of_the_oldest_record_that_it_does_not_have(
    bench, monkeypatch
):
    """A sink that has every record has no lag."""
    bench.bring(run(1))
    bench.bring(run(2))
    with SqliteLedger(bench.collector.place) as ledger:
        first, second = (record.received_ns for record in ledger.records())
        for sink, row in (("far behind", 0), ("one behind", 1), ("complete", 2)):
            ledger.advance(sink, row)
    monkeypatch.setattr(time, "time_ns", lambda: second + 10**9)
    metrics_now = metrics(bench.collector)
    lags = {
        label: value for (name, label), value in metrics_now.items() if name == "sink_lag_seconds"
    }
    assert lags == {
        "far behind": pytest.approx(1 + (second - first) / 1e9),
        "one behind": 1.0,
        "complete": 0.0,
    }
    assert [metrics_now["sink_row", sink] for sink in ("far behind", "one behind", "complete")] == [
        0,
        1,
        2,
    ]


def test_a_sink_that_has_everything_has_no_lag_and_what_it_refused_is_counted(
    influx_place, tmp_path
):
    """A real InfluxDB takes one of two records.

    In the other is a field that somebody else wrote with another type.
    """
    with closing(Bucket(influx_place.config())) as sink:
        sink.write([f"run,device=x accuracy_metric=1.5 {STARTED_AT_NS}"])
    with (
        embedded_broker() as broker,
        collecting(broker, tmp_path / "ledger", influx_place.config()) as collector,
        peer(broker) as device,
    ):
        for payload in (run(1, accuracy=None), run(2)):
            device.session.publish(RESULTS, payload)
        assert wait_until(
            lambda: (
                2
                in [value for (name, _), value in metrics(collector).items() if name == "sink_row"]
            )
        )
        metrics_now = metrics(collector)
    assert metrics_now["rejections_total", "sink"] == 1
    assert [value for (name, _), value in metrics_now.items() if name == "sink_lag_seconds"] == [0]


def test_the_backlog_is_what_all_devices_report(bench):
    """A device that has delivered reports so, and one that cannot read its outbox adds nothing."""
    unknown = msgspec.structs.replace(health("pi-1", "barn", None), outbox_trouble="it is damaged")
    for report, expected in (
        (health("pi-1", "lab", 700), 700),
        (health("pi-2", "lab", 44), 744),
        (health("pi-1", "barn", 3), 747),
        (health("pi-1", "lab", 0), 47),
        (unknown, 44),
    ):
        bench.bring(
            encode_health(report), topic=f"edgemeter/v1/{report.fleet}/{report.device}/health"
        )
        assert metrics(bench.collector)["outbox_records", None] == expected


def test_alerts_that_cannot_be_read_are_reported_not_absent(tmp_path):
    """Without alerts there is no metric of them; a damaged file is an error that names it."""
    SqliteLedger(tmp_path / "ledger").close()
    monitored = Collector(NO_BROKER, tmp_path / "ledger")
    assert not any(name.startswith("alert_") for name, _ in metrics(monitored))
    path = watch_file_beside(str(tmp_path / "ledger"))
    path.write_bytes(b"no database" * 100)
    with pytest.raises(ConfigError, match=path.name):
        metrics(monitored)


def test_labels_are_escaped(bench):
    """The name of a sink or a state cannot break a line of the format."""
    with SqliteLedger(bench.collector.place) as ledger:
        ledger.advance('a "b"\n\\', 3)
    assert metrics(bench.collector)["sink_row", 'a "b"\n\\'] == 3


@pytest.mark.services
def test_metrics_and_health_are_served_and_what_cannot_be_is_reported(tmp_path, monkeypatch):
    """Health is 200 while results are received, else 503 with the reason.

    It is 503 too while the ledger is busy. An unknown path gives 404, and a taken port is reported.
    """
    SqliteLedger(tmp_path / "ledger").close()
    collector = Collector(NO_BROKER, tmp_path / "ledger")
    monitor = Monitor(collector)
    monitor.start()
    try:
        status, text = get(monitor, "/metrics")
        assert (status, read_metrics(text)["edgemeter_collector_records_total"]) == (200, 0)
        assert get(monitor, "/healthz") == (503, f"no connection to the broker at {NO_BROKER}\n")
        monkeypatch.setattr(collector, "is_connected", lambda: True)
        assert get(monitor, "/healthz") == (200, "ok\n")
        monitor.metrics = Mock(text=Mock(side_effect=TransientError("the ledger is held")))
        assert get(monitor, "/metrics") == (503, "the ledger is held\n")
        assert get(monitor, "/else")[0] == 404
        with pytest.raises(UnavailableError, match="--metrics"):
            Monitor(collector, port=monitor.port).start()
    finally:
        monitor.stop()
        monitor.stop()


@pytest.mark.services
def test_a_collector_that_drains_nothing_loads_nothing_for_it(tmp_path):
    """It loads neither numpy nor InfluxDB's client, which are a third of its memory.

    The files that it maps show that.
    """
    with CollectorProcess(tmp_path / "ledger", "--port", "0") as collector:
        assert "/numpy/" not in Path(f"/proc/{collector.process.pid}/maps").read_text()
