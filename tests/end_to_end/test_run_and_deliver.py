"""Facts about the whole way: `edgemeter run` as a command, a broker and a collector as processes, and what is compared at the end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.servers import mosquitto

EDGEMETER = [sys.executable, "-m", "edgemeter.agent.cli.main"]


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start an edgemeter command whose home is `folder`."""
    environment = {**os.environ, "EDGEMETER_HOME": str(folder)}
    return subprocess.Popen([*EDGEMETER, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], timeout_s: float = 120) -> tuple[int, str, str]:
    """Return status, output and errors of a command."""
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def replay_model(folder: Path, latency_ms: float = 1.0) -> Path:
    """Write a replay model."""
    model = {
        "format": "edgemeter-replay",
        "schema": 1,
        "latencies_ms": [latency_ms],
        "inputs": [{"name": "x", "shape": [1, 4], "dtype": "float32"}],
        "outputs": [{"name": "y", "shape": [1], "dtype": "float32"}],
    }
    path = folder / "m.replay.json"
    path.write_text(json.dumps(model))
    return path


@pytest.fixture
def broker(tmp_path):
    """Return a running mosquitto."""
    server = mosquitto(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.mark.mosquitto
@pytest.mark.slow
def test_a_collector_killed_while_a_suite_runs_gets_every_record_once(broker, tmp_path):
    """SIGKILL in the middle of `edgemeter run`, a restart, and the ledger holds each run of the printed document, once."""
    model, address, ledger = replay_model(tmp_path), f"127.0.0.1:{broker.port}", tmp_path / "ledger.sqlite"
    collector = start(tmp_path, "collector", "up", "--broker", address, "--ledger", ledger)
    run = start(tmp_path, "run", "--model", model, "--mode", "rapid", "--repeats", 12, "--broker", address, "--power", "none", "--json")
    try:
        deadline = time.monotonic() + 300
        while not ledger.exists() or _count(ledger) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        collector.send_signal(signal.SIGKILL)
        finish(collector)
        time.sleep(1.5)
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
    with SqliteLedger(ledger, "read") as held:
        kept = [entry.record.id for entry in held.records()]
    assert sorted(kept) == sorted(record["id"] for record in printed)
    assert [record["seq"] for record in printed] == list(range(1, 13))


@pytest.mark.mosquitto
@pytest.mark.slow
def test_without_a_collector_the_records_wait_and_publish_sends_them(broker, tmp_path):
    """`edgemeter run` says that nobody confirmed, fails, keeps; `edgemeter agent publish` delivers."""
    model, address, ledger = replay_model(tmp_path), f"127.0.0.1:{broker.port}", tmp_path / "ledger.sqlite"
    options = ("--mode", "rapid", "--repeats", 2, "--power", "none", "--broker", address, "--delivery-timeout", 1)
    status, _, err = finish(start(tmp_path, "run", "--model", model, *options))
    assert status == 1
    assert "2 records are not delivered: no collector has confirmed them" in err
    assert "`edgemeter agent publish` sends them later" in err
    collector = start(tmp_path, "collector", "up", "--broker", address, "--ledger", ledger)
    try:
        status, _, err = finish(start(tmp_path, "agent", "publish", "--broker", address))
    finally:
        collector.terminate()
        finish(collector)
    assert (status, err.strip()) == (0, "delivered 2 records; the outbox is empty")
    assert _count(ledger) == 2


@pytest.mark.mosquitto
@pytest.mark.slow
def test_replayed_power_becomes_the_energy_that_the_trace_holds(broker, tmp_path):
    """5 W replayed over a 10 s run: through MQTT, ledger and `compare` the energy per inference is 5 W x window / inferences."""
    model, address, ledger = replay_model(tmp_path, 20.0), f"127.0.0.1:{broker.port}", tmp_path / "ledger.sqlite"
    trace = tmp_path / "trace.csv"
    trace.write_text("t_s,power_w\n" + "".join(f"{n / 10},5.0\n" for n in range(20)))
    (tmp_path / "config.toml").write_text(f'[sensors.replay]\npath = "{trace}"\nscope = "board-input"\n')
    collector = start(tmp_path, "collector", "up", "--broker", address, "--ledger", ledger)
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f'name = "s"\n[defaults]\nmodel = "{model}"\nrepeats = 1\nqueries = 100\nseconds = 10.2\nidle_seconds = 1.5\n'
        '[[case]]\n[[case]]\nrole = "reference"\n'
    )
    options = ("--config", tmp_path / "config.toml", "--power", "replay", "--device", "bench", "--broker", address, "--json")
    try:
        status, out, err = finish(start(tmp_path, "run", suite, *options))
        assert status == 0, err
    finally:
        collector.terminate()
        finish(collector)
    energy = json.loads(out)["runs"][0]["energy"]
    assert energy["gross_mj"] == pytest.approx(5.0 * energy["window_ms"] / energy["inferences"], rel=1e-6)
    assert energy["net_state"] == "not_resolvable"
    status, out, err = finish(start(tmp_path, "compare", "--reference", "reference", "--store", ledger, "--json"))
    assert status == 0, err
    rows = json.loads(out)["rows"]
    assert [row["energy_provenance"] for row in rows] == ["replayed", "replayed"]
    assert {row["energy_gross_mj"] for row in rows} <= {record["energy"]["gross_mj"] for record in _records(ledger)}


def _count(ledger: Path) -> int:
    with SqliteLedger(ledger, "read") as held:
        return held.last_row()


def _records(ledger: Path) -> list[dict]:
    with SqliteLedger(ledger, "read") as held:
        return [json.loads(record.encode(entry.record)) for entry in held.records()]
