"""Tests of `edgemeter fleet run` and `jobs`, as people type them.

One test uses a real broker and replay devices.
"""

import json
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
    """A folder with devices in its registry, and the commands.

    One device is revoked, and one has not joined.
    """

    def __init__(self, path):
        self.path = path
        self.folder = give_service(FleetFolder(path / "fleet"))
        self.suite = path / "suite.toml"
        self.suite.write_text(
            'name = "one"\n[[case]]\nmodel = "edgemeter-shapes_int8.tflite"\nmode = "rapid"\n'
        )
        self.registry = Registry(self.folder.registry)
        with self.registry.transaction() as connection:
            for name in NAMES:
                devices.put(connection, Device(name, "lab", name, "pi5", ("coral",), "accepted", 1))
            devices.put(connection, Device("gone", "lab", "gone", "pi5", (), "revoked", 1))
            devices.put(connection, Device("new", "lab", None, None, (), "expected", 1))

    def call(self, *arguments, code=0):
        result = run_fleet(self.folder.path, *arguments, code=code)
        return result.stdout, result.stderr

    def run(self, *options, code=0):
        return self.call("run", str(self.suite), "--on", "all", *options, code=code)


@pytest.fixture
def lab(tmp_path):
    lab_fleet = Fleet(tmp_path)
    yield lab_fleet
    lab_fleet.registry.close()


class Answering:
    """The sleep of a command that waits: meanwhile every device ends its orders."""

    def __init__(self, registry):
        self.registry = registry
        self.works = []

    def sleep(self, _seconds):
        for execution in jobs.select_executions(
            self.registry, "WHERE ended_ns IS NULL ORDER BY id"
        ):
            work = jobs.find(self.registry, execution.job).works[0]
            self.works.append(work)
            outcome = (
                {"state": "repeating"}
                if work.repeats
                else {"state": "done", "ended_ns": 1, "runs": (f"run of {execution.device}",)}
            )
            with self.registry.transaction() as connection:
                jobs.write_executions(connection, [replace(execution, attempt=1, **outcome)])


def test_a_repeated_measurement_is_one_job_until_it_is_cancelled(lab, monkeypatch):
    """A repeated measurement is one job, and cancelling requests its devices to end it.

    The command returns when all devices have the order.
    """
    answering = Answering(lab.registry)
    monkeypatch.setattr(job_view.time, "sleep", answering.sleep)
    for option, value, times in (
        ("--at", "02:30", ("02:30", None)),
        ("--every", "6h", (None, 21_600)),
    ):
        text, _ = lab.call("run", lab.suite, option, value, "--on", "a", "--format", "json")
        document = json.loads(text)
        assert (document["kind"], document["states"]) == ("measure", {"repeating": 1})
        work = answering.works[-1]
        assert (work.at, work.every_s) == times
        assert work.models[0].name == "edgemeter-shapes_int8.tflite"
        assert (
            lab.call("jobs", document["job"], "--cancel")[0]
            == f"{document['job']}: cancelled; 0 executions not started, 1 being cancelled\n"
        )
        (execution,) = jobs.executions_of_job(lab.registry, document["job"])
        assert (execution.state, execution.requested) == ("repeating", "cancel")


def test_a_followed_job_shows_the_runs_that_its_devices_named(lab, monkeypatch):
    """A followed job shows the runs that its devices named, and why executions ended."""
    monkeypatch.setattr(job_view.time, "sleep", Answering(lab.registry).sleep)
    document = json.loads(lab.call("run", lab.suite, "--on", "a", "--format", "json")[0])
    text, _ = lab.call("jobs", document["job"][:-1], "--follow")
    assert "1 done" in text
    assert "edgemeter runs show run of a\n" in text
    (ended,) = jobs.executions_of_job(lab.registry, document["job"])
    assert job_view.note_text(ended) == "1 run"
    why = (
        "1 run, not ok; disturbed: other processes used 40% of the cores while timing. Close "
        "them and run again."
    )
    assert job_view.note_text(replace(ended, reason=why)) == why


def test_a_rehearsal_orders_nothing(lab):
    """A rehearsal names devices and contents with hashes, but stores no job and no content."""
    text, _ = lab.run("--dry-run")
    assert "would order a: one, wave 1" in text
    assert "would send edgemeter-shapes_int8.tflite" in text
    assert jobs.select_jobs(lab.registry, "") == []
    assert not lab.folder.content.exists()
    planned = json.loads(lab.run("--dry-run", "--waves", "1", "--format", "json")[0])["devices"]
    assert planned == [{"device": name, "wave": 1 if name == "a" else 2} for name in NAMES]


def test_cancel_ends_one_device_or_all(lab):
    """An execution that was not sent is over at once, and cancelling it twice is no error."""
    job = lab.run("--detach")[0].strip()
    assert lab.call("jobs", job)[0].count("waiting for its device") == 3
    for options, count in ((("--device", "a"), 1), ((), 2), ((), 0)):
        assert (
            lab.call("jobs", job, "--cancel", *options)[0]
            == f"{job}: cancelled; {count} executions not started, 0 being cancelled\n"
        )
    assert {execution.state for execution in jobs.executions_of_job(lab.registry, job)} == {
        "cancelled"
    }
    assert jobs.find(lab.registry, job).state == "cancelled"
    with pytest.raises(ConfigError, match="a device of job"):
        lab.call("jobs", job, "--cancel", "--device", "gone")
    with pytest.raises(ConfigError, match="is over"):
        lab.call("jobs", job, "--resume")
    with pytest.raises(ConfigError, match="no job is named 'measure-9'"):
        lab.call("jobs", "measure-9", "--cancel")


def test_a_wrong_option_is_an_error_before_anything_is_written(lab):
    """A wrong option writes nothing; a mistake in the suite is reported before the selection's."""
    for arguments, message in (
        (("run", "nothing.toml", "--on", "nobody"), "cannot read the suite"),
        (("run", "SUITE", "--on", "board=("), "is not a condition"),
        (
            ("run", "SUITE", "--on", "all", "--exclusive", "meter"),
            "none of these devices has the tag 'meter'",
        ),
        (("run", "SUITE", "--on", "gone"), "revoked.*edgemeter fleet accept"),
        (("run", "SUITE", "--on", "new"), r"none accepts orders \(expected\)"),
        (("run", "SUITE", "--on", "nobody"), "no device matches"),
        (("jobs", "x"), "no job"),
        (("jobs", "--device", "aa"), "'aa'"),
    ):
        with table_row(arguments):
            with pytest.raises(ConfigError, match=message):
                lab.call(*(str(lab.suite) if word == "SUITE" else word for word in arguments))
            assert jobs.select_jobs(lab.registry, "") == []
    for options in (
        ("--at", "25:00"),
        ("--every", "6 hours"),
        ("--every", "32d"),
        ("--every", "6h", "--at", "02:30"),
    ):
        assert options[0] in lab.run(*options, code=2)[1]
    for option in ("--pause", "--resume", "--cancel", "--follow"):
        assert f"{option} needs the name of a job" in lab.call("jobs", option, code=2)[1]
    assert json.loads(lab.call("jobs", "--device", "a", "--format", "json")[0])["jobs"] == []
