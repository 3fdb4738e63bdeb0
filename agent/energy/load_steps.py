"""A load on the processor that is switched on and off: processes that compute on all cores."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgemeter.agent.base.errors import UnavailableError

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event, Semaphore

# How long a process may take to start.
READY_S = 60.0


@contextmanager
def switched_load(cores: int | None = None) -> Iterator[Callable[[bool], None]]:
    """Yield a switch of a load on all cores, whose processes wait ready for it; raises UnavailableError if they do not start."""
    # Ready, they begin and end within a millisecond or two.
    context = multiprocessing.get_context("spawn")
    is_on = context.Event()
    ready = context.Semaphore(0)
    count = cores or len(os.sched_getaffinity(0))
    processes = [context.Process(target=_compute_while, args=(is_on, ready), daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        if not all(ready.acquire(timeout=READY_S) for _ in range(count)):
            raise UnavailableError(f"the processes of the load did not start within {READY_S:g} s: end other work, and try again")
        yield lambda on: is_on.set() if on else is_on.clear()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _compute_while(is_on: "Event", ready: "Semaphore") -> None:
    value = 1.0
    ready.release()
    while is_on.wait():
        for _ in range(1000):
            value = value * 1.000001 % 7.0
