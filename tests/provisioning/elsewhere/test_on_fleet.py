"""The whole way of `--on`: a workstation's command, the fleet's service, a real broker, two agents as processes, and a collector."""

import json
import os
import signal

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.provisioning.registry import jobs
from tests.fixtures.command import edgemeter
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.replay_case import write_replay
from tests.fixtures.served_fleet import LONG_S, served_fleet

pytestmark = [pytest.mark.mosquitto, pytest.mark.needs("openssl")]

DEVICES = ("pi5-01", "pi5-02")
SHORT = ("--mode", "rapid")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Return a fleet of two devices, with replay models beside it."""
    path = tmp_path_factory.mktemp("lab")
    for name, latency_ms in (("a", 2.0), ("b", 3.0)):
        write_replay(path, name, latencies_ms=[latency_ms])
    with served_fleet(path, *DEVICES) as fleet:
        yield fleet


def call(fleet, *words, status=0, **variables):
    """Return what a command of the workstation printed, on both streams."""
    ended = edgemeter(*words, env=os.environ | fleet.environment | variables, cwd=fleet.path)
    assert ended.returncode == status, ended.stderr
    return ended.stdout, ended.stderr


def runs_in(path):
    """Return device, id and job of the runs in a ledger."""
    with SqliteLedger(path, "read") as ledger:
        return [(stored_run.record.device, stored_run.record.id, stored_run.record.job) for stored_run in ledger.records()]


def test_a_model_is_measured_on_a_device_and_kept_in_both_ledgers(lab):
    """The record that the collector received is printed, and stored at the workstation with its samples; the model came by the order."""
    out, notes = call(lab, "run", "a.replay.json", "--on", "pi5-01", "--mode", "rapid", "--repeats", 2, "--format", "json")
    runs = json.loads(out)["runs"]
    assert [run["device"] for run in runs] == ["pi5-01", "pi5-01"]
    assert {run["case"] for run in runs} == {runs[0]["case"]}
    for path in (lab.ledger, lab.workstation / "ledger.sqlite"):
        assert {run["id"] for run in runs} <= {run for _, run, _ in runs_in(path)}
    with SqliteLedger(lab.workstation / "ledger.sqlite", "read") as ledger:
        stored = {stored_run.record.id: stored_run.record for stored_run in ledger.records(with_samples=True)}
    assert all(stored[run["id"]].samples for run in runs)
    assert "pi5-01: done: 2 runs" in notes


def test_ctrl_c_cancels_the_order(lab):
    """On both devices, and it says so; the run in progress publishes nothing, those that had ended are kept here too."""
    before = len(runs_in(lab.ledger))
    process = lab.popen("run", "a.replay.json", "--on", "all", "--mode", "rapid", "--repeats", 50)
    assert wait_until(lambda: {e.state for e in latest(lab)} == {"running"}, LONG_S)
    assert wait_until(lambda: len(runs_in(lab.ledger)) > before + 2, LONG_S)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == 130, errors
    assert "is cancelled on pi5-01, pi5-02" in errors
    assert wait_until(lambda: {e.state for e in latest(lab)} == {"cancelled"}, LONG_S)
    collected = {run for _, run, _ in runs_in(lab.ledger)[before:]}
    assert 2 < len(collected) < 100
    assert collected == {run for _, run, _ in runs_in(lab.workstation / "ledger.sqlite")} & collected


def latest(fleet):
    """Return the executions of the newest job."""
    newest = jobs.select_jobs(fleet.registry, "ORDER BY made_ns DESC LIMIT 1")
    return jobs.executions_of_job(fleet.registry, newest[0].job) if newest else []
