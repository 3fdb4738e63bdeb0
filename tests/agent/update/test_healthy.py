"""The agent's word that its release works."""

import json
import os
import sys
from pathlib import Path

import pytest

from edgemeter.agent.base.config import Config
from edgemeter.agent.daemon.handler import HandlerContext
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.update import release
from edgemeter.agent.update.healthy import ReleaseHealthHandler
from edgemeter.agent.update.release import InstalledRelease
from edgemeter.provisioning.update import supervisor
from tests.fixtures.mqtt_peer import wait_until

IMPORTS_WELL = (sys.executable, "-c", "pass")
IMPORTS_BADLY = (sys.executable, "-c", "print('onnxruntime 1.21.0 is installed but cannot be imported: SIGILL'); raise SystemExit(1)")


class World:
    """A home with an outbox and the folder that the supervisor makes, and what the handler is given."""

    def __init__(self, home):
        self.home = home
        self.is_connected = False
        (home / "update").mkdir()
        with Outbox(home / "outbox.sqlite"):
            pass
        self.release = InstalledRelease(home / "opt", "2.0")

    def handler(self, imports=IMPORTS_WELL, **options):
        """Return a new one, as after a start."""
        none = lambda *_, **__: None  # noqa: E731
        context = HandlerContext("pi-1", "lab", 1, Config(), self.home, None, none, none, lambda: self.is_connected, none, none, list)
        return ReleaseHealthHandler(context, self.release, imports, **options)

    def said(self):
        """Return what the file says."""
        try:
            return json.loads((self.home / "update" / "healthy.json").read_text())
        except FileNotFoundError:
            return {}


@pytest.fixture
def world(tmp_path):
    """Return a home."""
    return World(tmp_path)


def looked(world, handler, state):
    """Return whether it says that after some looks."""

    def poll():
        handler.poll()
        return world.said().get("state") == state

    return wait_until(poll)


def test_it_is_healthy_once_it_imports_reads_and_is_connected(world):
    """With the number and start of this process, by which the supervisor sees that it lives."""
    handler = world.handler()
    assert looked(world, handler, "waiting")
    assert wait_until(lambda: (handler.poll(), "broker" in (world.said()["reason"] or ""))[1])
    world.is_connected = True
    assert looked(world, handler, "healthy")
    report = world.said()
    assert (report["release"], report["pid"], report["reason"]) == ("2.0", os.getpid(), None)
    assert supervisor._is_running(report)
    assert not supervisor._is_running({**report, "started_ticks": report["started_ticks"] + 1})
    handler.close()


def test_a_runtime_that_does_not_import_breaks_the_release(world):
    """In a child: a processor without its instructions ends that child only. The line says which, or how it ended without a word."""
    killed = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    for imports, text in ((IMPORTS_BADLY, "onnxruntime 1.21.0"), (killed, "status -9")):
        (world.home / "update" / "healthy.json").unlink(missing_ok=True)
        assert looked(world, world.handler(imports), "broken")
        assert text in world.said()["reason"]


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x" * 5000)])
def test_an_outbox_that_cannot_be_read_breaks_the_release(world, spoil):
    """It is gone, or something else."""
    world.is_connected = True
    spoil(world.home / "outbox.sqlite")
    assert looked(world, world.handler(), "broken")
    assert "outbox" in world.said()["reason"]


def test_a_release_that_was_healthy_does_not_import_all_again(world):
    """At each start of a board that measures that would take its time; after a switch the supervisor has taken the word away."""
    world.is_connected = True
    assert looked(world, world.handler(), "healthy")
    restarted = world.handler(IMPORTS_BADLY)
    restarted.poll()
    assert world.said()["state"] == "healthy"
    (world.home / "update" / "healthy.json").unlink()
    assert looked(world, world.handler(IMPORTS_BADLY), "broken")


def test_how_long_the_imports_took_is_reported_and_kept_by_later_starts(world):
    """However long that is on a slow card: the supervisor alone decides what is too long, by this figure."""
    world.is_connected = True
    now_s = iter(range(0, 10**6, 2000))
    imports = (sys.executable, "-c", "import time; time.sleep(0.5)")
    assert looked(world, world.handler(imports, clock_s=lambda: next(now_s)), "healthy")
    assert world.said()["imports_s"] == 2000.0
    restarted = world.handler(IMPORTS_BADLY)
    restarted.poll()
    assert (world.said()["state"], world.said()["imports_s"]) == ("healthy", 2000.0)


def test_without_a_supervisor_nothing_is_written(world):
    """An agent that was installed in another way, and one whose supervisor never made the folder."""
    (world.home / "update").rmdir()
    world.handler().poll()
    world.release = None
    (world.home / "update").mkdir()
    world.handler().poll()
    assert list((world.home / "update").iterdir()) == []


def test_a_release_is_known_by_its_place(tmp_path):
    """Through the link `current` too; anything else is none."""
    (tmp_path / "releases" / "1.2.3").mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/1.2.3")
    assert (
        release.find_release(tmp_path / "current")
        == release.find_release(tmp_path / "releases" / "1.2.3")
        == InstalledRelease(tmp_path, "1.2.3")
    )
    assert release.find_release(Path(sys.prefix)) is None
