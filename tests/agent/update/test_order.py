"""The order to go to a release: what the agent refuses, and how it asks."""

import fcntl
import json
import shutil
import subprocess
import sys

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.orders import Content, Doctor, Order, Update
from edgemeter.agent.update import order
from edgemeter.agent.update.release import InstalledRelease, read_journal

RELEASE = Content(sha256="a" * 64, size_bytes=10, name="edgemeter.tar")


PUBLIC_KEY = b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"


class Board:
    """A board with the folders of a supervisor."""

    def __init__(self, path):
        self.root, self.home = path / "opt", path / "home"
        for folder in (self.root / "supervisor", self.home / "update"):
            folder.mkdir(parents=True)
        (self.root / "release.pub").write_bytes(PUBLIC_KEY)
        self.states()

    def states(self, **journal):
        (self.root / "supervisor" / "journal.json").write_text(json.dumps(journal))

    def said(self, name):
        """Return the content of a file that is written for the supervisor."""
        path = self.home / "update" / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else {}


@pytest.fixture
def board(tmp_path):
    """Return a board with a supervisor's lock held and its folder made."""
    new_board = Board(tmp_path / "board")
    with (new_board.root / "supervisor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield new_board


def release(board, version="1.5"):
    return InstalledRelease(board.root, version)


def update_order(version="2.0", *, even_if=(), job="update-1", attempt=1):
    return Order(
        job=job,
        attempt=attempt,
        version=1,
        work=Update(version=version, bundle=RELEASE, even_if=even_if),
        timeout_s=60.5,
    )


def test_a_release_is_asked_for(board):
    """The request holds only hash and version, and asking again gives the same one.

    Another kind of work is no request.
    """
    for _ in range(2):
        order.carry_out(update_order(even_if=("bad", "older", "bad")), board.home, release(board))
    assert board.said("wanted") == {
        "job": "update-1",
        "attempt": 1,
        "version": "2.0",
        "sha256": "a" * 64,
        "size_bytes": 10,
        "timeout_s": 60,
        "even_if": "older",
    }
    other = Order(job="a", attempt=1, version=1, work=Doctor(), timeout_s=1)
    with pytest.raises(ConfigError, match="not an update"):
        order.carry_out(other, board.home, release(board))


def test_an_older_version_and_a_bad_one_are_refused_unless_allowed(board):
    """They are refused before anything is fetched."""
    versions = (("2.0", True), ("3.0", False))
    bad = {
        name: {"attempts": 1, "is_bad": is_bad, "reason": "it crashed", "ended_ns": 1}
        for name, is_bad in versions
    }
    board.states(bad=bad)
    for version, even_if, why in (
        ("1.4", ("bad",), "older than the running 1.5"),
        ("2.0", ("older",), "it crashed"),
    ):
        with pytest.raises(ConfigError, match=why):
            order.check(update_order(version, even_if=even_if).work, release(board))
    assert read_journal(release(board)).bad_versions == {"2.0": "it crashed"}
    order.check(update_order("1.4", even_if=("older",)).work, release(board))
    order.check(update_order("2.0", even_if=("bad",)).work, release(board))
    order.check(update_order("3.0").work, release(board))


def test_where_there_is_no_supervisor_the_order_is_refused(board):
    """The agent is no release, or no supervisor ever ran on the board."""
    with pytest.raises(UnavailableError, match="installed"):
        order.check(update_order().work, None)
    (board.root / "supervisor" / "journal.json").unlink()
    for ask in (
        lambda: order.check(update_order().work, release(board)),
        lambda: carried_out(board),
    ):
        with pytest.raises(UnavailableError, match=r"edgemeter-supervisor\.service"):
            ask()


def carried_out(board):
    order.carry_out(update_order(), board.home, release(board))


def test_an_order_that_comes_while_the_supervisor_is_restarted_waits_for_it(board):
    """The supervisor finds the request on its return, and until then the order says so."""
    lock_file = board.root / "supervisor.lock"
    lock_file.unlink()
    for is_started_before in (False, True):
        if is_started_before:
            lock_file.touch()
        order.check(update_order().work, release(board))
        carried_out(board)
        assert board.said("wanted")["job"] == "update-1"
        assert why_waiting(board) == "waiting for edgemeter-supervisor.service, which does not run"
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert why_waiting(board) is None


def why_waiting(board, **changes):
    return order.why_waiting(update_order(**changes), release(board))


def test_an_installation_that_is_interrupted_is_reported_by_its_order(board):
    """Its order says how often, while the installation is resumed.

    Another order says nothing of it, and an incomplete file gives nothing.
    """
    for times, text in ((1, "interrupted 1 time, resuming"), (2, "interrupted 2 times, resuming")):
        update = {
            "step": "installing",
            "order": {"job": "update-1", "attempt": "1", "version": "2.0"},
            "interrupted": times,
        }
        board.states(update=update)
        assert why_waiting(board) == text
        assert why_waiting(board, attempt=2) is None
    board.states(update={**update, "interrupted": 0})
    assert why_waiting(board) is None
    (board.root / "supervisor" / "journal.json").write_text("{")
    assert why_waiting(board) is None


def test_the_outcome_is_reported_to_the_job_that_requested_it(board):
    """An earlier attempt and an incomplete file give no outcome.

    An order that has ended is not requested again.
    """
    assert order.came_of(update_order(), release(board)) is None
    (board.root / "supervisor" / "journal.json").write_text("{")
    assert order.came_of(update_order(), release(board)) is None
    document = {
        "job": "update-1",
        "attempt": 1,
        "version": "2.0",
        "from": "1.5",
        "state": "failed",
        "reason": "rolled back",
        "ended_ns": 1,
    }
    board.states(outcome=document)
    assert order.came_of(update_order(attempt=2), release(board)) is None
    assert order.came_of(update_order(), release(board)) == ("failed", "rolled back")
    order.carry_out(update_order(), board.home, release(board))
    assert board.said("wanted") == {}


def test_an_update_that_goes_on_is_withdrawn(board, caplog):
    """The supervisor reads which request is withdrawn, as it may have taken it already.

    An update that has ended is not withdrawn. A request that cannot be written is logged.
    """
    order.withdraw(update_order(attempt=3), board.home)
    assert board.said("withdrawn") == {"job": "update-1", "attempt": 3}
    (board.home / "update" / "withdrawn.json").unlink()
    document = {
        "job": "update-1",
        "attempt": 1,
        "version": "2.0",
        "from": "1.5",
        "state": "done",
        "reason": "it runs",
        "ended_ns": 1,
    }
    board.states(outcome=document)
    order.withdraw(update_order(), board.home, release(board))
    assert board.said("withdrawn") == {}
    assert caplog.text == ""
    shutil.rmtree(board.home / "update")
    order.withdraw(update_order(), board.home)
    assert not (board.home / "update").exists()
    assert (
        "the update of job update-1 goes on, because it cannot be withdrawn: cannot write "
        "the update request"
    ) in caplog.text


@pytest.mark.services
def test_the_imports_are_those_of_the_runtimes_that_are_here():
    """The imports succeed here, in a process of their own."""
    command = [sys.executable, "-m", "edgemeter.agent.update.imports"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert (completed.returncode, completed.stdout) == (0, "")
