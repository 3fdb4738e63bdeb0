"""How fast this machine reads and multiplies at most: measured, as the fastest of several passes, by all cores asked for.

A roof is what the machine can do, so the fastest pass counts. Each is measured twice, apart in time, and refused if the two differ: other
work disturbed one.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from edgemeter.agent.base.figures import plain_digits
from edgemeter.agent.machine.bounds import DISTURBED

# Far beyond the caches of boards, within the memory of small ones.
LEAST_BYTES = 128_000_000
# Of an array that is so many times as large as the caches, they keep at most this part.
CACHES = 4
FREE_SHARE = 4
PASSES = 9
PRODUCT_SIZE, LEAST_PRODUCTS, PRODUCTS_S = 768, 3, 0.25
# Two measurements of one part of the roof agree if the lower is this share of the higher.
STEADY_RATIO = 0.85


def read_gbyte_per_s(threads: int, size_bytes: int) -> float:
    """Return how fast this many threads read an array of this size, GB/s; the fastest of 9."""
    # Written once: untouched pages would all be the kernel's one page of zeros.
    array = np.ones(size_bytes // 8, np.uint64)
    return _passed_gbyte_per_s(np.bitwise_or.reduce, np.array_split(array, threads), array.nbytes)


def _passed_gbyte_per_s(work: Callable[..., object], parts: Sequence[object], size_bytes: int) -> float:
    durations = []
    with ThreadPoolExecutor(len(parts)) as pool:
        for _ in range(PASSES):
            begin = time.monotonic_ns()
            list(pool.map(work, parts))
            durations.append(time.monotonic_ns() - begin)
    # Bytes by ns are GB by s.
    return size_bytes / min(durations)


def read_bytes(cache_mb: float | None, available_mb: float | None) -> int | None:
    """Return how large an array has to be for its reading to be that of memory; None where so much memory is not free."""
    size_bytes = max(2 * LEAST_BYTES, round(CACHES * (cache_mb or 0.0) * 1e6))
    return None if available_mb is not None and size_bytes > available_mb * 1e6 / FREE_SHARE else size_bytes


def product_gop_per_s(multiply: Callable[[], object], operations: int) -> float:
    """Return the rate of the fastest product of matrices, 10^9 operations/s; the library has its own threads."""
    fastest_ns, begin = 1 << 62, time.monotonic_ns()
    products = 0
    while products < LEAST_PRODUCTS or time.monotonic_ns() - begin < PRODUCTS_S * 1e9:
        before = time.monotonic_ns()
        multiply()
        fastest_ns, products = min(fastest_ns, time.monotonic_ns() - before), products + 1
    return operations / fastest_ns


def float32_gop_per_s() -> float:
    """Return the rate of numpy's products of float32 matrices, 10^9 operations/s: a multiplication and an addition are two."""
    matrix = np.random.default_rng(0).random((PRODUCT_SIZE, PRODUCT_SIZE), np.float32)
    target = np.empty_like(matrix)
    return product_gop_per_s(lambda: np.matmul(matrix, matrix, out=target), 2 * PRODUCT_SIZE**3)


def unsteady(speeds: Sequence[float], unit: str) -> list[str]:
    """Return why a part of the roof is refused, if measurements of it differ."""
    if not speeds or min(speeds) >= STEADY_RATIO * max(speeds):
        return []
    return [f"{' and '.join(plain_digits(speed) for speed in speeds)} {unit}: {DISTURBED}, so there is no roof: try again"]
