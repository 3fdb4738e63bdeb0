"""The process that carries one order out, with a task on its standard input.

It is `python -m edgemeter.agent.jobs.execute`.

It reports its progress on standard output; a line on its standard input acknowledges the report of
a run's start. When its standard input closes, the daemon has ended: the process ends with all its
children, and the journal shows that the job was interrupted.
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

# Higher than the daemon's: if memory runs out, the kernel kills the measurement.
_FIRST_TO_GO = "500"


def _end_with_owner(lifeline: int, answered: threading.Event) -> None:
    # Unbuffered: a thread waiting in a buffered read ends the interpreter with an error.
    while os.read(lifeline, 1):
        answered.set()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=ExecutionTask)
    answered = threading.Event()
    threading.Thread(
        target=_end_with_owner, args=(sys.stdin.fileno(), answered), daemon=True
    ).start()
    os.environ["EDGEMETER_HOME"] = task.home
    carry_out(task, sys.stdout.buffer, answered)
    # Without waiting for the thread that reads standard input.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
