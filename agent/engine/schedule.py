"""Runs queries by a schedule, whether the model is ready or not.

These are poisson (`scenarios/poisson`) and steady (`scenarios/steady`).

A model in this process answers one query after the other; a server answers several at the same
time.
"""

from collections.abc import Iterable

import numpy as np

from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine.scenarios import poisson, steady
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection
from edgemeter.agent.engine.subject import ARRIVAL

LEAD_NS = 1_000_000
# A run that cannot keep the rate ends after twice the length of the schedule, but a median needs 11
# queries.
GIVE_UP_RATIO = 2
FEWEST = 11
# Frames that wait longer than this after the schedule, or than the deadline, are dropped.
DRAIN_NS = 1_000_000_000
# The most threads and connections, as many as a closed loop may have users.
MOST_IN_FLIGHT = 256


def run_poisson(watch: Stopwatch, plan: TimingPlan) -> TimedQueries:
    """Run the queries of the schedule, and return those that were served.

    Their latencies are from their scheduled arrivals.
    """
    due_ns = poisson.schedule_ns(plan)
    if watch.subject.is_concurrent:
        begin_ns, begun = side_by_side(watch, due_ns.tolist())
    else:
        begin_ns, begun = _in_turn(
            watch, due_ns, GIVE_UP_RATIO * int(due_ns[-1]), FEWEST, takes_newest=False
        )
    return watch.timed(begin_ns, unserved=due_ns.size - begun, overlap=watch.subject.is_concurrent)


def run_steady(watch: Stopwatch, plan: TimingPlan) -> TimedQueries:
    """Run the frames of the schedule, and return those that were answered.

    Their latencies are from their arrivals.
    """
    schedule = steady.schedule_of(plan)
    give_up_ns = schedule.length_ns + max(DRAIN_NS, schedule.deadline_ns)
    begin_ns, _ = _in_turn(watch, schedule.arrivals_ns(), give_up_ns, 1, takes_newest=True)
    end_ns = begin_ns + schedule.length_ns
    # The last frame has its share of idle time.
    if (rest_ns := end_ns - watch.clock()) > 0:
        watch.sleep(rest_ns / 1e9)
    return watch.timed(
        begin_ns, end_ns, unserved=schedule.frames - watch.answered, schedule=schedule
    )


def _in_turn(
    watch: Stopwatch, due_ns: Times, give_up_ns: int, fewest: int, *, takes_newest: bool
) -> tuple[int, int]:
    """Ask the query of each arrival after the one before has ended.

    Returns the beginning, and the number of queries.

    With `takes_newest`, all but the newest of the waiting arrivals are dropped. After `give_up_ns`
    no query starts, except to reach the `fewest`.
    """
    number = begun = 0
    with no_collection():
        begin_ns = watch.clock() + LEAD_NS
        while number < due_ns.size:
            arrival_ns = begin_ns + int(due_ns[number])
            if watch.ask(number, arrival_ns=arrival_ns) is not None:
                watch.wait_until(arrival_ns)
            begun += 1
            passed_ns = watch.clock() - begin_ns
            if passed_ns > give_up_ns and begun >= fewest:
                break
            number += 1
            if takes_newest:
                number = max(number, int(np.searchsorted(due_ns, passed_ns, side="right")) - 1)
    return begin_ns, begun


def side_by_side(
    watch: Stopwatch, offsets_ns: Iterable[int], limit: int = MOST_IN_FLIGHT
) -> tuple[int, int]:
    """Ask a query in a thread at each of these moments after the beginning.

    Returns the beginning, and the number of queries.

    An arrival is dropped while `limit` queries are in flight.

    Raises:
        EdgemeterError: a query raised it; later arrivals are left out.
    """
    # Other runs need no pool (1 MB).
    from concurrent.futures import Future, ThreadPoolExecutor, wait  # noqa: PLC0415

    in_flight: set[Future[object]] = set()
    begun = 0
    with no_collection(), ThreadPoolExecutor(limit) as pool:
        begin_ns = watch.clock() + LEAD_NS
        for number, offset_ns in enumerate(offsets_ns):
            # Spinning would take the interpreter from the threads that read the clock.
            watch.sleep(max(0, begin_ns + offset_ns - watch.clock()) / 1e9)
            ended, in_flight = wait(in_flight, timeout=0)
            for future in ended:
                future.result()
            if len(in_flight) < limit:
                in_flight.add(pool.submit(watch.ask, number, ARRIVAL, begin_ns + offset_ns))
                begun += 1
    for future in in_flight:
        future.result()
    return begin_ns, begun
