"""The process that carries an order out, as the agent that stays sees it: started, listened to, ended with all that it started."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import msgspec

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.jobs import execution_task
from edgemeter.agent.jobs.execution_task import Doing, Task

logger = logging.getLogger(__name__)

_LAST_WORDS = 300


class Execution:
    """A process group of its own, which ends with its owner; `end` it once or more."""

    def __init__(self, task: Task, wake: Callable[[], None], lock: int | None = None) -> None:
        """Start it; `lock` is the descriptor of the run lock, which it holds from then on.

        Raises:
            UnavailableError: no process can be started.
        """
        self.place = task.place
        self.latest: Doing | None = None
        self._last_words = ""
        self._wake = wake
        command = [sys.executable, "-m", "edgemeter.agent.jobs.execute"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"},
                pass_fds=() if lock is None else (lock,),
                start_new_session=True,
            )
        except OSError as error:
            message = f"cannot start a process for the job {task.order.job!r}: {error.strerror}"
            raise UnavailableError(message) from error
        self._hand_over(task)
        self._thread = threading.Thread(target=self._listen, name="edgemeter-job", daemon=True)
        self._thread.start()

    def status(self) -> int | None:
        """Return its exit status once it has ended and everything that it said was heard, None before."""
        return None if self._thread.is_alive() else self._process.wait()

    def obituary(self) -> str:
        """Return how it ended, and the last that it said, where it ended without a word in the journal."""
        status = self._process.returncode
        how = f"was killed by {signal.Signals(-status).name}" if status is not None and status < 0 else f"ended with status {status}"
        said = f"; its last words: {self._last_words}" if self._last_words else ""
        return f"the process of the job {how}{said}"

    def end(self) -> None:
        """End it and all that it has started, at once."""
        # The group outlives its first process; a group that is gone is what was wanted.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            logger.debug("the group of process %d has ended already", self._process.pid)
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _hand_over(self, task: Task) -> None:
        # The pipe stays open: its end tells the process that its owner is gone.
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(msgspec.json.encode(task) + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                return

    def _listen(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                note = execution_task.decode_note(line)
                if note is not None:
                    self.latest = note
                    self._wake()
                elif words := line.decode(errors="replace").strip():
                    self._last_words = words[:_LAST_WORDS]
                    logger.info("job: %s", self._last_words)
        self._wake()
