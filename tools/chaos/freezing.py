"""Processes that stop without ending, as in a virtual machine that is moved.

Their peers see no end of the connection, and no answer.
"""

import contextlib
import random
import time
from collections.abc import Iterator

import psutil

# Mostly shorter than the longest deadline of a client (45 s), sometimes longer.
SHORT_S, LONG_S = (0.5, 14.0), (46.0, 55.0)
LONG_SHARE = 0.1


def freeze_s(draw: random.Random) -> float:
    """Return for how long something stops."""
    return draw.uniform(*(LONG_S if draw.random() < LONG_SHARE else SHORT_S))


@contextlib.contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """Stop a process and its children for the block; of one that is gone nothing."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        if pid is not None:
            main = psutil.Process(pid)
            family = [main, *main.children(recursive=True)]
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.suspend()
    try:
        yield
    finally:
        for process in reversed(family):
            with contextlib.suppress(psutil.Error):
                process.resume()


def freeze(pid: int | None, seconds: float) -> None:
    """Stop a process and its children for so long."""
    with frozen(pid):
        time.sleep(seconds)
