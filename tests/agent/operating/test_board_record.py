"""The restore record is the board's: whoever starts next finds it, whatever its home and user, and the run lock is free only after it."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.operating import changes, restoring
from tests.fixtures.machine_trees import write
from tests.fixtures.settable_board import SettableBoard

SESSION = """
import sys, time
from pathlib import Path
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.operating import changes
home, root, mode, seconds = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
object.__setattr__(THIS_MACHINE, "root", root)
with changes.quiet_board(home, "a session", lambda line: print(line, flush=True)):
    with changes.changed_board(home) as board:
        board.set(OperatingPoint(power_mode=mode, governor="performance"))
        print("set", flush=True)
        time.sleep(seconds)
"""
DEADLINE_S = 60.0
GOVERNOR = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"


@pytest.fixture
def slow_board(tmp_path, monkeypatch):
    """Return a Jetson whose nvpmodel is a program that takes a while."""
    jetson = SettableBoard(tmp_path, pause_s=0.5)
    monkeypatch.setenv("PATH", jetson.environment["PATH"])
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(tmp_path / "run.lock"))
    return jetson


def start(board, home, mode="15W", seconds=60.0):
    """Start a session of that home, whose temporary folder goes with it."""
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", SESSION, str(home), str(board.root), mode, str(seconds)]
    environment = board.environment | {"TMPDIR": str(home / "tmp")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def start_and_set(board, home):
    """Return a session that has set the board, and its guardian's process id."""
    process = start(board, home)
    assert process.stdout.readline() == "set\n"
    (guardian,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return process, int(guardian)


def kill(process):
    """Kill a session."""
    process.kill()
    process.wait()
    process.stdout.close()


def wait_until(is_so):
    """Return whether it is so in time."""
    until_s = time.monotonic() + DEADLINE_S
    while not is_so() and time.monotonic() < until_s:
        time.sleep(0.01)
    return is_so()


def end_at_once(guardian):
    """Kill a guardian, which holds the run lock until the system has ended it."""
    process = psutil.Process(guardian)
    process.kill()
    assert wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.services
@pytest.mark.parametrize("guardian_lives", [True, False])
def test_a_session_of_another_home_that_waits_finds_the_board_as_it_was(slow_board, tmp_path, guardian_lives):
    """The killed session's guardian holds the run lock until the board is put back; without it the one that waited puts it back."""
    board, before = slow_board, slow_board.settings()
    killed, guardian = start_and_set(board, board.home)
    with start(board, tmp_path / "other", "MAXN_SUPER", 0.1) as waiting:
        assert "is in progress: waiting" in waiting.stdout.readline()
        if not guardian_lives:
            end_at_once(guardian)
        kill(killed)
        # As that of a measurement from elsewhere, whose folder goes when the connection is lost.
        shutil.rmtree(board.home)
        lines = waiting.communicate(timeout=DEADLINE_S)[0].splitlines()
        assert waiting.returncode == 0, lines
    assert [line for line in lines if "put back as it was" not in line] == ["set"]
    assert any(f"(pid {killed.pid}, " in line for line in lines) == (not guardian_lives)
    assert board.settings() == before
    assert not board.record.exists()


def test_after_a_power_cut_every_home_finds_the_power_mode(board, tmp_path):
    """It outlives the reboot, which empties the folder of the run lock and the home of a lost connection."""
    board.leave_changed()
    shutil.rmtree(board.home, ignore_errors=True)
    shutil.rmtree(board.root / "run/lock")
    (board.root / "run/lock").mkdir()
    board.reboot()
    assert "power mode 1" in changes.restore_leftover(tmp_path / "other", board.machine)
    assert board.settings()["var/lib/nvpmodel/status"] == "pmode:0001"


def test_without_power_modes_the_record_lies_beside_the_run_lock(board, monkeypatch):
    """All that it holds is the kernel's own again after a reboot."""
    board.program.unlink()
    monkeypatch.setattr("edgemeter.agent.operating.board_settings.PATH", "")
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(governor="performance"))
        assert not board.record.exists()
        record = json.loads((board.root / "run/lock/edgemeter-restore.json").read_bytes())
        assert (record["settings"]["governor"][GOVERNOR], record["begun"]) == ("schedutil", ["governor"])
    assert list((board.root / "run/lock").glob("*.json")) == []


def test_where_the_boards_folder_cannot_be_written_the_home_holds_the_record(board, monkeypatch):
    """The line names it."""
    monkeypatch.setattr(restoring, "DURABLE_RECORD", "var/lib/none/restore.json")
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(governor="performance"))
        path = board.home / "restore.json"
        content = path.read_bytes()
    assert not path.exists()
    path.write_bytes(content)
    write(board.root, {GOVERNOR: "performance\n"})
    with pytest.raises(UnavailableError, match=f"EDGEMETER_HOME={board.home}"), changes.changed_board(board.home, board.machine):
        pass
    assert "put back as it was" in changes.restore_leftover(board.home, board.machine)


def test_the_record_of_another_user_is_named_and_stays(board, monkeypatch):
    """Who plants one does not have root write it; a board that is to be changed is refused."""
    board.leave_changed()
    now, owner = board.settings(), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 7)
    line = changes.restore_leftover(board.home, board.machine, holds_run_lock=True)
    assert f"is of user {owner}, " in line
    assert "\n" not in line
    with pytest.raises(UnavailableError, match=f"is of user {owner}, "), changes.changed_board(board.home, board.machine):
        pass
    assert (board.settings(), board.record.exists()) == (now, True)
    monkeypatch.undo()


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_regular_file_is_no_record(board, kind):
    """Others may write beside the run lock; a pipe would block every start."""
    path = board.root / "run/lock/edgemeter-restore.json"
    {"pipe": lambda: os.mkfifo(path), "link": lambda: path.symlink_to("/etc/passwd")}[kind]()
    line = changes.restore_leftover(board.home, board.machine)
    assert f"{str(path)!r} is damaged (not a regular file)" in line


def test_a_record_that_others_can_write_is_named_and_not_put_back(board):
    """It holds what anybody wrote."""
    board.leave_changed()
    now = board.settings()
    board.record.chmod(0o664)
    line = changes.restore_leftover(board.home, board.machine, holds_run_lock=True)
    assert f"restore record {str(board.record)!r} can be written by others" in line
    assert (board.settings(), board.record.exists()) == (now, True)


@pytest.mark.services
@pytest.mark.skipif(os.geteuid() != 0, reason="of root the folder counts")
def test_root_acts_on_no_record_in_a_folder_that_others_can_change(board, monkeypatch):
    """Nor does it change a board whose record only the folder of another user can hold; in a sticky folder each has their own."""
    board.leave_changed()
    now = board.settings()
    board.record.parent.chmod(0o777)
    assert "lies in a folder that others" in changes.restore_leftover(board.home, board.machine, holds_run_lock=True)
    assert (board.settings(), board.record.exists()) == (now, True)
    board.record.parent.chmod(0o1777)
    assert "put back as it was" in changes.restore_leftover(board.home, board.machine, holds_run_lock=True)
    monkeypatch.setattr(restoring, "DURABLE_RECORD", "var/lib/none/restore.json")
    board.home.mkdir(exist_ok=True)
    os.chown(board.home, 65534, 65534)
    before = board.settings()
    with pytest.raises(ConfigError, match="set EDGEMETER_HOME"), changes.changed_board(board.home, board.machine):
        pass
    assert (board.settings(), list(board.home.glob("restore*"))) == (before, [])
