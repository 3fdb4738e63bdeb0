"""The threads of a service, which ends if one of them dies of an error.

So its supervisor restarts it.
"""

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import UnavailableError, one_line


@contextmanager
def ended_by_dead_threads(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` if a thread of this process dies of an error; the block is expected to end then.

    Raises:
        UnavailableError: at the end of the block, if a thread died: the line names it, its error,
            and where that was raised.
    """
    deaths: list[str] = []

    def note(death: threading.ExceptHookArgs) -> None:
        if death.exc_type is SystemExit:
            return
        frames = traceback.extract_tb(death.exc_traceback)
        where = f", {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
        name = death.thread.name if death.thread is not None else "unknown"
        deaths.append(
            f"the thread {name!r} died ({death.exc_type.__name__}: "
            f"{one_line(death.exc_value)}{where})"
        )
        end()

    before, threading.excepthook = threading.excepthook, note
    try:
        yield
    finally:
        threading.excepthook = before
    if deaths:
        raise UnavailableError(
            f"{deaths[0]}: what was stored is safe; start the service again, and report this "
            "error if it returns"
        )


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """Yield an event that SIGINT, SIGTERM and a dying thread set (`interrupts.calling`).

    Raises:
        UnavailableError: at the end, if a thread died of an error.
    """
    stopped = threading.Event()
    with interrupts.calling(stopped.set), ended_by_dead_threads(stopped.set):
        yield stopped
