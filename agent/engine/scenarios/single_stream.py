"""Scenario single_stream: one query after the other, the next begins when the last is done. Source: MLPerf Inference, SingleStream."""

from edgemeter.agent.engine.garbage import no_collection
from edgemeter.agent.engine.scenarios.timing import DRAWN, Kept, Moments, Plan, Subject, Timed


def seconds(plan: Plan) -> float:
    """Return about how long it will take."""
    return max(plan.seconds, plan.queries * plan.calls * plan.expected_ns / 1e9)


def run(subject: Subject, plan: Plan) -> Timed:
    """Run queries of one call each and return every duration.

    Inputs are drawn at random with replacement and copied to the runtime outside the clock.
    """
    order = plan.drawn(len(subject.inputs))
    capacity = plan.capacity()
    kept = Kept(subject.outputs, capacity * 4 // 5)
    log_starts, log_ends = Moments(capacity), Moments(capacity)
    starts, ends = log_starts.values, log_ends.values
    bind, inputs, clock = subject.bind, subject.inputs, subject.clock
    done = 0
    with no_collection():
        begin = clock()
        deadline = begin + int(plan.seconds * 1e9)
        while True:
            item = order[done % DRAWN]
            call = bind(inputs[item])
            start = clock()
            call()
            end = clock()
            starts[done] = start
            ends[done] = end
            if kept.wants(done, item):
                kept.keep(item)
            done += 1
            if done >= plan.queries and end >= deadline:
                break
            if done == len(starts):
                log_starts.grow()
                log_ends.grow()
    begins, finished = log_starts.taken(done), log_ends.taken(done)
    return Timed(begins, finished - begins, kept.by_input, begin, int(finished[-1]))
