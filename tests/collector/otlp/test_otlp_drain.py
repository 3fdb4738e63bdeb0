"""Facts about draining a ledger to an OTLP endpoint: at least once, from the position in the ledger, beside other sinks."""

import signal
import time

import msgspec
import pytest

from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.record import encode
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx import drain as influx_drain
from edgemeter.collector.influx.drain import Drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.otlp.otlp_config import parse_otlp
from edgemeter.collector.otlp.otlp_drain import begin_with_next, drain_to_otlp
from edgemeter.collector.otlp.otlp_points import OtlpPoints
from edgemeter.collector.otlp.otlp_sink import OtlpSink
from edgemeter.collector.receive.monitor import MonitorMetric
from edgemeter.collector.receive.service import Collector
from tests.fixtures.collecting import CollectorProcess
from tests.fixtures.command import edgemeter
from tests.fixtures.draining import draining
from tests.fixtures.ledgers import arrival, fill, initialised
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import peer
from tests.fixtures.record_factory import make_record

pytestmark = pytest.mark.needs(module="opentelemetry")
PLAIN = "text/plain"


def drain_of(ledger_place, server, name="c-1", **options):
    """Return a drain of a ledger to an endpoint."""
    points = OtlpPoints(lambda: iter([MonitorMetric("connected", "gauge", "1.", 1)]), lambda: name)
    return Drain(ledger_place, OtlpSink(parse_otlp(server.url, environ={})), points, status=points.status_lines, **options)


def seqs(server):
    """Return the runs that an endpoint has accepted, by the time of their points: that of the start, and a number from the seq."""
    return sorted(sample.at_ns // 10**9 % 1000 for sample in server.of("edgemeter.run.verdict"))


def runs(first, last):
    """Return runs of a device, each a second after the other."""
    return [make_record(session=5, seq=seq, started_at_ns=1_760_000_000_000_000_000 + seq * 10**9) for seq in range(first, last + 1)]


def test_a_drain_that_starts_again_goes_on_at_its_position(endpoint, tmp_path):
    """Every run once, in several batches; its own position, beside that of others."""
    path = fill(tmp_path / "ledger", runs(1, 20))
    with draining(drain_of(path, endpoint)) as drain:
        assert wait_until(lambda: drain.has_reached(20)), drain.trouble
    fill(path, runs(21, 30))
    with draining(drain_of(path, endpoint)) as drain:
        assert wait_until(lambda: drain.has_reached(30)), drain.trouble
    assert seqs(endpoint) == list(range(1, 31))
    with SqliteLedger(path, "read") as ledger:
        assert ledger.positions() == {f"otlp {endpoint.url}/v1/metrics": 30}


def test_a_busy_endpoint_gets_the_same_again_after_the_pause_it_asked_for(endpoint, tmp_path, monkeypatch):
    """503, then 429 with a pause, then success: at least once, and nothing is skipped."""
    monkeypatch.setattr(influx_drain, "FIRST_PAUSE_S", 0.05)
    endpoint.script += [(503, PLAIN, {}, b""), (429, PLAIN, {"Retry-After": "1"}, b"")]
    path = fill(tmp_path / "ledger", runs(1, 3))
    begun = time.monotonic()
    with draining(drain_of(path, endpoint)) as drain:
        assert wait_until(lambda: drain.has_reached(3)), drain.trouble
    assert time.monotonic() - begun > 1.0
    assert seqs(endpoint) == [1, 2, 3]
    assert len(endpoint.requests) == 3


def test_runs_that_are_too_old_are_counted_and_those_that_are_wrong_quarantined(endpoint, tmp_path, caplog):
    """A device that was away for a week: its old runs stay in the ledger, are not tried again, and stop nothing."""

    def refuses(request):
        times = {point.time_unix_nano // 10**9 % 1000 for of in request.resource_metrics for point in verdicts(of)}
        return "out of order sample" if times & {2, 3} else "duplicate label" if 5 in times else None

    def verdicts(of):
        return [point for metric in of.scope_metrics[0].metrics for point in metric.gauge.data_points if metric.name.endswith("verdict")]

    endpoint.refuses = refuses
    path = fill(tmp_path / "ledger", runs(1, 6))
    with draining(drain_of(path, endpoint)) as drain:
        assert wait_until(lambda: drain.has_reached(6)), drain.trouble
    assert (drain.expired, drain.rejected) == (2, 1)
    assert seqs(endpoint) == [1, 4, 6]
    with SqliteLedger(path, "read") as ledger:
        (entry,) = ledger.quarantined()
    assert entry.reason == "the sink rejects it: duplicate label"
    assert caplog.text.count("stay in the ledger") == 1


def test_an_endpoint_that_refuses_for_good_is_one_line_and_loses_nothing(endpoint, tmp_path, caplog, monkeypatch):
    """Wrong headers, then a wrong address, then both corrected: the position stood still meanwhile."""
    monkeypatch.setattr(influx_drain, "LONGEST_PAUSE_S", 0.1)
    endpoint.refuses = lambda _: (401, PLAIN, {}, b"no key")
    path = fill(tmp_path / "ledger", runs(1, 3))
    with draining(drain_of(path, endpoint)) as drain:
        assert wait_until(lambda: len(endpoint.requests) > 3)
        assert "no key" in drain.trouble
        endpoint.refuses = lambda _: "whatever"
        assert wait_until(lambda: "rejects every request" in (drain.trouble or ""))
        with SqliteLedger(path, "read") as ledger:
            assert ledger.position(drain.sink_name) == 0
        endpoint.refuses = lambda _: None
        assert wait_until(lambda: drain.has_reached(3)), drain.trouble
    assert [record.levelname for record in caplog.records if "not drained" in record.message] == ["ERROR", "ERROR"]
    assert seqs(endpoint) == [1, 2, 3]


def test_devices_and_the_collector_are_written_each_time(endpoint, tmp_path, monkeypatch):
    """A store of metrics forgets a gauge after five minutes, so that one written only where it changed would vanish."""
    monkeypatch.setattr(influx_drain, "DRAIN_POLL_S", 0.05)
    path = tmp_path / "ledger"
    with SqliteLedger(path) as ledger:
        ledger.commit(
            [], changes=[PresenceChange("lab", "pi-1", Health(device="pi-1", fleet="lab", session=5, told_ns=1, agent="0.1.0"), 6)]
        )
    with draining(drain_of(path, endpoint, status_every_s=0.0)):
        assert wait_until(lambda: len(endpoint.of("edgemeter.device.changed_timestamp", **{"device.id": "pi-1"})) >= 3)
    assert {sample.resource["service.instance.id"] for sample in endpoint.of("edgemeter.collector.connected")} == {"c-1"}


@pytest.mark.postgresql
def test_of_two_collectors_of_a_ledger_one_sends_the_runs_and_each_its_own_figures(endpoint, postgresql):
    """The lease decides; when the one ends, the other goes on, and no run is sent twice or left out."""
    ledger_place = initialised(postgresql)
    with open_ledger(ledger_place) as ledger:
        ledger.commit([arrival(run) for run in runs(1, 10)])
    first, second = (drain_of(ledger_place, endpoint, name, status_every_s=0.0) for name in ("c-1", "c-2"))
    with draining(first), draining(second):
        assert wait_until(lambda: first.has_reached(10) and second.has_reached(10), 30), (first.trouble, second.trouble)
        assert wait_until(lambda: {"c-1", "c-2"} == instances(endpoint), 30)
    with open_ledger(ledger_place) as ledger:
        ledger.commit([arrival(run) for run in runs(11, 20)])
    with draining(drain_of(ledger_place, endpoint, "c-3")) as third:
        assert wait_until(lambda: third.has_reached(20), 30), third.trouble
    assert seqs(endpoint) == list(range(1, 21))


def instances(server):
    """Return the collectors whose own figures an endpoint has."""
    return {sample.resource["service.instance.id"] for sample in server.of("edgemeter.collector.connected")}


def test_a_first_start_begins_with_the_next_record(endpoint, tmp_path):
    """Stores of metrics take hours, not years; a position that is there is left alone, also one that was set back to the beginning."""
    path = fill(tmp_path / "ledger", runs(1, 5))
    name = f"otlp {endpoint.url}/v1/metrics"
    begin_with_next(path, name)
    fill(path, runs(6, 7))
    begin_with_next(path, name)
    with draining(drain_of(path, endpoint)) as drain:
        assert wait_until(lambda: drain.has_reached(7)), drain.trouble
    assert seqs(endpoint) == [6, 7]
    document = edgemeter("collector", "drain", "--ledger", path, "--otlp", endpoint.url, "--again", "--json").stdout
    assert msgspec.json.decode(document) == {"sinks": [{"sink": name, "records_to_write": 7}]}
    begin_with_next(path, name)
    with draining(drain_of(path, endpoint)) as drain:
        assert wait_until(lambda: drain.has_reached(7)), drain.trouble
    assert seqs(endpoint) == [1, 2, 3, 4, 5, 6, 6, 7, 7]


def test_what_was_excluded_stays_at_the_endpoint(endpoint, tmp_path):
    """OTLP deletes nothing: the run is not called removed there, and what follows is drained."""
    first, second = runs(1, 2)
    path = fill(tmp_path / "ledger", [first, second])
    with SqliteLedger(path) as ledger:
        LedgerRuns(ledger).withdraw(first.id, "deleted", "ada@lab", "")
        with draining(drain_of(path, endpoint)) as drain:
            assert wait_until(lambda: drain.has_reached(2)), drain.trouble
        assert [run.id for _, run in LedgerRuns(ledger).withdrawn(drain.sink_name)] == [first.id]
    assert seqs(endpoint) == [2]


@pytest.mark.mosquitto
def test_a_frozen_influxdb_and_otlp_do_not_stop_each_other(endpoint, broker, tmp_path):
    """Each has its own thread and position; /metrics names both, and retention waits for both."""
    path = tmp_path / "ledger"
    collector = Collector(broker, path, InfluxConfig("http://127.0.0.1:1", "t", "o"))
    drain_to_otlp(collector, parse_otlp(endpoint.url, environ={}))
    collector.start()
    try:
        fill(path, runs(1, 3))
        assert wait_until(lambda: seqs(endpoint) == [1, 2, 3], 30), collector.trouble()
        rows = {"influx http://127.0.0.1:1 bucket 'edgemeter' of 'o'": 0, f"otlp {endpoint.url}/v1/metrics": 3}
        assert wait_until(lambda: {metric.name: metric.value for metric in collector.metrics()}["sink_row"] == rows)
        metrics = {metric.name: metric.value for metric in collector.metrics()}
        assert metrics["otlp_rejected_points_total"] == 0
        assert metrics["drain_ok"] == 0
        assert wait_until(lambda: endpoint.of("edgemeter.collector.ledger_row", **{"service.instance.id": collector.name}))
    finally:
        collector.stop()


def test_collector_up_sends_what_a_device_delivers(endpoint, tmp_path):
    """The whole command: a device's run and presence and the collector's own figures, all at one endpoint; a stop loses nothing."""
    with CollectorProcess(tmp_path / "ledger", "--port", "0", "--otlp", endpoint.url) as up, peer(up.address) as device:
        device.session.publish("edgemeter/v1/lab/pi-1/result", encode(make_record(device="pi-1", fleet="lab", session=5, seq=1)))
        assert wait_until(lambda: endpoint.of("edgemeter.latency.p50", **{"service.instance.id": "pi-1", "service.namespace": "lab"}), 60)
        assert endpoint.of("process.resident_memory")
        status, stderr = up.end(signal.SIGTERM)
    assert status == 0, stderr
    assert "WARNING" not in stderr
