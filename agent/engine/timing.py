"""The timed part of a run, and the warm-up before it. Between the two clock reads stands nothing but the runtime's own call."""

import gc
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bind = Callable[[Sequence[Array]], Callable[[], object]]
Clock = Callable[[], int]

# The warm-up has settled when the medians of two neighbouring blocks of this many queries agree within this ratio.
BLOCK = 16
SETTLED_RATIO = 0.02
# Queries drawn ahead (uniformly, with replacement); the draw repeats after them.
DRAWN = 4096
KEPT_OUTPUTS = 8


@dataclass(frozen=True, slots=True)
class Timed:
    """The timed queries: start and duration of each, monotonic ns, int64 [n]; `kept` holds the outputs of a few, by input index."""

    starts_ns: NDArray[np.int64]
    latency_ns: NDArray[np.int64]
    kept: dict[int, list[Array]]

    @property
    def end_ns(self) -> int:
        """Return when the last query ended."""
        return int(self.starts_ns[-1] + self.latency_ns[-1])


@dataclass(frozen=True, slots=True)
class Warmed:
    """What the warm-up saw."""

    queries: int
    duration_ns: int
    steady: bool
    median_ns: int


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's cyclic garbage collector off: it would run inside a query."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def warm_up(bind: Bind, inputs: Sequence[Sequence[Array]], limit_s: float, clock: Clock = time.monotonic_ns) -> Warmed:
    """Run queries until the running median has settled, for `limit_s` at most, and return what was seen."""
    durations: list[int] = []
    begin = clock()
    settled = False
    with no_collection():
        while not settled and (clock() - begin < limit_s * 1e9 or len(durations) < 2):
            call = bind(inputs[len(durations) % len(inputs)])
            start = clock()
            call()
            durations.append(clock() - start)
            settled = len(durations) >= 2 * BLOCK and len(durations) % BLOCK == 0 and _agree(durations[-2 * BLOCK :])
    # A model too slow for two blocks within the limit is judged by the two halves of what there is.
    steady = settled or (4 <= len(durations) < 2 * BLOCK and _agree(durations))
    return Warmed(len(durations), clock() - begin, steady, int(statistics.median(durations[-BLOCK:])))


def _agree(durations: list[int]) -> bool:
    half = len(durations) // 2
    before, after = statistics.median(durations[:half]), statistics.median(durations[half:])
    return abs(after - before) <= SETTLED_RATIO * before


def single_stream(
    bind: Bind,
    outputs: Callable[[], list[Array]],
    inputs: Sequence[Sequence[Array]],
    *,
    queries: int,
    seconds: float,
    expected_ns: int,
    seed: int,
    clock: Clock = time.monotonic_ns,
) -> Timed:
    """Run one query after the other until both `queries` and `seconds` are reached, and return every duration.

    Inputs are drawn at random with replacement (Mersenne Twister, `seed`) and copied to the runtime outside the clock.
    `expected_ns`, the latency seen in the warm-up, sizes the arrays and spreads the kept outputs.
    """
    draw = random.Random(seed)  # noqa: S311 - a published, repeatable order is wanted
    order = [draw.randrange(len(inputs)) for _ in range(DRAWN)]
    capacity = max(queries, int(seconds * 1e9 / max(expected_ns, 1))) * 5 // 4 + 64
    starts, ends = array("q", bytes(8 * capacity)), array("q", bytes(8 * capacity))
    every = max(1, capacity * 4 // 5 // KEPT_OUTPUTS)
    kept: dict[int, list[Array]] = {}
    done = 0
    with no_collection():
        deadline = clock() + int(seconds * 1e9)
        while True:
            item = order[done % DRAWN]
            call = bind(inputs[item])
            start = clock()
            call()
            end = clock()
            starts[done] = start
            ends[done] = end
            done += 1
            if (done - 1) % every == 0 and len(kept) < KEPT_OUTPUTS and item not in kept:
                kept[item] = outputs()
            if done >= queries and end >= deadline:
                break
            if done == len(starts):
                starts.extend(array("q", bytes(8 * capacity)))
                ends.extend(array("q", bytes(8 * capacity)))
    begin = np.frombuffer(starts, dtype=np.int64)[:done].copy()
    return Timed(begin, np.frombuffer(ends, dtype=np.int64)[:done] - begin, kept)
