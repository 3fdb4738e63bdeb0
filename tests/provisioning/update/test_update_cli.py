import json
import shutil
import time
from dataclasses import astuple, replace

import pytest

from edgemeter.agent.base import errors
from edgemeter.agent.contract.health import Health
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs import job_view
from edgemeter.provisioning.jobs.job_progress import JobProgressHandler
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry import jobs as kept
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.content_store import ContentStore
from edgemeter.provisioning.update.releases import Release
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.fleet_key import give_service
from tests.fixtures.rows import table_row
from tests.fixtures.update_board import Board

FITS = {"board": "pi5", "arch": "aarch64", "python": "3.11", "glibc": "2.36"}


class World:
    """A fleet of three boards, and its releases."""

    def __init__(self, path):
        self.folder = give_service(FleetFolder(path / "fleet"))
        self.registry = Registry(self.folder.registry)
        for name in ("pi-1", "pi-2", "pi-3"):
            self.hear(name)

    def hear(self, name, agent="1.0", standing="accepted", **fields):
        """Let a device be accepted and say what it is."""
        health = Health(
            device=name,
            fleet="lab",
            session=1,
            told_ns=1,
            agent=agent,
            **{"arch": "aarch64", "python": "3.11.2", "glibc": "2.36", **fields},
        )
        with self.registry.transaction() as connection:
            devices.put(connection, Device(name, "lab", None, "pi5", (), standing, 0))
            devices.put_reports(connection, [devices.DeviceReport(name, "lab", health, 1)])

    def call(self, *arguments):
        return run_fleet(self.folder.path, *arguments, code=None)

    def add(self, version="2.0", **changes):
        fields = {**FITS, **changes}
        put = ContentStore(self.folder.content).put_bytes(
            f"{version} {fields}".encode(), "release.tar"
        )
        with self.registry.transaction() as connection:
            release = Release(
                put.sha256, put.size_bytes, put.name, version, built_ns=1, added_ns=1, **fields
            )
            connection.execute(
                "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(release)
            )

    def orders(self):
        """Return the versions that devices are ordered to go to."""
        executions = kept.select_executions(self.registry, "ORDER BY id")
        return {
            execution.device: kept.find(self.registry, execution.job).works[execution.work].version
            for execution in executions
        }


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.registry.close()


def test_a_dry_run_shows_who_runs_what_and_orders_nothing(world):
    """A dry run shows each device's release and whether it would change, and orders nothing.

    A device may have a bad version or the newest already, or may not be accepted.
    """
    world.hear("pi-2", agent="2.0")
    world.hear("pi-3", bad_agents=("2.0",))
    world.hear("pi-4", standing="pending")
    world.add()
    result = world.call("update", "--on", "all", "--dry-run")
    assert result.exit_code == 0
    assert "failed there before" in result.output
    planned = {
        entry["device"]: entry
        for entry in json.loads(
            world.call("update", "--on", "all", "--dry-run", "--format", "json").output
        )
    }
    assert (planned["pi-1"]["runs"], planned["pi-1"]["goes_to"]) == ("1.0", "2.0")
    assert [planned[name]["goes_to"] for name in ("pi-2", "pi-3", "pi-4")] == [None, None, None]
    assert planned["pi-3"]["bad"] == ["2.0"]
    assert "pending" in planned["pi-4"]["note"]
    assert world.orders() == {}


def test_each_device_is_ordered_to_the_release_that_fits_it(world):
    """One job orders each device to the release that fits it, and nobody is ordered twice."""
    world.hear("pi-3", python="3.13.5", glibc="2.41")
    world.add()
    world.add(python="3.13", glibc="2.41")
    for _ in range(2):
        assert world.call("update", "2.0", "--on", "all", "--detach").exit_code == 0
    assert world.orders() == {"pi-1": "2.0", "pi-2": "2.0", "pi-3": "2.0"}
    (job,) = kept.select_jobs(world.registry, "")
    works = job.works
    assert len({work.bundle.sha256 for work in works}) == len(works) == 2
    executions = {
        execution.device: works[execution.work].bundle.sha256
        for execution in kept.executions_of_job(world.registry, job.job)
    }
    assert executions["pi-1"] == executions["pi-2"] != executions["pi-3"]
    assert all(ContentStore(world.folder.content).path(work.bundle.sha256) for work in works)


def test_the_newest_release_is_meant_where_none_is_named(world):
    """Without a name the highest version is meant, not the one that was added last.

    A wave is a number or a share of devices.
    """
    with pytest.raises(errors.ConfigError, match="release add"):
        world.call("update", "--on", "all")
    for version in ("1.10", "1.9"):
        world.add(version)
    world.call("update", "--on", "pi-1", "--detach")
    assert world.orders() == {"pi-1": "1.10"}
    with pytest.raises(errors.ConfigError, match=r"there are 1\.10, 1\.9"):
        world.call("update", "3.0", "--on", "all")
    for waves in ("half", "0", "-1", "101%", "1;2", "9" * 30):
        with table_row(waves):
            assert world.call("update", "--on", "all", "--waves", waves, "--detach").exit_code == 2


def test_the_command_follows_an_update_to_where_it_stops_and_resumes_it(world, monkeypatch):
    world.add()
    progress = JobProgressHandler(world.folder, world.registry, lambda *_, **__: None)

    def sleep(_seconds):
        queued = kept.select_executions(world.registry, "WHERE state = 'queued'")
        failed = [
            replace(execution, attempt=1, state="failed", ended_ns=1, reason="rolled back to 1.0")
            for execution in queued
        ]
        with world.registry.transaction() as connection:
            kept.write_executions(connection, failed)
        progress.poll(time.time_ns())

    monkeypatch.setattr(job_view.time, "sleep", sleep)
    result = world.call(
        "update", "--on", "pi-1 | pi-2", "--waves", "1", "--max-failed", "0.25", "--format", "json"
    )
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["state"], [row["state"] for row in document["executions"]]) == (
        "stopped",
        ["failed", "held"],
    )
    job = document["job"]
    assert (
        f"`edgemeter fleet jobs {job}` shows it, --cancel cancels it, --resume continues it"
        in result.stderr
    )
    assert kept.find(world.registry, job).reason == "wave 1 of 2: 1 of 1 failed, at most 25% may"
    assert f"{job} is not finished here" in " ".join(
        world.call("update", "--on", "all", "--dry-run").output.split()
    )
    assert world.call("jobs", job, "--resume").exit_code == 0
    assert kept.find(world.registry, job).state == "running"


@pytest.mark.needs("openssl")
def test_a_release_that_is_added_is_content_and_listed(world, tmp_path):
    """An added release is verified by the fleet's key, and stored once though added twice."""
    (tmp_path / "board").mkdir()
    board = Board(tmp_path / "board")
    shutil.copy(board.root / "release.pub", world.folder.release_public_key)
    release = board.release("2.0", manifest=FITS)
    for _ in range(2):
        (added,) = json.loads(world.call("release", "add", release, "--format", "json").output)
    (listed,) = json.loads(world.call("release", "add", "--format", "json").output)
    assert listed["sha256"] == added["sha256"]
    assert (listed["version"], listed["board"], listed["python"]) == ("2.0", "pi5", "3.11")
    assert (
        ContentStore(world.folder.content).path(listed["sha256"]).stat().st_size
        == listed["size_bytes"]
    )
