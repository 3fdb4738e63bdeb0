"""How fast this machine copies memory at most: measured, as the fastest of several passes, by all cores asked for.

A roof is what the machine can do, so the fastest pass counts. Each is measured twice, apart in time, and refused if the two differ: other
work disturbed one.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from edgemeter.agent.base.figures import plain_digits

# Far beyond the caches of boards, within the memory of small ones; of a copy half of it is read, half written.
LEAST_BYTES = 128_000_000
PASSES = 9
# Two measurements of one part of the roof agree if the lower is this share of the higher.
STEADY_RATIO = 0.85


def copy_gbyte_per_s(threads: int) -> float:
    """Return how fast this many threads copy memory, GB/s, read and written bytes together; the fastest of 9."""
    source, target = np.ones(LEAST_BYTES // 2, np.uint8), np.empty(LEAST_BYTES // 2, np.uint8)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    return _passed_gbyte_per_s(lambda part: np.copyto(part[1], part[0]), parts, LEAST_BYTES)


def _passed_gbyte_per_s(work: Callable[..., object], parts: Sequence[object], size_bytes: int) -> float:
    durations = []
    with ThreadPoolExecutor(len(parts)) as pool:
        for _ in range(PASSES):
            begin = time.monotonic_ns()
            list(pool.map(work, parts))
            durations.append(time.monotonic_ns() - begin)
    # Bytes by ns are GB by s.
    return size_bytes / min(durations)


def unsteady(speeds: Sequence[float], unit: str) -> list[str]:
    """Return why a part of the roof is refused, if measurements of it differ."""
    if not speeds or min(speeds) >= STEADY_RATIO * max(speeds):
        return []
    return [f"{' and '.join(plain_digits(speed) for speed in speeds)} {unit}: other work disturbed it, so there is no roof: try again"]
