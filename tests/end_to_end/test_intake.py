"""The collector's intake as a whole: several collectors, a flood that it takes in a hurry, what it says of itself."""

import re
import signal
import subprocess
import urllib.request

import pytest

from edgemeter.agent.contract import messages, record
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.receive import receiver
from tests.benchmarks import flood
from tests.fixtures.collecting import EDGEMETER, TUNED, collecting
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.publishing import started
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import mosquitto

TOPIC = "edgemeter/v1/lab/pi-1/result"

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def broker(tmp_path):
    """Return the address of a mosquitto."""
    with started(mosquitto(tmp_path, *TUNED)) as address:
        yield address


@pytest.mark.services
def test_a_flood_is_committed_and_receipted_to_the_last_record(broker, tmp_path):
    """Far more than the collector looks at whole at once; afterwards all of it has been looked at."""
    with collecting(broker, tmp_path / "ledger") as collector:
        single = flood.flood(flood.Settings(broker.port, 6000, devices=30))
        batched = flood.flood(flood.Settings(broker.port, 6000, batch=100, devices=3))
        assert (single["receipted"], batched["receipted"]) == (6000, 6000)
        assert collector.settled(120)
        with SqliteLedger(tmp_path / "ledger", "read") as ledger:
            assert wait_until(lambda: not ledger.query("SELECT 1 FROM unchecked LIMIT 1"), 30)
            assert len({record.record.id for record in ledger.records()}) == 12_000
            assert all(session.missing == 0 for session in ledger.sessions())
            assert ledger.quarantined() == []
        assert (collector.counts.inserted, collector.counts.duplicates, collector.counts.quarantined) == (12_000, 0, 0)


def test_a_bad_record_in_a_flood_is_found_when_there_is_time(broker, tmp_path, monkeypatch):
    """Its envelope is right, so that it is held first; then it lies in quarantine, with the reason, and is counted."""
    monkeypatch.setattr(receiver, "WHOLE_BYTES", 0)
    good, bad = make_record(session=5, seq=1), make_record(session=5, seq=2)
    broken = record.encode(bad).replace(b'"latency":{', b'"latency":7,"other":{')
    with collecting(broker, tmp_path / "ledger") as collector:
        peer = Peer(broker)
        peer.session.publish(TOPIC, messages.join_records([record.encode(good), broken]))
        assert wait_until(lambda: collector.counts.quarantined == 1)
        peer.close()
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert [record.record for record in ledger.records(with_samples=True)] == [good]
        (entry,) = ledger.quarantined()
        assert (entry.payload, entry.topic) == (broken, TOPIC)


def test_collectors_of_a_group_share_what_comes_and_lose_nothing(broker, tmp_path):
    """Two ledgers, each record in exactly one of them, each device heard of in both."""
    paths = [tmp_path / "one", tmp_path / "two"]
    with collecting(broker, paths[0], group="collectors") as first, collecting(broker, paths[1], group="collectors") as two:
        outcome = flood.flood(flood.Settings(broker.port, 2000, devices=10))
        assert outcome["receipted"] == 2000
        assert min(first.counts.inserted, two.counts.inserted) > 0
    ids = []
    for path in paths:
        with SqliteLedger(path, "read") as ledger:
            ids += [record.record.id for record in ledger.records()]
    assert (len(ids), len(set(ids))) == (2000, 2000)


def test_the_command_serves_metrics_and_health_and_forgets_what_is_old(broker, tmp_path):
    """As a supervisor and Prometheus see it."""
    command = [*EDGEMETER, "collector", "up", "--broker", str(broker), "--ledger", str(tmp_path / "ledger")]
    process = subprocess.Popen([*command, "--metrics", "0", "--keep-mb", "1"], stderr=subprocess.PIPE, text=True)
    try:
        match = re.search(r"/metrics at (\S+);", process.stderr.readline())
        peer = Peer(broker, "edgemeter/v1/+/+/receipt")
        for payload in (record.encode(make_record(session=5, seq=1)), b"garbage"):
            peer.session.publish(TOPIC, payload)
        assert wait_until(lambda: peer.messages)
        peer.close()

        def get(path):
            with urllib.request.urlopen(f"http://{match[1]}{path}", timeout=150) as response:
                return response.read().decode()

        assert wait_until(lambda: 'edgemeter_collector_rejections_total{reason="record"} 1\n' in get("/metrics"))
        text = get("/metrics")
        for line in ("records_total 1", "duplicates_total 0", "connected 1", "ledger_row 1", "quarantine_entries 1", "waiting_messages 0"):
            assert f"edgemeter_collector_{line}\n" in text
        assert get("/healthz") == "ok\n"
    finally:
        process.send_signal(signal.SIGTERM)
        _, message = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "stored 1 new records, dropped 0 duplicates, quarantined 1" in message


@pytest.mark.parametrize(("host", "times"), [("0.0.0.0", 1), ("127.0.0.1", 0)])  # noqa: S104 - to connect to, as another address of this machine
def test_a_broker_that_lets_anybody_in_is_named_once(broker, tmp_path, host, times):
    """On the loopback it is a desk's."""
    command = [*EDGEMETER, "collector", "up", "--broker", f"{host}:{broker.port}", "--ledger", str(tmp_path / "ledger")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        first_line = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        message = process.stderr.read()
    assert "receiving from" in first_line
    assert (first_line + message).count(f"the broker at {host}:{broker.port} lets anybody in") == times


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--metrics", "x"], "write PORT or HOST:PORT"), (["--group", "a/b"], "is not a valid group name")],
)
def test_wrong_options_end_in_one_line(broker, tmp_path, options, message):
    """Usage errors, before anything is touched."""
    command = [*EDGEMETER, "collector", "up", "--broker", str(broker), "--ledger", str(tmp_path / "ledger")]
    completed = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=150)
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert message in completed.stderr
    assert not (tmp_path / "ledger").exists()
