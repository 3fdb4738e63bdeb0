"""The wait before a client tries a server again: longer after each failure, and never in step."""

import random
from collections.abc import Callable

SHORTEST_BACKOFF_S = 0.2
FIRST_BACKOFF_S = 5.0
LONGEST_BACKOFF_S = 60.0


def backoff_s(failures: int, draw: Callable[[float, float], float] = random.uniform) -> float:
    """Return the wait before the next attempt after `failures` in a row.

    0 failures: an established connection broke.
    """
    return draw(
        SHORTEST_BACKOFF_S, min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures, 10))
    )
