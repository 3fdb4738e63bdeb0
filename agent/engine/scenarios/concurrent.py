"""Scenario concurrent: a closed loop of several users of a server, each of whom sends the next query when the last answer is complete.

All users begin at once. That burst, in which prompts wait for each other as they never do later, is the ramp-up: the first query of each
of several users is in no statistic but the energy. Each then takes the next query until both the number of answers and the time are
reached; then the first of them has nothing left, while the others still wait for their last answers. Latencies are those of all queries
but the first ones. Rates are over the time between ramp-up and tail: tokens count by their moments, and a query that is cut counts by the
share of its time in between. A model in the agent's own process answers one call after the other, and has no users.
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
# A run goes on until so many more queries of each user have failed than were answered.
GIVE_UP_FAILURES = 10

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
    users, query_s = plan.users or 1, plan.expected_ns / 1e9
    queries = plan.whole(queries_in_all(plan.queries, users), query_s / users)
    return max(plan.seconds, -(-queries // users) * query_s) + (query_s if users > 1 else 0.0)


def serve(
    users: int,
    queries: int,
    timed_s: float,
    answer: Callable[[int, int], T],
    ramp_up: Callable[[int], object] | None = None,
    is_failure: Callable[[T], bool] = lambda _: False,
    pass_queries: int = 1,
) -> tuple[int, list[T]]:
    """Call `answer(number, user)` in a thread for each user until `queries` were begun and `timed_s` is over; return begin and answers.

    Those with an answer that `is_failure` do not count, and most of them end the calls.

    The beginning is a moment of the monotonic clock, ns; the answers are in the order in which their queries began. Each user calls
    `ramp_up(user)` before; the time counts from when all have, and half of the queries or more begin after it. The number of those begun
    is a multiple of `pass_queries`.

    Raises:
        EdgemeterError: an answer did; each user ends with the query that is under way.
    """
    lock, gate, stop = threading.Lock(), threading.Barrier(users), threading.Event()
    answers: dict[int, T] = {}
    begins_ns: list[int] = []
    ready_ns: list[int] = []
    begun: list[int] = []
    early: list[int] = []
    failures: list[int] = []

    def following() -> int | None:
        """Return the number of the next query, None where there is none left."""
        with lock:
            counted = len(begun) - len(failures)
            are_enough = len(ready_ns) == users and counted >= max(queries, early[-1] + queries // 2) and len(begun) % pass_queries == 0
            gives_up = len(failures) > counted + GIVE_UP_FAILURES * users
            if stop.is_set() or gives_up or (are_enough and time.monotonic_ns() >= ready_ns[-1] + timed_s * 1e9):
                return None
            begun.append(len(begun))
            return begun[-1]

    def use(user: int) -> None:
        gate.wait(START_TIMEOUT_S)
        with lock:
            begins_ns.append(time.monotonic_ns())
        try:
            if ramp_up is not None:
                ramp_up(user)
            with lock:
                ready_ns.append(time.monotonic_ns())
                early.append(len(begun) - len(failures))
            while (number := following()) is not None:
                answers[number] = answer(number, user)
                if is_failure(answers[number]):
                    failures.append(number)
        except BaseException:
            stop.set()
            raise

    with timing.no_collection(), ThreadPoolExecutor(users) as pool:
        futures = [pool.submit(use, user) for user in range(users)]
    for future in futures:
        future.result()
    return min(begins_ns), [answers[number] for number in sorted(answers)]


def shares_within(timed: timing.TimedQueries) -> NDArray[np.float64]:
    """Return which share of each query's time lies between ramp-up and tail, 0..1 [n]."""
    ends_ns = np.minimum(timed.starts_ns + timed.latency_ns, timed.busy_end_ns)
    within_ns = ends_ns - np.maximum(timed.starts_ns, timed.busy_begin_ns)
    shares: NDArray[np.float64] = np.clip(within_ns / np.maximum(timed.latency_ns, 1), 0.0, 1.0)
    return shares
