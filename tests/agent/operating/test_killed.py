"""A board is restored by the next start when a sweep over its settings is killed."""

import subprocess
import sys
import time

import pytest

from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.operating.changed_board import restore_leftover
from tests.fixtures.settable_board import SettableBoard

SWEEP = """
import os, signal, sys, time
from pathlib import Path
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.operating.changed_board import changed_board, quiet_board, restore_leftover
home, root, measures_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
object.__setattr__(THIS_MACHINE, "root", root)
points = [
    OperatingPoint(power_mode="15W", governor="performance"),
    OperatingPoint(power_mode="MAXN_SUPER"),
    OperatingPoint(governor="powersave"),
]

def sweep():
    quiet = quiet_board(home, "a sweep", lambda line: print(line, flush=True))
    with quiet, changed_board(home, points) as board:
        for point in points:
            board.set(point)
            print("measuring", flush=True)
            time.sleep(measures_s)
"""
# Counts what opens to write, renames and removes, and kills the process before one of them. Source:
# audit events of Python.
STEPS = """
import itertools, pytest
from tests.fixtures.settable_board import SettableBoard
stride, measures_s = int(sys.argv[3]), 0.0
os.fsync = lambda _: None  # The kernel outlives the process.
board = SettableBoard(home.parent)
board.without_processes(pytest.MonkeyPatch())
before = board.settings()

def kill_at(step, ends):
    left = itertools.count(1)
    def hook(event, arguments):
        changes = event in ("os.rename", "os.remove") or (
            event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if changes and next(left) == step:
            os.kill(os.getpid(), signal.SIGKILL)
    if (pid := os.fork()) == 0:
        sys.addaudithook(hook)
        ends()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

steps = restores = 0
while kill_at(steps + 1, sweep):
    steps += 1
    changed = {name: (root / name).read_text() for name in before}
    content = board.record.read_bytes() if board.record.exists() else None
    # The start that puts it back is killed as well, at one of its steps or at each.
    for restore_step in itertools.count(1 + steps % stride, stride):
        for name, text in changed.items():
            (root / name).write_text(text)
        if content is not None:
            board.record.write_bytes(content)
        if not kill_at(restore_step, lambda: restore_leftover(home)):
            break
        restores += 1
        assert restore_leftover(home) == ""
        assert (board.settings(), board.record.exists()) == (before, False), (steps, restore_step)
    assert (board.settings(), board.record.exists()) == (before, False), steps
print("steps", steps, restores)
"""


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Return a Jetson whose nvpmodel is a program that takes a while."""
    jetson = SettableBoard(tmp_path, pause_s=0.05)
    monkeypatch.setenv("PATH", jetson.environment["PATH"])
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(tmp_path / "run.lock"))
    return jetson


def start(folder, script, measures_s=0.02):
    """Start a script in a process of its own, on the board in that folder."""
    command = [
        sys.executable,
        "-c",
        script,
        str(folder / "home"),
        str(folder / "root"),
        str(measures_s),
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize(
    "stride",
    [pytest.param(20, marks=pytest.mark.services), pytest.param(1, marks=pytest.mark.nightly)],
)
def test_a_sweep_that_is_killed_before_any_of_its_writes_is_put_back(tmp_path, monkeypatch, stride):
    """The sweep is killed before each write, within nvpmodel and on the way back.

    The start that restores the board is killed too.
    """
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(tmp_path / "run.lock"))
    with start(tmp_path, SWEEP + STEPS, stride) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    _, steps, restores = out.splitlines()[-1].split()
    assert int(steps) > 50
    assert int(restores) > int(steps)


@pytest.mark.services
def test_a_sweep_that_is_killed_with_nvpmodel_at_work_is_put_back(board, caplog):
    """A running nvpmodel outlives the sweep and holds the run lock until it ends."""
    before = board.settings()
    for delay_s in (0.0, 0.03, 0.08, 0.2, 0.35, 0.5):
        with start(board.home.parent, SWEEP + "sweep()") as process:
            until_s = time.monotonic() + 30
            while not board.record.exists() and time.monotonic() < until_s:
                time.sleep(0.002)
            time.sleep(delay_s)
            process.kill()
        lock = RunLock(board.home)
        lock.wait("the next start", print, lambda _: time.sleep(0.01))
        assert restore_leftover(board.home, board.machine, holds_run_lock=True) == ""
        lock.release()
        assert (board.settings(), board.record.exists()) == (before, False), delay_s
    assert "restored the board" in caplog.text


@pytest.mark.services
def test_two_sweeps_at_once_do_not_put_each_other_back(board):
    """The second sweep waits for the first, and other commands leave the board alone meanwhile."""
    before = board.settings()
    with start(board.home.parent, SWEEP + "sweep()", 1.0) as first:
        assert first.stdout.readline() == "measuring\n"
        now = board.settings()
        assert "a sweep (pid" in restore_leftover(board.home, board.machine)
        with start(board.home.parent, SWEEP + "sweep()") as second:
            assert "a sweep (pid" in second.stdout.readline()
            assert (board.settings(), first.poll()) == (now, None)
            outputs = [process.communicate() for process in (first, second)]
    assert ([process.returncode for process in (first, second)], [err for _, err in outputs]) == (
        [0, 0],
        ["", ""],
    )
    assert (board.settings(), board.record.exists()) == (before, False)
