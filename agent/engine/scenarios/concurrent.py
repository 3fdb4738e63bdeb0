"""Scenario poisson for servers: users arrive by the same schedule, and each is served beside the others, on a thread of its own.

Nobody waits for another here: an arrival that finds `MOST_IN_FLIGHT` queries unanswered is left out and counted, never put off. What a
server puts in a queue of its own is part of the answer's time. How many it can serve at once is unknown, so there is no utilisation: the
rate was not kept where a backlog was left at the end of the schedule.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from edgemeter.agent.engine.scenarios.timing import TimedQueries, no_collection

MOST_IN_FLIGHT = 64
LEAD_NS = 1_000_000
# A backlog of this share of the schedule is a rate 10% above what is served. Of few queries chance leaves as much: by simulation of 1, 4
# and 16 places at 80% utilisation, 5% of runs of 64 queries exceed 0.8 / sqrt(64), none of 256 a tenth; at 150% almost all do.
BACKLOG_RATIO = 0.1
CHANCE_RATIO = 0.8

T = TypeVar("T")


def serve(offsets_ns: Iterable[int], answer: Callable[[int, int], T], limit: int = MOST_IN_FLIGHT) -> tuple[int, list[T]]:
    """Call `answer(place, arrival_ns)` at each arrival, in threads, `limit` at once; return the beginning (monotonic ns) and the answers.

    `offsets_ns` count from the beginning. The answers are in the order of arrival; those that found no room have none.

    Raises:
        EdgemeterError: an answer did; the arrivals after it are left out.
    """
    answers: list[Future[T]] = []
    in_flight: list[Future[T]] = []
    with no_collection(), ThreadPoolExecutor(limit) as pool:
        begin_ns = time.monotonic_ns() + LEAD_NS
        for index, offset_ns in enumerate(offsets_ns):
            # Not spun: that would take the interpreter from the threads that stamp.
            time.sleep(max(0, begin_ns + offset_ns - time.monotonic_ns()) / 1e9)
            for future in in_flight:
                if future.done():
                    future.result()
            in_flight = [future for future in in_flight if not future.done()]
            if len(in_flight) < limit:
                in_flight.append(pool.submit(answer, index, begin_ns + offset_ns))
                answers.append(in_flight[-1])
    return begin_ns, [future.result() for future in answers]


def in_flight_max(timed: TimedQueries) -> int:
    """Return how many queries were being answered at once at most; one that ends as another starts is over."""
    arrivals_ns = timed.starts_ns if timed.arrivals_ns is None else timed.arrivals_ns
    ends_ns = np.sort(arrivals_ns + timed.latency_ns)
    starts_ns = np.sort(timed.starts_ns)
    return int((np.arange(1, starts_ns.size + 1) - np.searchsorted(ends_ns, starts_ns, side="right")).max())


def leaves_backlog(timed: TimedQueries) -> bool:
    """Return whether the last arrivals were answered later than a single query is, by more than a share of the schedule."""
    if timed.arrivals_ns is None:
        return False
    schedule_ns = int(timed.arrivals_ns[-1]) - timed.begin_ns
    late_ns = int((timed.arrivals_ns + timed.latency_ns).max()) - int(timed.arrivals_ns[-1]) - int(timed.latency_ns.min())
    return late_ns > max(BACKLOG_RATIO, CHANCE_RATIO / float(np.sqrt(timed.latency_ns.size))) * schedule_ns
