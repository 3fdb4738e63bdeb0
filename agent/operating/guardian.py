"""The guardian of a changed board: a process of its own session that puts the board back when the process that changed it is gone.

`python -m edgemeter.agent.operating.guardian HOME ROOT TOKEN PID` writes a line once it is on guard. Its standard input is a pipe
that the other process holds open; it waits for the end of the pipe, or of that process. It has inherited the run lock: nobody measures, or
reads the settings as found, before the board is put back.
"""

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.operating.restoring import RestoreLock, find_record, put_back, remove_record

POLL_S = 0.02
# A command that takes longer than any may: the run lock is not kept for it.
GIVE_UP_S = 150.0


def main(home: Path, machine: Machine, token: str, pid: int) -> None:
    """Wait until the process is gone, and put back what the record of that `token` holds, if it is still there."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    waiting: list[int] = [sys.stdin.fileno()]
    with contextlib.suppress(OSError):
        # A process that it forked may hold the pipe open; kernels before 5.3 have no descriptor of a process.
        waiting.append(os.pidfd_open(pid))
    os.write(sys.stdout.fileno(), b"\n")
    select.select(waiting, [], [])
    until_s = time.monotonic() + GIVE_UP_S
    lock = RestoreLock(home, machine)
    while find_record(token, home, machine) and time.monotonic() < until_s:
        # Its command may still be at work, and holds the lock until it ends; or another start puts the board back already.
        if not lock.take("the guardian of a changed board"):
            time.sleep(POLL_S)
        elif (remaining := find_record(token, home, machine)) is None or put_back(remaining[1], machine):
            return
        else:
            remove_record(remaining[0])


if __name__ == "__main__":
    os.chdir("/")
    with contextlib.suppress(EdgemeterError):
        # What it cannot put back, the next start does, or reports.
        main(Path(sys.argv[1]), Machine(Path(sys.argv[2])), sys.argv[3], int(sys.argv[4]))
