"""Runs one query after the other, each started when the last is complete.

These are single_stream, and offline with its batches.

Source: MLPerf Inference, SingleStream and Offline. The throughput of offline is over the whole
window, because copying a batch in is part of the work there. Random pauses between queries are in
no latency and no throughput.
"""

import random
from collections.abc import Callable

from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection

# The share of the timed part for pauses.
SHARE = 0.005
# Few pauses show nothing, so long queries get shorter pauses; more than the most show little more.
MOST_PAUSES, FEWEST_PAUSES = 100, 8
NEVER_NS = 2**63
# A run ends when the failed queries exceed the answered ones by this number.
GIVE_UP_FAILURES = 10


class Pauses:
    """The random pauses of a timed part, if the plan has pauses.

    The part is expected to take `seconds` from now.

    A sensor with its own clock may see the same part of each query, if queries are in step with it.
    After a pause of a random length up to that of a query, it sees any part with equal probability.
    So the readings between two pauses are one of many independent draws, whose scatter shows the
    uncertainty of their mean.

    Pauses take at most about half a percent of the timed part. A pause spins, because sleeping
    would change clocks and caches and make the next query slower. `due_ns` is the earliest moment
    of the next pause.
    """

    def __init__(self, plan: TimingPlan, seconds: float, clock: Callable[[], int]) -> None:
        timed_ns = seconds * 1e9
        self._longest_ns = min(plan.expected_ns, 2 * SHARE * timed_ns / FEWEST_PAUSES)
        self._spacing_ns = (
            int(max(self._longest_ns / 2 / SHARE, timed_ns / MOST_PAUSES))
            if plan.pauses
            else NEVER_NS
        )
        self._clock = clock
        # A published, repeatable order is wanted.
        self._draw = random.Random(plan.seed)  # noqa: S311
        self.due_ns = clock() + self._spacing_ns

    def wait(self) -> tuple[int, int]:
        """Pause, and return beginning and end."""
        begin_ns = end_ns = self._clock()
        until_ns = begin_ns + self._draw.random() * self._longest_ns
        while end_ns < until_ns:
            end_ns = self._clock()
        self.due_ns = end_ns + self._spacing_ns
        return begin_ns, end_ns


def seconds(plan: TimingPlan) -> float:
    """Return the expected duration."""
    query_s = plan.expected_ns / 1e9
    return max(plan.seconds, plan.whole(plan.queries, query_s) * query_s)


def run(watch: Stopwatch, plan: TimingPlan) -> TimedQueries:
    """Run queries sequentially until both `queries` and `seconds` of the plan are reached.

    After a failed query comes a pause if the server asks for one, which does not count. The number
    of queries, with failed ones, is a multiple of `pass_queries`.

    Raises:
        MeasurementError: most queries fail.
    """
    clock, ask = watch.clock, watch.ask
    pauses = Pauses(plan, seconds(plan), clock)
    number = answered = 0
    with no_collection():
        begin_ns = now_ns = clock()
        deadline_ns = begin_ns + int(plan.seconds * 1e9)
        while answered < plan.queries or number % plan.pass_queries or now_ns < deadline_ns:
            if now_ns >= pauses.due_ns:
                watch.pauses_ns.append(pauses.wait())
            error = ask(number)
            number += 1
            if error is None:
                answered += 1
            elif number > 2 * answered + GIVE_UP_FAILURES:
                raise watch.give_up()
            else:
                deadline_ns += watch.pause_after(error)
            now_ns = clock()
            if not answered:
                # The timed part begins with the first query that is answered.
                begin_ns = now_ns
                watch.pauses_ns.clear()
    return watch.timed(begin_ns)
