"""Facts about the whole way: `edgemeter run` as a command, a broker and a collector as processes, and what is compared at the end."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from edgemeter.agent.contract.messages import EVERY_ACTIVITY, decode_activity
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.replay_case import replay_model
from tests.fixtures.servers import address_of, mosquitto


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start an edgemeter command whose home is `folder`."""
    environment = {**os.environ, "EDGEMETER_HOME": str(folder)}
    return subprocess.Popen([*EDGEMETER, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], timeout_s: float = 120) -> tuple[int, str, str]:
    """Return status, output and errors of a command."""
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


@pytest.fixture
def broker(tmp_path):
    """Return a running mosquitto."""
    server = mosquitto(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.mark.mosquitto
def test_a_collector_killed_while_a_suite_runs_gets_every_record_once(broker, tmp_path):
    """SIGKILL in the middle of `edgemeter run`, a restart, and the ledger holds each run of the printed document, once."""
    model, address, ledger = replay_model(tmp_path), f"127.0.0.1:{broker.port}", tmp_path / "ledger.sqlite"
    collector = start(tmp_path, "collector", "up", "--broker", address, "--ledger", ledger)
    run = start(tmp_path, "run", "--model", model, "--mode", "rapid", "--repeats", 12, "--broker", address, "--power", "none", "--json")
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


class Watcher(Peer):
    """Keeps when which activity came."""

    def __init__(self, address):
        self.activities = []
        super().__init__(address, EVERY_ACTIVITY)

    def received(self, message):
        """Note it with the monotonic clock, by which the runs are timed too."""
        self.activities.append((time.monotonic_ns(), decode_activity(message.payload).measuring))


@pytest.mark.nightly
@pytest.mark.mosquitto
def test_what_a_run_measures_is_reported_before_its_first_timed_query_and_after_the_last_run(broker, tmp_path):
    """One message as each run begins, one at the end; nothing in the time between first and last timed query."""
    watcher = Watcher(address_of(broker))
    options = ("--mode", "rapid", "--repeats", 3, "--power", "none", "--broker", f"127.0.0.1:{broker.port}", "--delivery-timeout", 1)
    status, out, err = finish(start(tmp_path, "run", "--model", replay_model(tmp_path, 50.0), *options, "--json"))
    assert (status, "3 records are not delivered" in err) == (1, True)
    assert wait_until(lambda: len(watcher.activities) >= 4)
    watcher.session.close()
    moments, measured = zip(*watcher.activities, strict=True)
    assert [measuring and (measuring.run, measuring.runs, measuring.job) for measuring in measured] == [
        (1, 3, None),
        (2, 3, None),
        (3, 3, None),
        None,
    ]
    windows = [(run["windows"]["timed_start_ns"], run["windows"]["timed_end_ns"]) for run in json.loads(out)["runs"]]
    ends_and_begins = [moment for begin_ns, length_ns in windows for moment in (begin_ns, begin_ns + length_ns)]
    b1, e1, b2, e2, b3, e3 = ends_and_begins
    assert moments[0] < b1 < e1 < moments[1] < b2 < e2 < moments[2] < b3 < e3 < moments[3]


def _count(ledger: Path) -> int:
    with SqliteLedger(ledger, "read") as opened:
        return opened.last_row()
