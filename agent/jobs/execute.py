"""The process that carries one order out: `python -m edgemeter.agent.jobs.execute`, a Task on its standard input.

It reports its progress on standard output; a line comes back when it is reported that a run begins. When its standard input closes, the
daemon is gone: it ends with all that it started, and the journal shows that the job was interrupted.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec

from edgemeter.agent.jobs.carry_out import carry_out
from edgemeter.agent.jobs.execution import ExecutionTask

# Above the daemon's: when memory runs out, the kernel kills what measures.
_FIRST_TO_GO = "500"


def _end_with_owner(lifeline: int, answered: threading.Event) -> None:
    # Unbuffered: a thread that waits in a buffered read ends the interpreter with an error of its own.
    while os.read(lifeline, 1):
        answered.set()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Carry out the task on standard input."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=ExecutionTask)
    answered = threading.Event()
    threading.Thread(target=_end_with_owner, args=(sys.stdin.fileno(), answered), daemon=True).start()
    os.environ["EDGEMETER_HOME"] = task.home
    carry_out(task, sys.stdout.buffer, answered)
    # Without waiting for the thread that watches the standard input.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
