"""The agent's word that its release works."""

import importlib
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
from edgemeter.provisioning.release import install


class Imports:
    """A stand-in for the process that imports, which ends with the second look."""

    def __init__(self, status=0, text=""):
        self.returncode = None
        self._status, self._text = status, text
        self._looks = 0

    def poll(self):
        self._looks += 1
        self.returncode = self._status if self._looks > 1 else None
        return self.returncode

    def communicate(self):
        return self._text, None

    def kill(self):
        """End it."""


def imports_badly():
    """Return a process that says which runtime it cannot import."""
    return Imports(1, "WARNING\nonnxruntime 1.21.0 is installed but cannot be imported: SIGILL\n")


class World:
    """A home with an outbox and the supervisor's folder, and the handler's arguments."""

    def __init__(self, home):
        self.home = home
        self.is_connected = False
        (home / "update").mkdir()
        with Outbox(home / "outbox.sqlite"):
            pass
        self.release = InstalledRelease(home / "opt", "2.0")

    def handler(self, imports=Imports, **options):
        none = lambda *_, **__: None  # noqa: E731
        context = HandlerContext(
            "pi-1",
            "lab",
            1,
            Config(),
            self.home,
            None,
            none,
            none,
            lambda: self.is_connected,
            none,
            none,
            list,
        )
        return ReleaseHealthHandler(context, self.release, imports, **options)

    def said(self):
        try:
            return json.loads((self.home / "update" / "healthy.json").read_text())
        except FileNotFoundError:
            return {}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def state_after(world, handler, looks=4):
    for _ in range(looks):
        handler.poll()
    return world.said().get("state")


def test_it_is_healthy_once_it_imports_reads_and_is_connected(world, monkeypatch):
    """The mark has this process's number and start, by which the supervisor sees it lives."""
    handler = world.handler()
    assert state_after(world, handler, 2) == "waiting"
    assert "imported" in world.said()["reason"]
    assert state_after(world, handler, 2) == "waiting"
    assert "broker" in world.said()["reason"]
    world.is_connected = True
    assert state_after(world, handler, 1) == "healthy"
    report = world.said()
    assert (report["release"], report["pid"], report["reason"]) == ("2.0", os.getpid(), None)
    monkeypatch.syspath_prepend(Path(install.__file__).parent)
    supervisor = importlib.import_module("supervisor")
    assert supervisor._is_running(report)
    assert not supervisor._is_running({**report, "started_ticks": report["started_ticks"] + 1})
    handler.close()


def test_a_runtime_that_does_not_import_breaks_the_release(world):
    """The line names the runtime, or says how the process ended without output."""
    for imports, text in (
        (imports_badly, "onnxruntime 1.21.0"),
        (lambda: Imports(-9), "status -9"),
    ):
        (world.home / "update" / "healthy.json").unlink(missing_ok=True)
        assert state_after(world, world.handler(imports)) == "broken"
        assert text in world.said()["reason"]


@pytest.mark.parametrize(
    "spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x" * 5000)]
)
def test_an_outbox_that_cannot_be_read_breaks_the_release(world, spoil):
    """The outbox is missing, or is another kind of file."""
    world.is_connected = True
    spoil(world.home / "outbox.sqlite")
    assert state_after(world, world.handler()) == "broken"
    assert "outbox" in world.said()["reason"]


def test_a_release_that_was_healthy_does_not_import_all_again(world):
    """Imports at each start would cost a board the time in which it measures.

    After a switch the supervisor has removed the mark. Later starts keep how long the imports took,
    however long that is on a slow card: the supervisor alone decides what is too long.
    """
    world.is_connected = True
    now_s = iter((1000.0, 3000.0))
    assert state_after(world, world.handler(clock_s=lambda: next(now_s))) == "healthy"
    assert world.said()["imports_s"] == 2000.0
    assert state_after(world, world.handler(imports_badly)) == "healthy"
    assert world.said()["imports_s"] == 2000.0
    (world.home / "update" / "healthy.json").unlink()
    assert state_after(world, world.handler(imports_badly)) == "broken"


def test_without_a_supervisor_nothing_is_written(world):
    """The agent was installed in another way, or its supervisor never made the folder."""
    (world.home / "update").rmdir()
    world.handler().poll()
    world.release = None
    (world.home / "update").mkdir()
    world.handler().poll()
    assert list((world.home / "update").iterdir()) == []


def test_a_release_is_known_by_its_place(tmp_path):
    """The link `current` leads to a release too, and any other place is none."""
    (tmp_path / "releases" / "1.2.3").mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/1.2.3")
    assert (
        release.find_release(tmp_path / "current")
        == release.find_release(tmp_path / "releases" / "1.2.3")
        == InstalledRelease(tmp_path, "1.2.3")
    )
    assert release.find_release(Path(sys.prefix)) is None
