"""`edgemeter fleet run`, `jobs`, `cancel`, `schedule`, as people type them; once with a real broker and replay devices."""

import json
import time
from dataclasses import replace

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs import job_view
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.fleet_key import give_service
from tests.fixtures.rows import table_row

NAMES = ["a", "b", "c"]


class Fleet:
    """A folder with devices in its registry, one of them revoked, one not joined, and the commands."""

    def __init__(self, path):
        self.path = path
        self.folder = give_service(FleetFolder(path / "fleet"))
        self.suite = path / "suite.toml"
        self.suite.write_text('name = "one"\n[[case]]\nmodel = "edgemeter-shapes_int8.tflite"\nmode = "rapid"\n')
        self.registry = Registry(self.folder.registry)
        with self.registry.transaction() as connection:
            for name in NAMES:
                devices.put(connection, Device(name, "lab", name, "pi5", ("coral",), "accepted", 1, 1))
            devices.put(connection, Device("gone", "lab", "gone", "pi5", (), "revoked", 1, 1))
            devices.put(connection, Device("new", "lab", None, None, (), "expected", None, 1))

    def call(self, *arguments, code=0):
        """Call `edgemeter fleet` and return its standard output and error."""
        result = run_fleet(self.folder.path, *arguments, code=code)
        return result.stdout, result.stderr

    def run(self, *options, code=0):
        """Order the suite."""
        return self.call("run", str(self.suite), "--on", "all", *options, code=code)


@pytest.fixture
def lab(tmp_path):
    """Return a fleet that nobody serves."""
    lab_fleet = Fleet(tmp_path)
    yield lab_fleet
    lab_fleet.registry.close()


class Answering:
    """The sleep of a command that waits: meanwhile every device ends its orders."""

    def __init__(self, registry):
        self.registry = registry
        self.works = []

    def sleep(self, _seconds):
        """End what is open."""
        for execution in jobs.unfinished_executions(self.registry):
            self.works.append(jobs.find(self.registry, execution.job).work)
            runs = (f"run of {execution.device}",)
            with self.registry.transaction() as connection:
                jobs.update_executions(connection, [replace(execution, state="done", attempt=1, ended_ns=time.time_ns(), runs=runs)])


def test_a_schedule_goes_to_devices_as_an_order(lab, monkeypatch):
    """With the suite packed, and its end without one; the job shows the runs that its devices named."""
    answering = Answering(lab.registry)
    monkeypatch.setattr(job_view.time, "sleep", answering.sleep)
    text, _ = lab.call("schedule", "nightly", lab.suite, "--cron", "0 2 * * *", "--on", "a", "--wait", "--format", "json")
    document = json.loads(text)
    assert (document["kind"], document["states"]) == ("schedule", {"done": 1})
    lab.call("schedule", "nightly", "--end", "--on", "a", "--wait")
    assert [(work.name, work.cron) for work in answering.works] == [("nightly", "0 2 * * *"), ("nightly", "")]
    assert answering.works[0].work.models[0].name == "edgemeter-shapes_int8.tflite"
    text, _ = lab.call("jobs", document["job"][:-1], "--follow")
    assert "1 done" in text
    assert "edgemeter runs show run of a\n" in text
    (ended,) = jobs.executions_of_job(lab.registry, document["job"])
    assert job_view.note_text(ended, lambda _: None) == "1 run"
    why = "1 run, not ok; disturbed: other processes used 40% of the cores while timing. Close them and run again."
    assert job_view.note_text(replace(ended, reason=why), lambda _: None) == why


def test_a_rehearsal_orders_nothing(lab):
    """Whom and what, by name and hash; no job, no content."""
    text, _ = lab.run("--dry-run")
    assert "would order a: one" in text
    assert "would send edgemeter-shapes_int8.tflite" in text
    assert jobs.latest(lab.registry) == []
    assert not lab.folder.content.exists()
    assert json.loads(lab.run("--dry-run", "--format", "json")[0])["devices"] == NAMES


def test_cancel_ends_one_device_or_all(lab):
    """Nothing was sent, so it is over at once; twice is no error."""
    job = lab.run("--detach")[0].strip()
    assert lab.call("jobs", job)[0].count("waiting for its device") == 3
    assert lab.call("cancel", job, "a")[0] == "a: cancelled\n"
    assert lab.call("cancel", job)[0] == "b: cancelled\nc: cancelled\n"
    assert lab.call("cancel", job)[0] == "nothing left to cancel\n"
    assert {execution.state for execution in jobs.executions_of_job(lab.registry, job)} == {"cancelled"}
    with pytest.raises(ConfigError, match="does not include device 'gone'"):
        lab.call("cancel", job, "gone")
    with pytest.raises(ConfigError, match="no job is named 'measure-9'"):
        lab.call("cancel", "measure-9")


def test_a_wrong_option_is_an_error_before_anything_is_written(lab):
    """A mistake in the suite before one in the selection."""
    for arguments, message in (
        (("schedule", "x", "--on", "all", "--cron", "0 2 * * *"), "--cron"),
        (("schedule", "x", "SUITE", "--on", "all", "--cron", "0 25 * * *"), "25"),
        (("schedule", "X y", "SUITE", "--on", "all", "--cron", "0 2 * * *"), "'X y'"),
        (("schedule", "x", "SUITE", "--on", "all", "--end"), "--end"),
        (("run", "nothing.toml", "--on", "nobody"), "cannot read the suite"),
        (("schedule", "x", "nothing.toml", "--on", "nobody", "--cron", "0 2 * * *"), "cannot read the suite"),
        (("run", "SUITE", "--on", "board=("), "column 7"),
        (("run", "SUITE", "--on", "gone"), "revoked.*edgemeter fleet requests accept"),
        (("run", "SUITE", "--on", "new"), r"none accepts orders \(expected\)"),
        (("run", "SUITE", "--on", "nobody"), "no device matches"),
        (("jobs", "x"), "no job"),
        (("jobs", "--device", "aa"), "'aa'"),
        (("campaign", "status", "x"), "no campaign"),
        (("campaign", "start", "x.toml"), "campaign file"),
    ):
        with table_row(arguments):
            with pytest.raises(ConfigError, match=message):
                lab.call(*(str(lab.suite) if word == "SUITE" else word for word in arguments))
            assert jobs.latest(lab.registry) == []
    assert json.loads(lab.call("jobs", "--device", "a", "--format", "json")[0])["jobs"] == []
