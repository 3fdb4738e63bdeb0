"""Facts about the collector's intake as a whole.

There are several collectors, a flood that has to be taken in a hurry, and the metrics of the
collector itself.
"""

import re
import signal
import subprocess
import urllib.request

import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import EDGEMETER, RESULTS, TUNED, collecting
from tests.fixtures.exposition import read_metrics
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.publishing import started
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import mosquitto
from tools.benchmarks import flood

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def broker(tmp_path):
    with started(mosquitto(tmp_path, *TUNED)) as address:
        yield address


@pytest.mark.nightly
def test_a_flood_is_committed_and_receipted_to_the_last_record(broker, tmp_path):
    """A flood of far more than one commit is receipted to the last record.

    It is alone and in batches.
    """
    with collecting(broker, tmp_path / "ledger") as collector:
        # A flood returns when the last record is receipted, and fails when it is not.
        flood.flood(flood.Settings(broker.port, 6000, devices=30))
        flood.flood(flood.Settings(broker.port, 6000, batch=100, devices=3))
        assert collector.settled(120)
        with SqliteLedger(tmp_path / "ledger", "read") as ledger:
            assert len({record.record.id for record in ledger.records()}) == 12_000
            assert all(session.missing == 0 for session in ledger.sessions())
            assert ledger.quarantined() == []
        assert (
            collector.counts.inserted,
            collector.counts.duplicates,
            collector.counts.quarantined,
        ) == (12_000, 0, 0)


def test_the_command_serves_metrics_and_health_and_forgets_what_is_old(broker, tmp_path):
    """The command serves metrics and health, and removes old records.

    They are read as by a supervisor and by Prometheus. A broker that admits anybody is named, if
    others can reach it.
    """
    anywhere = f"0.0.0.0:{broker.port}"
    command = [
        *EDGEMETER,
        "collector",
        "up",
        "--broker",
        anywhere,
        "--ledger",
        str(tmp_path / "ledger"),
    ]
    process = subprocess.Popen(
        [*command, "--metrics", "0", "--keep-mb", "1"], stderr=subprocess.PIPE, text=True
    )
    try:
        match = re.search(r"/metrics at (\S+);", process.stderr.readline())
        peer = Peer(broker, "edgemeter/v1/+/+/receipt")
        for payload in (record.encode(make_record(session=5, seq=1)), b"garbage"):
            peer.session.publish(RESULTS, payload)
        assert wait_until(lambda: peer.messages)
        peer.close()
        assert f"the broker at {anywhere} lets anybody in" in process.stderr.readline()

        def get(path):
            with urllib.request.urlopen(f"http://{match[1]}{path}", timeout=150) as response:
                return response.read().decode()

        assert wait_until(
            lambda: (
                read_metrics(get("/metrics"))["edgemeter_collector_rejections_total", "record"] == 1
            )
        )
        metrics = read_metrics(get("/metrics"))
        expected = {
            "records_total": 1,
            "duplicates_total": 0,
            "connected": 1,
            "ledger_row": 1,
            "quarantine_entries": 1,
        }
        assert {name: metrics[f"edgemeter_collector_{name}"] for name in expected} == expected
        assert get("/healthz") == "ok\n"
    finally:
        process.send_signal(signal.SIGTERM)
        _, message = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "stored 1 new record, 0 were here already, quarantined 1" in message
