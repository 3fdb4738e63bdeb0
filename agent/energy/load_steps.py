"""Load on the processor in steps: processes that compute for a share of the time, from none of the cores to all of them."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgemeter.agent.base.errors import UnavailableError

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event, Semaphore

# Short against a sensor's period, so that a reading sees the mean; long against a scheduler's tick.
CYCLE_S = 0.02
# How long a process may take to start.
READY_S = 60.0


def levels(steps: int) -> list[float]:
    """Return the shares of all cores to load, 0 to 1, equally spaced; up and down again, so that a drift does not look like a gain."""
    rising = [number / (steps - 1) for number in range(steps)]
    return rising[::2] + rising[1::2][::-1]


@contextmanager
def load(share: float, cores: int | None = None) -> Iterator[None]:
    """Keep `share` of all cores busy while the context lasts: as many whole ones as go into it, and one for the rest."""
    cores = cores or len(os.sched_getaffinity(0))
    busy = [1.0] * int(share * cores)
    remaining_share = share * cores - len(busy)
    shares = [*busy, remaining_share] if remaining_share > 1e-9 else busy
    with _running(_compute, ((core_share,) for core_share in shares)):
        yield


@contextmanager
def switched_load(cores: int | None = None) -> Iterator[Callable[[bool], None]]:
    """Yield a switch of a load on all cores, whose processes wait ready for it; raises UnavailableError if they do not start."""
    # Ready, they begin and end within a millisecond or two.
    context = multiprocessing.get_context("spawn")
    is_on = context.Event()
    ready = context.Semaphore(0)
    count = cores or len(os.sched_getaffinity(0))
    with _running(_compute_while, [(is_on, ready)] * count):
        if not all(ready.acquire(timeout=READY_S) for _ in range(count)):
            raise UnavailableError(f"the processes of the load did not start within {READY_S:g} s: end other work, and try again")
        yield lambda on: is_on.set() if on else is_on.clear()


@contextmanager
def _running(target: Callable[..., None], arguments: Iterable[tuple[Any, ...]]) -> Iterator[None]:
    """Run a process for each of these arguments while the context lasts."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=target, args=args, daemon=True) for args in arguments]
    for process in processes:
        process.start()
    try:
        yield
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


def _compute(share: float) -> None:
    """Compute for `share` of each cycle, forever."""
    value = 1.0
    while True:
        begun = time.monotonic()
        while time.monotonic() - begun < share * CYCLE_S:
            for _ in range(1000):
                value = value * 1.000001 % 7.0
        time.sleep(max(0.0, begun + CYCLE_S - time.monotonic()))
