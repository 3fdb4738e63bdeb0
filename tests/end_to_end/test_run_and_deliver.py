"""Facts about the whole way, from `edgemeter run` to the ledger.

The command, a broker and a collector are processes; the end compares what arrived.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.replay_case import replay_model
from tests.fixtures.servers import mosquitto


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "EDGEMETER_HOME": str(folder)}
    return subprocess.Popen(
        [*EDGEMETER, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout_s: float = 120) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


@pytest.fixture
def broker(tmp_path):
    server = mosquitto(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.mark.mosquitto
def test_a_collector_killed_while_a_suite_runs_gets_every_record_once(broker, tmp_path):
    """A collector that is killed while a suite runs gets every record once.

    After SIGKILL in the middle of `edgemeter run` and a restart, the ledger holds each run of the
    printed document once.
    """
    model, address, ledger = (
        replay_model(tmp_path),
        f"127.0.0.1:{broker.port}",
        tmp_path / "ledger.sqlite",
    )
    collector = start(tmp_path, "collector", "up", "--broker", address, "--ledger", ledger)
    run = start(
        tmp_path,
        "run",
        model,
        "--mode",
        "rapid",
        "--repeats",
        12,
        "--broker",
        address,
        "--power",
        "none",
        "--format",
        "json",
    )
    try:
        assert wait_until(lambda: ledger.exists() and _count(ledger) >= 2, 60)
        collector.send_signal(signal.SIGKILL)
        finish(collector)
        assert run.poll() is None
        assert _count(ledger) < 12
        collector = start(tmp_path, "collector", "up", "--broker", address, "--ledger", ledger)
        status, out, err = finish(run)
    finally:
        run.kill()
        collector.kill()
        finish(collector)
    assert status == 0, err
    printed = json.loads(out)["runs"]
    with SqliteLedger(ledger, "read") as opened:
        ids = [entry.record.id for entry in opened.records()]
    assert sorted(ids) == sorted(record["id"] for record in printed)
    assert [record["seq"] for record in printed] == list(range(1, 13))


def _count(ledger: Path) -> int:
    with SqliteLedger(ledger, "read") as opened:
        return opened.last_row()
