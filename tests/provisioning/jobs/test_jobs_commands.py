"""`edgemeter fleet run`, `jobs`, `cancel`, `schedule`, as people type them, with a real broker, the real service and replay devices."""

import io
import json
import re
import shutil
import threading
import time

import pytest
from rich.console import Console

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import order_suite
from edgemeter.agent.contract.health import Health, RefusedOrders
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs import job_view
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device, DeviceReport
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.service import FleetService
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.fleet_key import give_service
from tests.fixtures.rows import table_row
from tests.fixtures.servers import address_of, mosquitto
from tests.fleet.replay_devices import Crowd

NAMES = ["a", "b", "c"]


class Fleet:
    """A folder with four devices in its registry, one of them revoked, and the commands."""

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


@pytest.fixture
def served(lab, tmp_path):
    """Return a fleet with its service, and its devices online."""
    broker = mosquitto(tmp_path)
    broker.start()
    service = FleetService(lab.folder, address_of(broker))
    service.start()
    lab.crowd = Crowd(address_of(broker), "lab", NAMES, 0.2)
    lab.crowd.start()
    yield lab
    lab.crowd.stop()
    service.stop()
    broker.kill()


@pytest.mark.mosquitto
def test_a_run_is_followed_to_its_end(served):
    """Each device measures once; the revoked one is named and left out; the exit status is 0."""
    text, notes = served.run("--json")
    document = json.loads(text)
    assert {execution["device"]: execution["state"] for execution in document["executions"]} == dict.fromkeys(NAMES, "done")
    assert all(len(execution["runs"]) == 1 for execution in document["executions"])
    assert "gone is skipped: it is revoked" in notes
    assert "a: done: 1 run" in notes
    assert dict(served.crowd.executed) == {(name, document["job"]): 1 for name in NAMES}
    contents = {path.name for path in served.folder.content.iterdir()}
    assert len(contents) == 3
    text, _ = served.call("jobs", document["job"][:20], "--follow")
    assert "3 done" in text
    assert all(run in text for execution in document["executions"] for run in execution["runs"])


@pytest.mark.mosquitto
def test_a_schedule_goes_to_devices_as_an_order(served):
    """With the suite packed, and its end without one."""
    text, _ = served.call("schedule", "nightly", str(served.suite), "--cron", "0 2 * * *", "--on", "a", "--wait", "--json")
    assert json.loads(text)["kind"] == "schedule"
    served.call("schedule", "nightly", "--end", "--on", "a", "--wait")
    orders = [entry.order.work for entry in served.crowd.devices["a"].journal.values()]
    assert [(work.name, work.cron) for work in orders] == [("nightly", "0 2 * * *"), ("nightly", "")]
    assert orders[0].work.models[0].name == "edgemeter-shapes_int8.tflite"


def test_a_rehearsal_orders_nothing(lab):
    """Whom and what, by name and hash; no job, no content."""
    text, notes = lab.run("--dry-run")
    assert "would order a: one" in text
    assert "each device downloads up to 0.3 MB, except for what it has already" in notes
    assert "would send edgemeter-shapes_int8.tflite" in text
    assert jobs.latest(lab.registry) == []
    assert not lab.folder.content.exists()
    assert json.loads(lab.run("--dry-run", "--json")[0])["devices"] == NAMES


def test_photographs_are_packed_reported_and_missed_before_anything_is_ordered(lab):
    """A rehearsal reports how much they are; one that is missing is named, and nothing is ordered."""
    scenes = order_suite.SHIPPED.parent / "scenes"
    shutil.copytree(scenes, lab.path / "scenes")
    with lab.suite.open("a") as file:
        file.write('data = "scenes/images"\nannotations = "scenes/annotations.json"\n')
    text, notes = lab.run("--dry-run")
    assert re.search(r"would send [0-9a-f]{8}-images\.zip \(3\d{6} bytes, sha256 ", text)
    assert "each device downloads up to 3.8 MB, 3.5 MB of it images" in notes
    (lab.path / "scenes" / "images" / "scene_007.png").unlink()
    with pytest.raises(ConfigError, match=r"1 of the 112 files .* first 'scene_007\.png'"):
        lab.run("--detach")
    assert jobs.latest(lab.registry) == []


def test_a_waiting_device_states_why(lab):
    """In the job's table."""
    job = lab.run("--detach")[0].strip()
    assert lab.call("jobs", job)[0].count("waiting for its device") == 3
    assert [entry["job"] for entry in json.loads(lab.call("jobs", "--json")[0])["jobs"]] == [job]


def test_an_order_that_its_device_refuses_states_why(lab):
    """It was sent and has no answer; what else the device refused is the likely reason."""
    job = lab.run("--detach")[0].strip()
    refused = RefusedOrders(count=1, last_ns=1, reason="signed with an earlier key")
    health = Health(device="a", fleet="lab", session=1, told_ns=2, agent="1.0", refused_orders=refused)
    with lab.registry.transaction() as connection:
        devices.put_reports(connection, [DeviceReport("a", "lab", health, 2)])
        connection.execute("UPDATE executions SET state = 'sent', serial = serial + 9")
    assert lab.call("jobs", job)[0].replace("\n", "").count("refused") == 1


def test_cancel_ends_one_device_or_all(lab):
    """Nothing was sent, so it is over at once; twice is no error."""
    job = lab.run("--detach")[0].strip()
    assert lab.call("cancel", job, "a")[0] == "a: cancelled\n"
    assert lab.call("cancel", job)[0] == "b: cancelled\nc: cancelled\n"
    assert lab.call("cancel", job)[0] == "nothing left to cancel\n"
    assert {execution.state for execution in jobs.executions_of_job(lab.registry, job)} == {"cancelled"}
    with pytest.raises(ConfigError, match="does not include device 'gone'"):
        lab.call("cancel", job, "gone")
    with pytest.raises(ConfigError, match="no job is named 'measure-9'"):
        lab.call("cancel", "measure-9")


def test_a_follower_is_notified_when_nothing_moves(lab, monkeypatch):
    """No service: it names what to check, and goes on waiting until the job has ended."""
    monkeypatch.setattr(job_view, "NOTHING_SENT_S", 0.0)
    job = lab.run("--detach")[0].strip()
    console = Console(record=True, width=200, file=io.StringIO())
    follower = threading.Thread(target=job_view.follow_job, args=(lab.folder, lab.registry, job, console, lambda _: time.sleep(0.02)))
    follower.start()
    time.sleep(0.3)
    jobs.cancel(lab.registry, job, None, time.time_ns())
    follower.join(100)
    assert not follower.is_alive()
    text = console.export_text()
    assert text.count("is `edgemeter fleet serve` running") == 1
    assert text.count("cancelled") == 3


def test_a_wrong_option_is_one_line(lab):
    """Before anything is written; a mistake in the suite before one in the selection."""
    for arguments, message in (
        (("schedule", "x", "--on", "all", "--cron", "0 2 * * *"), "needs a suite and --cron"),
        (("schedule", "x", "SUITE", "--on", "all", "--cron", "0 25 * * *"), "25"),
        (("schedule", "X y", "SUITE", "--on", "all", "--cron", "0 2 * * *"), "'X y'"),
        (("schedule", "x", "SUITE", "--on", "all", "--end"), "--end takes"),
        (("run", "nothing.toml", "--on", "nobody"), "cannot read the suite"),
        (("schedule", "x", "nothing.toml", "--on", "nobody", "--cron", "0 2 * * *"), "cannot read the suite"),
        (("run", "SUITE", "--on", "board=("), "column 7"),
        (("run", "SUITE", "--on", "gone"), "accepts orders .revoked."),
        (("run", "SUITE", "--on", "nobody"), "no device matches"),
        (("jobs", "x"), "no job"),
        (("campaign", "status", "x"), "no campaign"),
        (("campaign", "start", "x.toml"), "campaign file"),
    ):
        with table_row(arguments):
            with pytest.raises(ConfigError, match=message) as error:
                lab.call(*(str(lab.suite) if word == "SUITE" else word for word in arguments))
            assert "\n" not in str(error.value)
            assert jobs.latest(lab.registry) == []


@pytest.mark.mosquitto
def test_a_device_that_fails_fails_the_command(served):
    """Exit status 1, with the others' results."""
    served.crowd.flaky = {"b": 1}
    text, _ = served.run("--retries", "0", "--json", code=1)
    assert {execution["device"]: execution["state"] for execution in json.loads(text)["executions"]} == {
        "a": "done",
        "b": "failed",
        "c": "done",
    }


def test_the_jobs_of_a_device_that_is_not_there_are_no_empty_table(lab):
    """A name with a typing mistake is reported; a device without jobs has an empty list."""
    with pytest.raises(ConfigError, match="no device is named 'aa'"):
        lab.call("jobs", "--device", "aa")
    assert json.loads(lab.call("jobs", "--device", "a", "--json")[0])["jobs"] == []


def test_it_is_explained_how_a_device_gets_to_take_orders(lab):
    """One that has not joined cannot be accepted by hand, one that was revoked can be taken back."""
    with lab.registry.transaction() as connection:
        devices.put(connection, Device("new", "lab", None, None, (), "expected", None, 1))
    with pytest.raises(ConfigError, match=r"1 device matches 'new', but none accepts orders \(expected\): they have to join first"):
        lab.call("run", str(lab.suite), "--on", "new")
    with pytest.raises(ConfigError, match="edgemeter fleet requests accept"):
        lab.call("run", str(lab.suite), "--on", "gone")
