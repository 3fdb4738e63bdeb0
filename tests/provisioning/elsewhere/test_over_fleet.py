"""Facts about `--on` devices of the fleet that need no broker: what is refused in one line, and how long a device is waited for."""

import os
import time
from dataclasses import replace

import pytest

from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.contract.orders import Content, Measure
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.provisioning.elsewhere.over_fleet import AWAY_S, UNANSWERED_S, Patience
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device, DeviceReport
from edgemeter.provisioning.registry.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.command import edgemeter
from tests.fixtures.fleet_key import give_service
from tests.fixtures.replay_case import write_replay
from tests.fixtures.rows import table_row

S = 1_000_000_000


class Workstation:
    """A fleet of one accepted, one expected and one revoked device, that nobody serves; models beside it; and the command."""

    def __init__(self, path):
        self.path = path
        self.folder = give_service(FleetFolder(path / "fleet"))
        self.ledger = path / "ledger.sqlite"
        SqliteLedger(self.ledger).close()
        self.models = [write_replay(path, name, latencies_ms=[latency]) for name, latency in (("a", 2.0), ("b", 3.0))]
        self.registry = Registry(self.folder.registry)
        with self.registry.transaction() as statements:
            for name, trust in (("pi5-01", "accepted"), ("pi5-02", "expected"), ("pi5-03", "revoked")):
                devices.put(statements, Device(name, "lab", name, "pi5", (), trust, 1))

    def call(self, *words, **variables):
        """Call `edgemeter`; return its status and its lines on standard error."""
        home = self.path / "home"
        environment = {"EDGEMETER_HOME": str(home), "EDGEMETER_FLEET_FOLDER": str(self.folder.path), "EDGEMETER_LEDGER": str(self.ledger)}
        completed = edgemeter(*words, env=os.environ | environment | variables, cwd=self.path)
        assert completed.stdout == ""
        return completed.returncode, completed.stderr.splitlines()

    def jobs(self):
        """Return how many jobs and contents there are."""
        contents = list(self.folder.content.iterdir()) if self.folder.content.exists() else []
        return len(jobs.select_jobs(self.registry, "")), len(contents)


@pytest.fixture
def workstation(tmp_path):
    """Return a workstation."""
    new_workstation = Workstation(tmp_path)
    yield new_workstation
    new_workstation.registry.close()


def test_what_cannot_be_ordered_orders_nothing(workstation):
    """One line, with the status of a wrong input; no job is in the registry."""
    (workstation.path / "f.py").write_text("def make(): ...\n")
    run, compare = ("run", "a.replay.json", "--on", "pi5-01"), ("compare", "a.replay.json", "b.replay.json", "--on")
    for words, reason in (
        (("run", "a.replay.json", "--on", "pi5-02"), "none accepts orders (expected)"),
        (("run", "absent.replay.json", "--on", "pi5-01"), "absent.replay.json"),
        ((*run, "--power", "none"), "--power"),
        ((*run, "--option", "k=v"), "options are library settings"),
        (("run", "f.py:make", "--on", "pi5-01"), "is code, which no order carries"),
        ((*run, "--data", "none"), "no folder of images at"),
        ((*run, "--ledger", "none.sqlite"), "none.sqlite"),
        ((*run, "--ledger", "mqtt://x"), "mqtt:// is no ledger"),
        ((*compare, "pi5-09"), "no device matches 'pi5-09'"),
        ((*compare[:-1], "a.replay.json", "--on", "pi5-01"), "none of them twice"),
    ):
        with table_row(words):
            code, lines = workstation.call(*words)
            errors = [line for line in lines if not line.startswith(("Usage", "Try"))]
            assert (code in {1, 2}, len(errors)) == (True, 1), lines
            assert reason in errors[0]
    assert workstation.jobs()[0] == 0


def waited(workstation, execution, state, seconds, session=1):
    """Return what becomes of the wait for a device in this state after so many seconds: why it ended, None where it goes on."""
    if state is not None:
        with workstation.registry.transaction() as statements:
            devices.put_reports(statements, [DeviceReport("pi5-01", "lab", DeviceState(state=state, session=session), time.time_ns())])
    now_s = [0.0]
    patience = Patience(workstation.registry, lambda: now_s[0])
    assert not patience.gives_up(execution)
    now_s[0] = seconds
    return patience.reasons.get("pi5-01") if patience.gives_up(execution) else None


def execution_of(workstation, state, work=None):
    """Return the execution of a new order in this state."""
    content = Content(sha256="0" * 64, size_bytes=1, name="suite.toml")
    with workstation.registry.transaction() as statements:
        job = jobs.add(statements, NewJob((work or Measure(suite=content),), "t", 100.0), [("pi5-01", "lab")], time.time_ns())
    execution = jobs.find_execution(workstation.registry, job, "pi5-01")
    if state != "queued":
        with workstation.registry.transaction() as statements:
            jobs.write_executions(statements, [replace(execution, state=state, attempt=1)])
    return jobs.find_execution(workstation.registry, job, "pi5-01")


def test_a_silent_device_is_waited_for_so_long(workstation):
    """Just before the limit it is waited for; then its order is cancelled, for a reason in one line."""
    for state, presence, limit_s, reason in (
        ("queued", None, UNANSWERED_S, "it has never connected"),
        ("sent", "online", UNANSWERED_S, "it has been online for"),
        ("running", "lost", AWAY_S, "given up while it measured: it has been lost for"),
    ):
        with table_row(state, presence):
            execution = execution_of(workstation, state)
            assert waited(workstation, execution, presence, limit_s - 1) is None
            assert reason in waited(workstation, execution, presence, limit_s)
            ended = jobs.find_execution(workstation.registry, execution.job, "pi5-01")
            assert (ended.state, ended.requested) == (("cancelled", None) if state == "queued" else (state, "cancel"))
            with workstation.registry.transaction() as statements:
                jobs.write_executions(statements, [replace(ended, state="cancelled")])


def test_a_device_that_measures_or_is_busy_is_waited_for_without_end(workstation):
    """While it is online, or while it carries out another's order."""
    assert waited(workstation, execution_of(workstation, "running"), "online", 1e6) is None
    assert waited(workstation, execution_of(workstation, "queued"), "online", 1e6) is None


def test_a_device_that_disappeared_while_it_measured_is_given_up_by_the_next_order(workstation):
    """Its earlier order stays open for days, which would excuse it for as long."""
    execution_of(workstation, "running")
    execution = execution_of(workstation, "queued")
    assert waited(workstation, execution, "lost", UNANSWERED_S - 1) is None
    assert "no answer to the order in 60 s, so it is cancelled (it has been lost" in waited(workstation, execution, "lost", UNANSWERED_S)
    assert jobs.find_execution(workstation.registry, execution.job, "pi5-01").state == "cancelled"


def test_an_option_of_what_is_measured_elsewhere_needs_on(workstation):
    """On a run here it would change nothing; the ledger in the environment is no mistake."""
    for words in (("--release", "pi5.tar"), ("--ledger", "x.sqlite")):
        for command in (("run", "a.replay.json"), ("compare", "a.replay.json", "b.replay.json")):
            code, lines = workstation.call(*command, *words)
            assert code == 2
            assert f"{words[0]} needs --on" in lines[-1]
