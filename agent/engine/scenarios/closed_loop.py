"""Closed-loop scenarios: the next query begins when the last is done. Source: MLPerf Inference, SingleStream and Offline.

single_stream: one query after the other, one call each.

offline: all samples are ready, batch after batch; what counts is throughput: samples over the whole window, from before the first batch is
copied in to the end of the last, since copying is part of the work here. `queries` of the mode are samples; the latencies are those of
whole batches.

Pauses between queries, where the plan has them, are in no latency, and throughput leaves them out.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine.scenarios.timing import DRAWN, KeptOutputs, Moments, TimedQueries, TimingPlan, TimingSubject, no_collection

# The number of batches that a median needs (MLPerf's early stopping).
FEWEST_BATCHES = 11
# Of the timed part, for pauses.
SHARE = 0.005
# More pauses than this tell little more; fewer tell little at all, so that long queries get shorter pauses.
MOST_PAUSES, FEWEST_PAUSES = 100, 8
NEVER_NS = 2**63


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
        self._moments: list[int] = []
        self.due_ns = clock() + self._spacing_ns

    def wait(self) -> None:
        """Pause, and note when."""
        begin_ns = end_ns = self._clock()
        until_ns = begin_ns + self._draw.random() * self._longest_ns
        while end_ns < until_ns:
            end_ns = self._clock()
        self._moments += (begin_ns, end_ns)
        self.due_ns = end_ns + self._spacing_ns

    def taken(self) -> Times:
        """Return begin and end of each pause, monotonic ns, int64 [n, 2]."""
        return np.array(self._moments, dtype=np.int64).reshape(-1, 2)


def single_stream_seconds(plan: TimingPlan) -> float:
    """Return the expected duration."""
    query_s = plan.expected_ns / 1e9
    return max(plan.seconds, plan.whole(plan.queries, query_s) * query_s)


def run_single_stream(subject: TimingSubject, plan: TimingPlan) -> TimedQueries:
    """Run queries of one call each and return every duration.

    Inputs are drawn at random with replacement and copied to the runtime outside the clock.
    """
    order = plan.drawn(len(subject.inputs))
    capacity = plan.capacity()
    kept_outputs = KeptOutputs(subject.outputs, capacity * 4 // 5)
    log_starts, log_ends = Moments(capacity), Moments(capacity)
    starts, ends = log_starts.values, log_ends.values
    bind, inputs, clock = subject.bind, subject.inputs, subject.clock
    pauses = Pauses(plan, single_stream_seconds(plan), clock)
    count = 0
    with no_collection():
        begin = clock()
        deadline = begin + int(plan.seconds * 1e9)
        while True:
            item = order[count % DRAWN]
            call = bind(inputs[item])
            start = clock()
            call()
            end = clock()
            starts[count] = start
            ends[count] = end
            if kept_outputs.wants(count, item):
                kept_outputs.keep(item)
            count += 1
            if count >= plan.queries and end >= deadline:
                break
            if count == len(starts):
                log_starts.grow()
                log_ends.grow()
            if end >= pauses.due_ns:
                pauses.wait()
    begins, finished = log_starts.taken(count), log_ends.taken(count)
    return TimedQueries(begins, finished - begins, kept_outputs.by_input, begin, int(finished[-1]), pauses_ns=pauses.taken())


def offline_seconds(plan: TimingPlan) -> float:
    """Return the expected duration."""
    return single_stream_seconds(_in_batches(plan))


def run_offline(subject: TimingSubject, plan: TimingPlan) -> TimedQueries:
    """Run batches until both the samples and the time are reached, and return every duration."""
    return run_single_stream(subject, _in_batches(plan))


def _in_batches(plan: TimingPlan) -> TimingPlan:
    return replace(plan, queries=max(FEWEST_BATCHES, -(-plan.queries // plan.batch)))
