"""Handles Ctrl-C, SIGTERM and SIGHUP wherever they arrive.

The first ends a command, the second ends the process at once.

Python drops an exception that is raised in a callback (of a weak reference, `__del__`, the lock of
an import, SQLite). The handler of a signal therefore sets a flag as well as raising, and each loop
that may last calls `check`. A signal that was ignored when the process started, as `nohup COMMAND
&` starts it, stays ignored. Handlers run in the main thread, between two bytecodes.
"""

import atexit
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any, AnyStr, NoReturn

from edgemeter.agent.base.errors import INTERRUPTED, TERMINATED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A lost exception costs at most this time.
POLL_S = 0.5
# One Ctrl-C may arrive twice, from the terminal and from a program that passes it on; a terminal
# that closes sends several SIGHUP.
_TWICE_S = 0.1
_CHUNK_BYTES = 1 << 16


class Terminated(SystemExit):
    """SIGTERM or SIGHUP arrived.

    A command measured by `edgemeter energy` may end with the same status.
    """


class _SignalHandler:
    """Calls `act` with the first signal; the second ends the process."""

    def __init__(self, act: Callable[[int], object]) -> None:
        self._act = act
        self._first_s: float | None = None

    def __call__(self, number: int, _: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
            self._act(number)
        elif number != signal.SIGHUP and now_s - self._first_s > _TWICE_S:
            _end_at_once(number)


class _Interrupt:
    """The interrupt of this process, if there was one."""

    def __init__(self) -> None:
        # The signal, until somebody has dealt with it.
        self.number: int | None = None
        self.deferrals = 0
        self.is_deferred = False

    def arrive(self, number: int) -> None:
        self.number = number
        self.is_deferred = self.deferrals > 0
        if not self.is_deferred:
            check()


_interrupt = _Interrupt()


def handle() -> None:
    """Let the signals interrupt this process from now on.

    It is for a command line that has the process to itself.
    """
    handler = _SignalHandler(_interrupt.arrive)
    sys.unraisablehook = _print_unless_interrupt
    for number in _not_ignored(SIGNALS):
        signal.signal(number, handler)


def _print_unless_interrupt(dropped: "sys.UnraisableHookArgs") -> None:
    """Print an exception that Python drops.

    An interrupt is not lost, because `check` raises it again.
    """
    if _interrupt.number is None or not issubclass(
        dropped.exc_type, KeyboardInterrupt | Terminated
    ):
        sys.__unraisablehook__(dropped)


def check() -> None:
    """Raise the interrupt that nobody has dealt with, if there is one.

    Raises:
        KeyboardInterrupt: for Ctrl-C.
        Terminated: for SIGTERM and SIGHUP.
    """
    if _interrupt.number == signal.SIGINT:
        raise KeyboardInterrupt
    if _interrupt.number is not None:
        raise Terminated(TERMINATED)


def acknowledge() -> None:
    """Go on after an interrupt: `check` no longer raises it."""
    _interrupt.number = None


@contextmanager
def deferred() -> Iterator[None]:
    """Let a signal that arrives in the block raise at its end.

    So the block can tell its caller what it has started.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _interrupt.deferrals += 1
    try:
        yield
    finally:
        _interrupt.deferrals -= 1
        if _interrupt.is_deferred and not _interrupt.deferrals:
            _interrupt.is_deferred = False
            check()


@contextmanager
def calling(end: Callable[[], object]) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM in the block call `end` instead of raising.

    It is for services, whose loops end by a flag.
    """
    # One that was lost while the service was imported.
    check()
    handler = _SignalHandler(lambda _: end())
    before = {number: signal.signal(number, handler) for number in _not_ignored(SIGNALS[:2])}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class OwnedProcess(subprocess.Popen[AnyStr]):
    """A child process in a session of its own.

    It ends with this object, and with this process.
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        with deferred():
            super().__init__(command, start_new_session=True, **options)
            self._end_group: Callable[[], object] = weakref.finalize(self, _kill_group, self.pid)

    def end(self) -> None:
        """End it and the other processes of its session; an interrupt waits until then."""
        with deferred():
            self._end_group()
            self.wait()


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def sleep(seconds: float) -> None:
    """Sleep like `time.sleep`, after raising an interrupt that was lost."""
    check()
    time.sleep(seconds)


def wait(process: subprocess.Popen[AnyStr]) -> int:
    """Wait for a child process like `Popen.wait`, and return its status; no interrupt is lost."""
    while True:
        check()
        with suppress(subprocess.TimeoutExpired):
            return process.wait(POLL_S)


def communicate(
    process: subprocess.Popen[bytes], request: bytes = b"", limit_s: float = math.inf
) -> tuple[bytes, bytes]:
    """Send a request to a child process and return its output, like `Popen.communicate`.

    No interrupt is lost.

    Raises:
        subprocess.TimeoutExpired: it has not ended after `limit_s`.
    """
    until_s = time.monotonic() + limit_s
    unsent: bytes | None = request
    while True:
        check()
        try:
            return process.communicate(
                unsent, timeout=min(POLL_S, max(0.0, until_s - time.monotonic()))
            )
        except subprocess.TimeoutExpired:
            if time.monotonic() >= until_s:
                raise
            # The next call sends what is left of it.
            unsent = None


def lines(pipe: IO[bytes], longest_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield the lines of a pipe until its end, a longer one in parts; no interrupt is lost."""
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    line = bytearray()
    while True:
        while not ready.poll(POLL_S * 1000):
            check()
        check()
        chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
        *ends, part = chunk.split(b"\n")
        for end in ends:
            yield bytes(line + end + b"\n")
            line.clear()
        line += part
        if line and (not chunk or len(line) > longest_bytes):
            yield bytes(line)
            line.clear()
        if not chunk:
            return


def exit_now(status: int) -> NoReturn:
    """End this process with the status, after its exit functions.

    Those remove child processes and temporary folders. If it is interrupted in the middle of an
    import, an interpreter may crash while it is taken apart, and end by another status.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # It does what `weakref.finalize` does at each exit.
    atexit._run_exitfuncs()  # noqa: SLF001 - nothing public calls them
    os._exit(status)


def _not_ignored(numbers: tuple[int, ...]) -> list[int]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _end_at_once(number: int) -> NoReturn:
    for other in SIGNALS:
        signal.signal(other, signal.SIG_DFL)
    with suppress(OSError):
        os.write(2, b"edgemeter: interrupted again: ended at once\n")
    exit_now(INTERRUPTED if number == signal.SIGINT else TERMINATED)
