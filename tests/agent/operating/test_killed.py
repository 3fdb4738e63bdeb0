"""A sweep over settings of a board that is killed at every step: the board is put back by the guardian, or by the next start."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, get_args

import psutil
import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.operating import changes
from tests.fixtures.settable_board import SETTABLE, SettableBoard

SWEEP = """
import sys, time
from pathlib import Path
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.operating import changes
machine = changes.Machine(Path(sys.argv[2]))
points = [
    OperatingPoint(power_mode="15W", governor="performance"),
    OperatingPoint(power_mode="MAXN_SUPER"),
    OperatingPoint(governor="powersave"),
]
changes.check(points, machine)
with changes.changed_board(Path(sys.argv[1]), machine) as board:
    print("changing", flush=True)
    for point in points:
        board.set(point)
        print("measuring", flush=True)
        time.sleep(float(sys.argv[3]))
"""
DEADLINE_S = 60.0
GuardianFate = Literal["lives", "dies first", "dies at work", "dies with nvpmodel"]
FATES = (*get_args(GuardianFate), "lives", "lives")
KILLS = 100


class Sweep:
    """The sweep in a process of its own session, and what it does to the board, step by step."""

    def __init__(self, board: SettableBoard, measures_s: float = 0.02, **options: object) -> None:
        self.board, self.before = board, board.settings()
        command = [sys.executable, "-c", SWEEP, board.home, board.root, str(measures_s)]
        self.process = subprocess.Popen(command, env=board.environment, stdout=subprocess.PIPE, start_new_session=True, **options)
        self.record = board.record

    def state(self) -> list[bytes]:
        """Return every setting, the record, and whether nvpmodel is at work."""
        contents = [path.read_bytes() for name in SETTABLE if (path := self.board.root / name)]
        return [*contents, b"record" * self.record.exists(), b"setting" * (self.board.root / "setting").exists()]

    def steps(self, limit: int) -> int:
        """Return how many changes were seen, up to `limit`, or until it has ended."""
        state, count = self.state(), 0
        while count < limit and self.process.poll() is None:
            if (now := self.state()) != state:
                state, count = now, count + 1
        return count

    def child(self, name: bytes) -> int | None:
        """Return the process id of its child with that in its command line, if there is one."""
        for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if name in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        return None

    def kill(self, guardian: GuardianFate = "lives") -> None:
        """Kill it; the guardian is killed before it, with an nvpmodel at work if need be, or once it has begun to put the board back."""
        if self.process.poll() is None:
            pid = self.child(b"guardian")
            if guardian in {"dies first", "dies with nvpmodel"} and pid:
                os.kill(pid, signal.SIGKILL)
            if guardian == "dies with nvpmodel" and (program := self.child(os.fsencode(self.board.program))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(program, signal.SIGKILL)
            state = self.state()
            self.process.kill()
            if guardian == "dies at work" and pid:
                with contextlib.suppress(ProcessLookupError):
                    while self.state() == state and self.record.exists():
                        os.kill(pid, 0)
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def restored_s(self) -> float:
        """Return after how long the board is as it was, without a record."""
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + DEADLINE_S:
            if not self.record.exists() and not (self.board.root / "setting").exists() and self.board.settings() == self.before:
                return time.monotonic() - begun_s
            time.sleep(0.002)
        raise AssertionError((self.board.settings(), self.before, self.record.exists()))


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Return a Jetson whose nvpmodel takes a while."""
    jetson = SettableBoard(tmp_path, pause_s=0.02)
    monkeypatch.setenv("PATH", jetson.environment["PATH"])
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(tmp_path / "run.lock"))
    return jetson


def killed_at(board: SettableBoard, step: int, guardian: GuardianFate) -> float | None:
    """Kill a sweep at a step; return after how long its guardian has put the board back, None where the next start did."""
    sweep = Sweep(board)
    sweep.steps(step)
    sweep.kill(guardian)
    if guardian == "lives":
        return sweep.restored_s()
    changes.restore_leftover(board.home, board.machine)
    sweep.restored_s()
    return None


@pytest.mark.services
def test_a_killed_sweep_leaves_the_board_as_it_was(board):
    """At the record, in the first change of mode, or among the clocks, whatever becomes of the guardian."""
    for step, guardian in zip((1, 2, 9, 3), get_args(GuardianFate), strict=True):
        killed_at(board, step, guardian)


@pytest.mark.nightly
def test_a_hundred_kills_leave_the_board_as_it_was(board):
    """Spread over every step that can be seen, from the record to its removal; half of them take the guardian too."""
    unkilled = Sweep(board)
    steps = unkilled.steps(1000)
    unkilled.kill()
    assert unkilled.restored_s() < DEADLINE_S
    assert steps > 20
    times_s = [killed_at(board, 1 + kill * steps // KILLS, FATES[kill % len(FATES)]) for kill in range(KILLS)]
    by_guardian = sorted(seconds for seconds in times_s if seconds is not None)
    print(
        f"{KILLS} kills over {steps} steps; by the guardian: median {by_guardian[len(by_guardian) // 2]:.3f} s, "
        f"longest {by_guardian[-1]:.3f} s"
    )


@pytest.mark.services
def test_a_signal_to_all_its_processes_leaves_the_board_as_it_was(board):
    """As a terminal's Ctrl-C, which nvpmodel gets as well, and a service manager's end; the guardian has a session of its own."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        sweep = Sweep(board, stderr=subprocess.DEVNULL)
        sweep.steps(4)
        os.killpg(sweep.process.pid, number)
        sweep.restored_s()
        sweep.kill()


@pytest.mark.services
def test_a_guardian_is_replaced_when_it_was_killed_ignores_signals_and_has_to_be_ready(board, monkeypatch, tmp_path):
    """Before the next change; it is waited for with a limit, and the board is not changed without one."""
    before = board.settings()
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before_it = set(children.read_text().split())
    with changes.changed_board(board.home, board.machine) as changed:
        (first,) = map(psutil.Process, map(int, set(children.read_text().split()) - before_it))
        first.kill()
        first.wait()
        changed.set(OperatingPoint(governor="performance"))
        (second,) = map(psutil.Process, map(int, set(children.read_text().split()) - before_it))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            second.send_signal(number)
    assert (second.is_running(), board.settings()) == (False, before)
    (tmp_path / "idle_guardian.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(changes, "GUARDIAN", "idle_guardian")
    monkeypatch.setattr(changes, "GUARD_S", 1.0)
    with pytest.raises(UnavailableError, match="not ready"), changes.changed_board(board.home, board.machine):
        pass
    assert board.settings() == before
