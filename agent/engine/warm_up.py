"""The warm-up: queries that are not counted, until the latency has settled."""

import statistics
from dataclasses import dataclass

from edgemeter.agent.engine.garbage import no_collection
from edgemeter.agent.engine.scenarios.timing import Subject
from edgemeter.agent.engine.steadiness import has_settled, looks_settled

# The first look comes after so many queries and this time: clocks take tens of milliseconds to rise. The next come after a quarter more.
FIRST_LOOK = 64
SHORTEST_S = 0.5
GROWTH = 1.25
LEVEL_QUERIES = 32


@dataclass(frozen=True, slots=True)
class Warmed:
    """What the warm-up saw; `median_ns` is that of its last queries."""

    queries: int
    duration_ns: int
    steady: bool
    median_ns: int


def warm_up(subject: Subject, limit_s: float) -> Warmed:
    """Run queries until they have settled (`steadiness`), for `limit_s` at most, and return what was seen.

    Where the limit ends it, what there is must at least look settled.
    """
    clock, bind, inputs = subject.clock, subject.bind, subject.inputs
    durations: list[int] = []
    begin = clock()
    due = FIRST_LOOK
    settled = False
    with no_collection():
        while not settled and (clock() - begin < limit_s * 1e9 or len(durations) < 2):
            call = bind(inputs[len(durations) % len(inputs)])
            start = clock()
            call()
            end = clock()
            durations.append(end - start)
            if len(durations) >= due and end - begin >= min(SHORTEST_S, limit_s) * 1e9:
                settled = has_settled(durations)
                due = int(len(durations) * GROWTH)
    return Warmed(len(durations), clock() - begin, settled or looks_settled(durations), int(statistics.median(durations[-LEVEL_QUERIES:])))
