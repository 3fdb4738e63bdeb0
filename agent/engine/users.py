"""A closed loop of several users of a server: each sends the next query when the answer to the last is complete.

All begin at once. That burst, in which prompts wait for each other as they never do later, is the ramp-up: the first query of each of
several users is in no statistic but the energy. Each then takes the next query until both the number of answers and the time are reached;
then the first of them has nothing left, while the others still wait for their last answers. Rates are over the time between ramp-up and
tail.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from edgemeter.agent.engine.closed_loop import GIVE_UP_FAILURES
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection

START_TIMEOUT_S = 60.0
# Of fewer queries a user the tail would be a large part.
FEWEST_A_USER = 8


def seconds(plan: TimingPlan) -> float:
    """Return the expected duration; `expected_ns` is that of a query beside the others."""
    users, query_s = plan.users or 1, plan.expected_ns / 1e9
    queries = plan.whole(max(plan.queries, FEWEST_A_USER * users), query_s / users)
    return max(plan.seconds, -(-queries // users) * query_s) + (query_s if users > 1 else 0.0)


def run(watch: Stopwatch, plan: TimingPlan) -> TimedQueries:
    """Run the queries of so many users, each of whom has one at a time; the first of each of several is the ramp-up."""
    users = plan.users or 1
    first = watch.subject.reserve(users) if users > 1 else None
    queries = max(plan.queries, FEWEST_A_USER * users)
    begin_ns = ask_users(watch, users, queries, plan.seconds, ramp_up_from=first, pass_queries=plan.pass_queries)
    return watch.timed(begin_ns, overlap=True, users=users)


def ask_users(  # noqa: C901 - two closures over the same counts
    watch: Stopwatch,
    users: int,
    queries: int,
    timed_s: float = 0.0,
    *,
    number_of: Callable[[int], int] = int,
    ramp_up_from: int | None = None,
    pass_queries: int = 1,
) -> int:
    """Ask queries in a thread for each user until `queries` were begun and `timed_s` is over; return the beginning, monotonic ns.

    Those that fail do not count, and most of them end the loop. With `ramp_up_from`, a number, each user asks a query before, down from
    it: the time counts from when all have, and half of the queries or more begin after it. The number of those begun is a multiple of
    `pass_queries`.

    Raises:
        EdgemeterError: a query did; each user ends with the query that is under way.
    """
    lock, gate, stop = threading.Lock(), threading.Barrier(users), threading.Event()
    begins_ns: list[int] = []
    ready_ns: list[int] = []
    early: list[int] = []
    begun = failed = 0

    def following() -> int | None:
        """Return the next query, None where there is none left."""
        nonlocal begun
        with lock:
            counted = begun - failed
            are_enough = len(ready_ns) == users and counted >= max(queries, early[-1] + queries // 2) and begun % pass_queries == 0
            gives_up = failed > counted + GIVE_UP_FAILURES * users
            if stop.is_set() or gives_up or (are_enough and watch.clock() >= ready_ns[-1] + timed_s * 1e9):
                return None
            begun += 1
            return begun - 1

    def ask(number: int, user: int) -> bool:
        error = watch.ask(number, user)
        if error is not None:
            watch.pause_after(error)
        return error is None

    def use(user: int) -> None:
        nonlocal failed
        gate.wait(START_TIMEOUT_S)
        with lock:
            begins_ns.append(watch.clock())
        try:
            if ramp_up_from is not None:
                ask(ramp_up_from - user, user)
            with lock:
                ready_ns.append(watch.clock())
                early.append(begun - failed)
            while (query := following()) is not None:
                if not ask(number_of(query), user):
                    with lock:
                        failed += 1
        except BaseException:
            stop.set()
            raise

    with no_collection(), ThreadPoolExecutor(users) as pool:
        futures = [pool.submit(use, user) for user in range(users)]
    for future in futures:
        future.result()
    return min(begins_ns)
