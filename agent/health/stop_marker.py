"""How the agent before this one ended, by a marker that each leaves while it runs and completes when it ends in good order.

A marker that was never completed, of an earlier boot, means that the board went without a goodbye; of this boot, that somebody or
something ended the process.
"""

import contextlib
import logging
import os
import time
from pathlib import Path

import msgspec

from edgemeter.agent.health.contract import LastWords
from edgemeter.agent.machine import clock
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

logger = logging.getLogger(__name__)

FILE = "running.json"
LONGEST_LINE = 400


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What a running agent leaves: its boot, the processes that the kernel had ended for want of memory by then, when it was last there."""

    boot_id: str | None
    oom_kills: int | None
    seen_ns: int
    floor_ns: int = 0
    ended: LastWords | None = None


class StopMarker:
    """The marker below `home`; make it at the start of the agent, `touch` it seldom, `end` it once."""

    def __init__(self, home: Path, machine: Machine = THIS_MACHINE) -> None:
        self._path = home / FILE
        self._machine = machine
        before = _read(self._path)
        self.floor_ns = max(before.floor_ns, before.seen_ns) if before else 0
        self.last_words = words(before, machine)
        self.touch()

    def touch(self) -> None:
        """Say that the agent is there; the latest time that the clock ever showed is kept."""
        self._write(None)

    def end(self, error: BaseException | None, line: str | None = None) -> None:
        """Say that the agent ends: told to, or by `error`; `line` is the last that it logged."""
        if error is None or isinstance(error, (SystemExit, KeyboardInterrupt)):
            self._write(LastWords(kind="clean", text=line, at_ns=time.time_ns()))
        else:
            text = f"{type(error).__name__}: {error}"[:LONGEST_LINE]
            self._write(LastWords(kind="crash", text=text, at_ns=time.time_ns()))

    def _write(self, ended: LastWords | None) -> None:
        now_ns = time.time_ns()
        self.floor_ns = max(self.floor_ns, now_ns)
        marker = Marker(
            boot_id=clock.boot_id(self._machine),
            oom_kills=oom_kills(self._machine),
            seen_ns=now_ns,
            floor_ns=self.floor_ns,
            ended=ended,
        )
        beside = self._path.with_suffix(".new")
        # It only says more about the next start: an agent on a full disk goes on without it.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(msgspec.json.encode(marker))
            # A power cut must not leave an empty file; a rename alone does not promise that.
            descriptor = os.open(beside, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            beside.replace(self._path)


def words(before: Marker | None, machine: Machine) -> LastWords:
    """Return how the agent that left `before` ended, judged on the machine as it is now."""
    if before is None:
        return LastWords(kind="first")
    if before.ended is not None:
        return before.ended
    if before.boot_id is None or clock.boot_id(machine) is None:
        return LastWords(kind="unknown", text="it said no goodbye, and this machine does not name its boots", at_ns=before.seen_ns)
    if clock.boot_id(machine) != before.boot_id:
        text = "the board went down without a goodbye: power, reset, or a frozen kernel (a guess)"
        return LastWords(kind="power-loss", text=text, at_ns=before.seen_ns)
    kills = oom_kills(machine)
    if kills is not None and before.oom_kills is not None and kills > before.oom_kills:
        text = f"the kernel has ended {kills - before.oom_kills} process(es) for want of memory since"
        return LastWords(kind="oom", text=text, at_ns=before.seen_ns)
    return LastWords(kind="killed", text="ended from outside, in the same boot, without a goodbye", at_ns=before.seen_ns)


def oom_kills(machine: Machine) -> int | None:
    """Return how many processes the kernel has ended for want of memory since the boot, None where it does not count (before 4.13)."""
    for line in (machine.text("proc/vmstat") or "").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdecimal():
            return int(count)
    return None


def _read(path: Path) -> Marker | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Marker)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        logger.info("how the agent ended last cannot be told: %s is damaged (%s)", path, error)
        return Marker(boot_id=None, oom_kills=None, seen_ns=0)
