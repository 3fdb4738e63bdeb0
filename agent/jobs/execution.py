"""The process that carries an order out, as seen by the daemon.

The daemon starts it with a task, reads its notes, and ends it with all its children.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract.messages import Measuring
from edgemeter.agent.contract.orders import Order


class ExecutionTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task to carry out `order`, whose number in the journal is `place`.

    `contents` maps each hash to the path of that content.
    """

    order: Order
    place: int
    home: str
    device: str
    fleet: str
    config: str | None
    contents: dict[str, str]
    log: tuple[str, ...] = ()


class Doing(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The current work, for people.

    `done_ratio` is set if known; `measuring` is the run that begins now, at `begun_ns` (monotonic).
    """

    doing: str
    done_ratio: float | None = None
    measuring: Measuring | None = None
    begun_ns: int = 0


logger = logging.getLogger(__name__)

_LINE_CHARACTERS = 300
# The time that a starting run waits for its report; nothing is sent later, which might disturb a
# timed query.
ANSWER_NS = 5_000_000_000


class ExecutionProcess:
    """A process group that ends with its owner; call `end` when done."""

    def __init__(
        self,
        task: ExecutionTask,
        wake: Callable[[], None],
        begun: Callable[[Measuring], None],
        lock: int | None = None,
    ) -> None:
        """Start it; `lock` is the descriptor of the run lock, which it holds from then on.

        `begun` is called from a thread, with each run that begins, at once or not at all.

        Raises:
            UnavailableError: no process can be started.
        """
        self.place = task.place
        self.latest: Doing | None = None
        self._last_line = ""
        self._wake = wake
        self._begun = begun
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "edgemeter.agent.jobs.execute"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"},
                pass_fds=() if lock is None else (lock,),
                start_new_session=True,
            )
        except OSError as error:
            raise UnavailableError(
                f"cannot start a process for the job {task.order.job!r}: {error.strerror}"
            ) from error
        # The pipe stays open: when it closes, the process knows that its owner has ended.
        self._send(msgspec.json.encode(task) + b"\n")
        self._thread = threading.Thread(target=self._listen, name="edgemeter-job", daemon=True)
        self._thread.start()

    def status(self) -> int | None:
        """Return its exit status once it has ended and all output was read, else None."""
        return None if self._thread.is_alive() else self._process.wait()

    def failure(self) -> str:
        """Return how the process ended, if it left no result in the journal.

        It has the last line of its output.
        """
        status = self._process.returncode
        how = (
            f"was killed by {signal.Signals(-status).name}"
            if status is not None and status < 0
            else f"ended with status {status}"
        )
        return f"the process of the job {how}" + (
            f"; its last output: {self._last_line}" if self._last_line else ""
        )

    def end(self) -> None:
        """End it and all its children at once."""
        # The group outlives its first process; if it is gone, it needs no signal.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            logger.debug("the group of process %d has ended already", self._process.pid)
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _send(self, text: bytes) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(text)
                self._process.stdin.flush()

    def _listen(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                note: Doing | None = None
                # A line may be other output.
                with contextlib.suppress(msgspec.MsgspecError):
                    note = decode_json(line, Doing)
                if note is not None:
                    self.latest = note
                    if (
                        note.measuring is not None
                        and time.monotonic_ns() - note.begun_ns < ANSWER_NS
                    ):
                        self._begun(note.measuring)
                        self._send(b"\n")
                    self._wake()
                elif text := line.decode(errors="replace").strip():
                    self._last_line = text[:_LINE_CHARACTERS]
                    logger.info("job: %s", self._last_line)
        self._wake()
