"""Facts about the device lock: one process at a time speaks for a device."""

import subprocess
import sys
import textwrap

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.file_lock import DeviceLock


def test_one_process_at_a_time_represents_a_device(tmp_path):
    """Another gets the claim when it is released; another device has its own."""
    first, other, third = (DeviceLock(tmp_path / "outbox", device) for device in ("pi-1", "pi-1", "pi-2"))
    assert first.take()
    assert first.take()
    assert not other.take()
    assert third.take()
    first.release()
    first.release()
    assert other.take()
    other.release()
    third.release()


def test_a_killed_process_holds_no_claim(tmp_path):
    """The lock goes with the process, not with a file that somebody has to delete."""
    program = """
        import os, signal, sys
        from pathlib import Path
        from edgemeter.agent.base.file_lock import DeviceLock
        claim = DeviceLock(Path(sys.argv[1]), "pi-1")
        print(claim.take(), flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "outbox")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        claim = DeviceLock(tmp_path / "outbox", "pi-1")
        assert not claim.take()
        process.kill()
        process.wait()
        assert claim.take()
        claim.release()


def test_a_place_that_cannot_be_written_ends_in_one_line(tmp_path):
    """The folder is not there."""
    with pytest.raises(UnavailableError, match="cannot make the lock"):
        DeviceLock(tmp_path / "absent" / "outbox", "pi-1").take()
