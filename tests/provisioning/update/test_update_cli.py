"""The commands `fleet release` and `fleet update`."""

import json
import shutil
import threading
import time

import pytest

from edgemeter.agent.base import errors
from edgemeter.agent.contract.health import Health
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry import jobs as kept
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.update_board import Board

pytestmark = pytest.mark.needs("openssl")

FITS = {"board": "pi5", "arch": "aarch64", "python": "3.11", "glibc": "2.36"}


class World:
    """A fleet of three boards, and releases signed by its key."""

    def __init__(self, path):
        self.folder = FleetFolder(path / "fleet")
        self.folder.path.mkdir()
        (path / "board").mkdir()
        self.board = Board(path / "board")
        shutil.copy(self.board.root / "release.pub", self.folder.release_public_key)
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
            devices.put(connection, Device(name, "lab", None, "pi5", (), standing, None, None, None, 0))
            devices.put_reports(connection, [devices.DeviceReport(name, "lab", health, 1)])

    def call(self, *arguments):
        """Return what a command printed."""
        return run_fleet(self.folder.path, *arguments, code=None)

    def add(self, version="2.0", **changes):
        """Add a release, and return its path."""
        release = self.board.release(version, manifest={**FITS, **changes})
        assert self.call("release", "add", release).exit_code == 0
        return release

    def orders(self):
        """Return the versions that devices are ordered to go to."""
        versions = {}
        for job in kept.latest(self.registry):
            for execution in kept.executions_of_job(self.registry, job.job):
                versions[execution.device] = job.work.version
        return versions

    def end(self, device, state="done", reason=None):
        """Let a device report."""
        with self.registry.transaction() as connection:
            connection.execute(
                "UPDATE executions SET state = ?, reason = ?, ended_ns = 1, serial = (SELECT MAX(serial) + 1 FROM executions)"
                " WHERE device = ? AND ended_ns IS NULL",
                (state, reason, device),
            )


@pytest.fixture
def world(tmp_path):
    """Return a fleet."""
    world = World(tmp_path)
    yield world
    world.registry.close()


def test_a_release_that_is_added_is_content_and_listed(world):
    """Twice is once; a dry run keeps nothing."""
    release = world.board.release("2.0", manifest=FITS)
    assert "would add 2.0 for pi5" in world.call("release", "add", release, "--dry-run").output
    assert json.loads(world.call("release", "list", "--json").output) == []
    for _ in range(2):
        (added,) = json.loads(world.call("release", "add", release, "--json").output)
    (listed,) = json.loads(world.call("release", "list", "--json").output)
    assert listed["sha256"] == added["sha256"]
    assert (listed["version"], listed["board"], listed["python"]) == ("2.0", "pi5", "3.11")
    assert ContentStore(world.folder.content).path(listed["sha256"]).stat().st_size == listed["size_bytes"]
    assert "2.0" in world.call("release", "list").output


def test_a_release_with_one_changed_byte_is_not_added(world):
    """It is refused, and nothing of it is kept among the contents."""
    for change in ("manifest.json", "manifest.sig", "wheels/edgemeter"):
        with table_row(change):
            with pytest.raises(errors.ConfigError):
                world.call("release", "add", world.board.release("2.0", manifest=FITS, change=change))
            assert not world.folder.content.exists()


def test_a_dry_run_shows_who_runs_what_and_orders_nothing(world):
    """Who is bad, who is there already, who is not accepted, and who would go."""
    world.hear("pi-2", agent="2.0")
    world.hear("pi-3", bad_agents=("2.0",))
    world.hear("pi-4", standing="pending")
    world.add()
    result = world.call("update", "--on", "all", "--dry-run")
    assert result.exit_code == 0
    assert "failed there before" in result.output
    planned = {entry["device"]: entry for entry in json.loads(world.call("update", "--on", "all", "--dry-run", "--json").output)}
    assert (planned["pi-1"]["runs"], planned["pi-1"]["goes_to"]) == ("1.0", "2.0")
    assert [planned[name]["goes_to"] for name in ("pi-2", "pi-3", "pi-4")] == [None, None, None]
    assert planned["pi-3"]["bad"] == ["2.0"]
    assert "pending" in planned["pi-4"]["note"]
    assert world.orders() == {}


def test_each_device_is_ordered_to_the_release_that_fits_it(world):
    """One job for each release; repeated, nobody is ordered twice."""
    world.hear("pi-3", python="3.13.5", glibc="2.41")
    world.add()
    world.add(python="3.13", glibc="2.41")
    for _ in range(2):
        assert world.call("update", "2.0", "--on", "all", "--detach").exit_code == 0
    assert world.orders() == {"pi-1": "2.0", "pi-2": "2.0", "pi-3": "2.0"}
    works = [job.work for job in kept.latest(world.registry)]
    assert len({work.bundle.sha256 for work in works}) == len(works) == 2
    assert all(ContentStore(world.folder.content).path(work.bundle.sha256) for work in works)


def test_the_newest_release_is_meant_where_none_is_named(world):
    """By version, not by the time it was added."""
    for version in ("1.10", "1.9"):
        world.add(version)
    world.call("update", "--on", "pi-1", "--detach")
    assert world.orders() == {"pi-1": "1.10"}
    with pytest.raises(errors.ConfigError, match=r"there are 1\.10, 1\.9"):
        world.call("update", "3.0", "--on", "all")


def test_a_version_means_its_releases_for_all_boards(world):
    """Each has its own digits after the `+`; with them that one alone is meant."""
    world.hear("pi-3", python="3.13.5", glibc="2.41")
    world.add("2.0+aaaaaaaa")
    world.add("2.0+bbbbbbbb", python="3.13", glibc="2.41")
    world.call("update", "2.0+aaaaaaaa", "--on", "pi-1 | pi-3", "--detach")
    assert world.orders() == {"pi-1": "2.0+aaaaaaaa"}
    world.call("update", "2.0", "--on", "all", "--detach")
    assert world.orders() == {"pi-1": "2.0+aaaaaaaa", "pi-2": "2.0+aaaaaaaa", "pi-3": "2.0+bbbbbbbb"}


def test_without_a_release_the_command_names_how_to_add_one(world):
    """The message names `release add`."""
    with pytest.raises(errors.ConfigError, match="release add"):
        world.call("update", "--on", "all")


@pytest.mark.parametrize(("state", "ordered"), [("done", 3), ("failed", 1)])
def test_the_others_go_once_the_canary_is_done(world, state, ordered):
    """A canary that failed ends it: the others keep what works."""
    world.add()
    results = []
    thread = threading.Thread(target=lambda: results.append(world.call("update", "--on", "all", "--canary", 1)))
    thread.start()
    assert wait_until(lambda: len(world.orders()) == 1)
    time.sleep(0.2)
    assert len(world.orders()) == 1
    world.end(next(iter(world.orders())), state, "rolled back to 1.0" if state == "failed" else None)
    if state == "done":
        assert wait_until(lambda: len(world.orders()) == ordered)
        for device in world.orders():
            world.end(device)
    thread.join(300)
    assert len(world.orders()) == ordered
    assert results[0].exit_code == (0 if state == "done" else 1)
    assert ("rolled back to 1.0" in results[0].output) is (state == "failed")


def test_a_canary_needs_somebody_who_waits(world):
    """`--canary` with `--detach` is a usage error, with exit status 2."""
    world.add()
    assert world.call("update", "--on", "all", "--canary", 1, "--detach").exit_code == 2
