"""Scenario concurrent: a closed loop of several users of a server, each of whom sends the next query when the last answer is complete.

All users begin at once. Each takes the next query until both the number of queries and the time are reached; then the first of them has
nothing left, while the others still wait for their last answers. That tail is stated (`load.tail_ms`). Latencies are those of all queries.
Rates are over the time before the tail, in which every user was being served: tokens count by their moments, and a query that the tail cuts
counts by the share of its time before it. A model in the agent's own process answers one call after the other, and has no users.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine.scenarios import timing

# Of fewer queries a user the tail would be a large part.
FEWEST_A_USER = 8
START_TIMEOUT_S = 60.0

T = TypeVar("T")


def queries_in_all(queries: int, users: int) -> int:
    """Return how many queries are timed at least where a case asks for `queries`."""
    return max(queries, FEWEST_A_USER * users)


def run(_: timing.TimingSubject, plan: timing.TimingPlan) -> timing.TimedQueries:
    """Refuse: a runtime takes one call after the other.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(f"a model in this process has no {plan.users or 'several'} users: leave concurrency out, or measure a server")


def seconds(plan: timing.TimingPlan) -> float:
    """Return the expected duration; `expected_ns` is that of a query beside the others."""
    return max(plan.seconds, -(-queries_in_all(plan.queries, plan.users or 1) // (plan.users or 1)) * plan.expected_ns / 1e9)


def serve(users: int, queries: int, timed_s: float, answer: Callable[[int, int], T]) -> tuple[int, list[T]]:
    """Call `answer(number, user)` in a thread for each user until `queries` were begun and `timed_s` is over; return begin and answers.

    The beginning is a moment of the monotonic clock, ns; the answers are in the order in which their queries began.

    Raises:
        EdgemeterError: an answer did; each user ends with the query that is under way.
    """
    lock, gate, stop = threading.Lock(), threading.Barrier(users), threading.Event()
    answers: dict[int, T] = {}
    begins_ns: list[int] = []
    begun: list[int] = []

    def following() -> int | None:
        """Return the number of the next query, None where there is none left."""
        with lock:
            if stop.is_set() or (len(begun) >= queries and time.monotonic_ns() >= begins_ns[0] + timed_s * 1e9):
                return None
            begun.append(len(begun))
            return begun[-1]

    def use(user: int) -> None:
        gate.wait(START_TIMEOUT_S)
        with lock:
            begins_ns.append(time.monotonic_ns())
        try:
            while (number := following()) is not None:
                answers[number] = answer(number, user)
        except BaseException:
            stop.set()
            raise

    with timing.no_collection(), ThreadPoolExecutor(users) as pool:
        futures = [pool.submit(use, user) for user in range(users)]
    for future in futures:
        future.result()
    return min(begins_ns), [answers[number] for number in sorted(answers)]


def shares_before_tail(timed: timing.TimedQueries) -> NDArray[np.float64]:
    """Return which share of each query's time lies before the tail, 0..1 [n]."""
    return np.clip((timed.busy_end_ns - timed.starts_ns) / np.maximum(timed.latency_ns, 1), 0.0, 1.0)
