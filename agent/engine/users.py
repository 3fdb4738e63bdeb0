"""A closed loop of several users of a server.

Each user sends the next query when the answer to the last one is complete.

    user 0   |ramp-up|  q0  |   q2   |  q5  |
    user 1   |ramp-up |  q1   |  q3 | q4 |   q6    |
                      ^ rates from here  to ^ here

All users begin at once, so that their first prompts wait for each other as later ones do not. The
first query of each of several users is therefore ramp-up, and counts for the energy only. Users
take queries until both the number of answers and the time are reached. Rates are taken from the end
of the ramp-up until the first user finds no query left.
"""

import threading
from collections.abc import Sequence

from edgemeter.agent.engine.closed_loop import GIVE_UP_FAILURES
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection

START_TIMEOUT_S = 60.0
# With fewer queries for each user, the tail would be a large part of the time.
FEWEST_A_USER = 8


def seconds(plan: TimingPlan) -> float:
    """Return the expected duration.

    The plan's `expected_ns` is that of a query among those of other users.
    """
    users, query_s = plan.users or 1, plan.expected_ns / 1e9
    queries = plan.whole(max(plan.queries, FEWEST_A_USER * users), query_s / users)
    return max(plan.seconds, -(-queries // users) * query_s) + (query_s if users > 1 else 0.0)


def run(watch: Stopwatch, plan: TimingPlan) -> TimedQueries:
    """Run the queries of the plan's users, each of whom has one at a time."""
    users = plan.users or 1
    ramp_up = [watch.subject.warm_up_number() for _ in range(users)] if users > 1 else []
    begin_ns = ask_users(
        watch,
        users,
        max(plan.queries, FEWEST_A_USER * users),
        plan.seconds,
        ramp_up=ramp_up,
        pass_queries=plan.pass_queries,
    )
    return watch.timed(begin_ns, overlap=True, users=users)


def ask_users(  # noqa: C901 - two closures over the same counts
    watch: Stopwatch,
    users: int,
    queries: int,
    timed_s: float = 0.0,
    *,
    is_warm_up: bool = False,
    ramp_up: Sequence[int] = (),
    pass_queries: int = 1,
) -> int:
    """Ask queries in a thread for each user, and return the beginning, monotonic ns.

    It ends when `queries` have started and `timed_s` has passed.

    Failed queries do not count, and the loop ends if most fail. Each user asks a query of `ramp_up`
    first: the time counts from the end of all of these, and at least half of the queries start
    after it. The number of queries is a multiple of `pass_queries`.

    Raises:
        EdgemeterError: a query raised it; the users end after their current queries.
    """
    # Other runs need no pool (1 MB).
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    lock, gate, stop = threading.Lock(), threading.Barrier(users), threading.Event()
    begins_ns: list[int] = []
    ready_ns: list[int] = []
    early: list[int] = []
    begun = failed = 0

    def following() -> int | None:
        """Return the number of the next query; None if there is none left."""
        nonlocal begun
        with lock:
            counted = begun - failed
            are_enough = (
                len(ready_ns) == users
                and counted >= max(queries, early[-1] + queries // 2)
                and begun % pass_queries == 0
            )
            gives_up = failed > counted + GIVE_UP_FAILURES * users
            if (
                stop.is_set()
                or gives_up
                or (are_enough and watch.clock() >= ready_ns[-1] + timed_s * 1e9)
            ):
                return None
            begun += 1
            return watch.subject.warm_up_number() if is_warm_up else begun - 1

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
            if ramp_up:
                ask(ramp_up[user], user)
            with lock:
                ready_ns.append(watch.clock())
                early.append(begun - failed)
            while (query := following()) is not None:
                if not ask(query, user):
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
