"""Facts about the run lock: one holder, gone with its process, handed to a child."""

import subprocess
import sys

import pytest

from edgemeter.agent.base import file_lock
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.file_lock import RunLock
from tests.fixtures.mqtt_peer import wait_until

HOLD = """import sys, time, pathlib
from edgemeter.agent.base.file_lock import RunLock
lock = RunLock(pathlib.Path(sys.argv[1]))
print(lock.take("another"), flush=True)
time.sleep(60)"""


def test_it_is_held_by_one_and_free_again(tmp_path):
    """Who waits is told who holds it."""
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


def test_it_goes_with_its_process(tmp_path):
    """SIGKILL: nobody has to clean up."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"True\n"
    assert file_lock.is_run_locked(tmp_path)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert not file_lock.is_run_locked(tmp_path)


def test_a_child_holds_it_on_when_its_parent_has_let_go(tmp_path):
    """Until the child ends."""
    lock = RunLock(tmp_path)
    assert lock.take("job")
    child = subprocess.Popen(["sleep", "60"], pass_fds=(lock.descriptor(),))
    lock.release()
    assert file_lock.is_run_locked(tmp_path)
    child.kill()
    child.wait()
    assert wait_until(lambda: not file_lock.is_run_locked(tmp_path))


def test_who_waits_says_so_once_and_goes_on_when_it_is_free(tmp_path):
    """By a line that names the holder."""
    first, second, said = RunLock(tmp_path), RunLock(tmp_path), []
    assert first.take("edgemeter run")
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            first.release()

    second.wait("edgemeter compare", said.append, sleep)
    assert len(said) == 1
    assert "edgemeter run (pid" in said[0]
    assert len(pauses) == 3
    second.release()


def test_a_folder_that_may_not_be_written_is_said(tmp_path):
    """`take` is an error; `held` measures without, and says so."""
    wrong = tmp_path / "file"
    wrong.write_text("x")
    with pytest.raises(UnavailableError, match="cannot make the lock"):
        RunLock(wrong).take("x")
    said = []
    with file_lock.run_lock(wrong, "edgemeter run", said.append):
        pass
    assert "cannot make the lock" in said[0]


def test_garbage_in_the_file_is_no_holder_and_no_terminal_code(tmp_path):
    """Whoever wrote it."""
    lock = RunLock(tmp_path)
    lock.path.write_bytes(b"\x1b[2J\xff\xfe" + b"x" * 1000)
    assert lock.holder().isprintable()
    lock.path.write_bytes(b"")
    assert lock.holder() == "another run"
