"""How long to wait before the next try to connect: longer with every failure, and anywhere below that.

Agents that lost the same broker at the same moment would all come back at the same moment. A wait drawn from the whole interval spreads
them over it; one that is only shaken by some percent does not.
"""

import random
from collections.abc import Callable

SHORTEST_S = 0.2
FIRST_S = 5.0
LONGEST_S = 60.0


def _draw(low: float, high: float) -> float:
    return random.uniform(low, high)  # noqa: S311 - spreads tries over time, no secret


def wait_s(failures: int, draw: Callable[[float, float], float] = _draw) -> float:
    """Return how long to wait after so many failures in a row (0: the connection was there and broke)."""
    return draw(SHORTEST_S, min(LONGEST_S, FIRST_S * 2.0 ** min(failures, 10)))
