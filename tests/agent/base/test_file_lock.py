"""Facts about the run lock and the device lock.

The run lock has one holder, is gone with its process, can be handed to a child process, and is one
for all users of a board.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from edgemeter.agent.base import file_lock
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.file_lock import DeviceLock, RunLock

# Holds the run lock; prints whether it is held, where it is, and why it is another lock.
HOLD = """import os, sys, time, pathlib
from edgemeter.agent.base.file_lock import RunLock
os.umask(0o077)
lock = RunLock(pathlib.Path(sys.argv[1]))
print(lock.take("another"), lock.path, lock.pop_note(), flush=True)
time.sleep(60)"""


def test_it_is_held_by_one_and_free_again(tmp_path):
    """A process that waits is told who holds the lock."""
    assert not file_lock.is_run_locked(tmp_path)
    first, second = RunLock(tmp_path), RunLock(tmp_path)
    assert first.take("edgemeter run")
    assert file_lock.is_run_locked(tmp_path)
    assert not second.take("job nightly")
    assert second.holder().startswith("edgemeter run (pid ")
    first.release()
    first.release()
    assert not file_lock.is_run_locked(tmp_path)
    assert second.take("job nightly")
    second.release()


@pytest.mark.services
def test_it_goes_with_its_process(tmp_path):
    """After SIGKILL the lock is free, and nobody has to clean up."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout.readline().startswith(b"True ")
    assert file_lock.is_run_locked(tmp_path)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert not file_lock.is_run_locked(tmp_path)


def test_a_waiting_run_reports_once_and_goes_on_when_the_lock_is_free(tmp_path):
    """The one line that a waiting run prints names the holder."""
    first, second, lines = RunLock(tmp_path), RunLock(tmp_path), []
    assert first.take("edgemeter run")
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            first.release()

    second.wait("edgemeter compare", lines.append, sleep)
    assert len(lines) == 1
    assert "edgemeter run (pid" in lines[0]
    assert len(pauses) == 3
    second.release()


def test_those_that_wait_get_the_lock_in_the_order_in_which_they_came(tmp_path):
    """The order holds however often each of them asks.

    A later one is told how many wait before it.
    """
    holder, *waiting = (RunLock(tmp_path) for _ in range(4))
    assert holder.take("edgemeter run")
    assert not any(lock.take(f"job {number}") for number, lock in enumerate(waiting))
    late, lines = RunLock(tmp_path), []
    with pytest.raises(KeyboardInterrupt):
        late.wait("edgemeter compare", lines.append, mock.Mock(side_effect=KeyboardInterrupt))
    assert "3 more wait before this one" in lines[0]
    holder.release()
    assert not late.take("edgemeter compare")
    for turn, lock in enumerate(waiting):
        assert not any(later.take("x") for later in waiting[turn + 1 :])
        assert lock.take("job")
        lock.release()
    assert late.take("edgemeter compare")
    late.release()


@pytest.mark.services
def test_a_waiting_process_that_is_killed_keeps_nobody_waiting(tmp_path):
    """Its place in the queue is gone with the process."""
    lock, later = RunLock(tmp_path), RunLock(tmp_path)
    assert lock.take("edgemeter run")
    waiting = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert waiting.stdout.readline().startswith(b"False ")
    lock.release()
    assert not later.take("edgemeter run")
    waiting.kill()
    waiting.wait()
    waiting.stdout.close()
    assert later.take("edgemeter run")
    later.release()


def test_a_folder_that_may_not_be_written_is_reported(tmp_path):
    """`take` raises an error, whereas `run_lock` goes on without a lock and reports that."""
    wrong = tmp_path / "file"
    wrong.write_text("x")
    with pytest.raises(UnavailableError, match="cannot make the lock"):
        RunLock(wrong).take("x")
    lines = []
    with file_lock.run_lock(wrong, "edgemeter run", lines.append):
        pass
    assert "cannot make the lock" in lines[0]


def test_garbage_in_the_file_is_no_holder_and_no_terminal_code(tmp_path):
    """The holder's name is printable whatever the lock file holds; an empty file names nobody."""
    lock = RunLock(tmp_path)
    lock.path.write_bytes(b"\x1b[2J\xff\xfe" + b"x" * 1000)
    assert lock.holder().isprintable()
    lock.path.write_bytes(b"")
    assert lock.holder() == "another run"


NOBODY = 65534
_BECOME = f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"


@pytest.fixture
def board(monkeypatch):
    """Return a folder like Debian's /run/lock with the board's lock in it.

    Every user of this machine reaches it.
    """
    if os.geteuid() != 0:
        pytest.skip("several users take root")
    with tempfile.TemporaryDirectory(prefix="edgemeter-lock-", dir="/run") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(folder / "edgemeter-run.lock"))
        yield folder


@pytest.fixture
def hold_as_nobody(board):
    """Return a function that starts a process of another user, which takes the lock.

    It returns the process and what that printed.
    """
    started = []

    def start():
        (board / "home").mkdir(exist_ok=True)
        os.chown(board / "home", NOBODY, NOBODY)
        # Imported as root: others may have no access to this tree.
        code = f"import os\nfrom edgemeter.agent.base.file_lock import RunLock\n{_BECOME}{HOLD}"
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(board / "home")], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.services
def test_one_lock_serves_all_users_of_a_board(board, hold_as_nobody, tmp_path):
    """Root waits for a user's run and then takes over the lock file that the user made.

    That works although the folder is sticky. Afterwards the user waits for root.
    """
    process, output = hold_as_nobody()
    assert output == f"True {board}/edgemeter-run.lock None"
    mine = RunLock(tmp_path)
    assert not mine.take("edgemeter run")
    assert mine.holder().startswith("another (pid ")
    assert file_lock.is_run_locked(tmp_path / "elsewhere")
    process.kill()
    process.wait()
    assert mine.take("edgemeter run")
    assert mine.pop_note() is None
    assert hold_as_nobody()[1].startswith("False ")


@pytest.mark.parametrize("trap", ["link", "pipe"])
def test_what_somebody_put_there_instead_of_a_file_is_not_touched(tmp_path, monkeypatch, trap):
    """A link is not followed and a pipe is not waited for.

    The lock in the home is taken instead, with one line that says so.
    """
    target, wide = tmp_path / "target", tmp_path / "edgemeter-run.lock"
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(wide))
    target.write_text("mine")
    if trap == "link":
        wide.symlink_to(target)
    else:
        os.mkfifo(wide)
    lines = []
    with file_lock.run_lock(tmp_path / "home", "edgemeter run", lines.append):
        assert target.read_text() == "mine"
    assert [line.split(" (")[0] for line in lines] == [f"note: cannot make the lock '{wide}'"]


def test_one_process_at_a_time_represents_a_device(tmp_path):
    """Another process gets the claim once it is released, and another device has its own."""
    first, other, third = (
        DeviceLock(tmp_path / "outbox", device) for device in ("pi-1", "pi-1", "pi-2")
    )
    assert first.take()
    assert first.take()
    assert not other.take()
    assert third.take()
    first.release()
    first.release()
    assert other.take()
    other.release()
    third.release()
