"""Deadlines of connections, which end the wait for a peer that does not answer.

At the deadline the socket is shut down, and the waiting call fails. A frozen process or a hung
machine keeps a connection open and answers nothing; its kernel even acknowledges data. No TCP
option detects that.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

_STEP_S = 0.5


class SocketDeadline:
    """The deadline of one connection, on a copy of its socket; for one thread.

    `close` may be called several times.

    A caller that takes it by `watch` calls `check` itself; otherwise a thread of this process does.
    """

    def __init__(
        self,
        socket_number: int,
        watch: "Callable[[SocketDeadline], None] | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = socket.socket(fileno=os.dup(socket_number))
        self._watch, self._clock = watch or _watch.add, clock
        self.is_expired = False
        self._until_s: float | None = None

    def begin(self, within_s: float) -> None:
        """Expect an answer within this time."""
        self._until_s = self._clock() + within_s
        self._watch(self)

    def end(self) -> None:
        self._until_s = None

    def close(self) -> None:
        self._until_s = None
        self._socket.close()

    def check(self, now_s: float) -> bool:
        """Shut the connection down if its deadline has passed.

        Returns whether an answer is still expected.
        """
        until_s = self._until_s
        if until_s is None:
            return False
        if now_s < until_s:
            return True
        self.is_expired = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        return False


class _Watch:
    """One thread for all deadlines of the process; it exists while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: set[SocketDeadline] = set()
        self._thread: threading.Thread | None = None

    def add(self, deadline: SocketDeadline) -> None:
        with self._lock:
            self._deadlines.add(deadline)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="edgemeter-deadlines", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        idle_steps = 0
        while idle_steps < 20:
            time.sleep(_STEP_S)
            with self._lock:
                now_s = time.monotonic()
                self._deadlines = {
                    deadline for deadline in self._deadlines if deadline.check(now_s)
                }
                idle_steps = 0 if self._deadlines else idle_steps + 1
                if idle_steps == 20:
                    self._thread = None


_watch = _Watch()
