"""One query after the other, each begun when the last is done: single_stream, and offline with its batches.

Source: MLPerf Inference, SingleStream and Offline. Of offline throughput counts: samples over the whole window, since copying a batch in is
part of the work there. Pauses between queries, where the plan has them, are in no latency, and throughput leaves them out.
"""

import random
from collections.abc import Callable

from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection

# Of the timed part, for pauses.
SHARE = 0.005
# More pauses than this tell little more; fewer tell little at all, so that long queries get shorter pauses.
MOST_PAUSES, FEWEST_PAUSES = 100, 8
NEVER_NS = 2**63
# A run goes on until so many more queries have failed than were answered.
GIVE_UP_FAILURES = 10


class Pauses:
    """The random pauses of a timed part that is expected to take `seconds` from now; none where the plan has none.

    A sensor that looks at the power for a moment, by a clock of its own, sees the same part of each query where queries come in step with
    it. After a pause that is evenly distributed over the length of a query the sensor sees any part of the next ones with equal
    probability: what it shows between two pauses is then one of many independent draws, whose scatter tells how well their mean is known.

    They take about half a percent of the timed part, or less. A pause waits without sleeping: the clocks of the processor and its caches
    stay as they are, and the next query is no slower for it. `due_ns` is the moment from which on the next pause is due.
    """

    def __init__(self, plan: TimingPlan, seconds: float, clock: Callable[[], int]) -> None:
        timed_ns = seconds * 1e9
        self._longest_ns = min(plan.expected_ns, 2 * SHARE * timed_ns / FEWEST_PAUSES)
        self._spacing_ns = int(max(self._longest_ns / 2 / SHARE, timed_ns / MOST_PAUSES)) if plan.pauses else NEVER_NS
        self._clock = clock
        self._draw = random.Random(plan.seed)  # noqa: S311 - a published, repeatable order is wanted
        self.due_ns = clock() + self._spacing_ns

    def wait(self) -> tuple[int, int]:
        """Pause, and return when."""
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
    """Run queries one after the other until both `queries` and `seconds` are reached.

    After a query that failed comes the next, once the server's time to wait is over, which counts towards nothing. The number of those
    that were asked, failed ones too, is a multiple of `pass_queries`.

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
