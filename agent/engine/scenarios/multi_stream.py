"""Scenario multi_stream: queries of several samples; the latency is that of the query. Source: MLPerf Inference, MultiStream.

Where the model takes them all in one batch, a query is one call. Where it does not, a query is one call a sample, one after the other,
and its latency is the sum of theirs: the clock stands while the next sample's inputs are copied, as it does in the other scenarios.
"""

from edgemeter.agent.engine.garbage import no_collection
from edgemeter.agent.engine.scenarios import single_stream
from edgemeter.agent.engine.scenarios.timing import DRAWN, Kept, Moments, Plan, Subject, Timed


def run(subject: Subject, plan: Plan) -> Timed:
    """Run queries of `plan.calls` calls each, and return the latency of every query."""
    return single_stream.run(subject, plan) if plan.calls == 1 else _one_by_one(subject, plan)


def _one_by_one(subject: Subject, plan: Plan) -> Timed:
    order = plan.drawn(len(subject.inputs))
    capacity = plan.capacity()
    kept = Kept(subject.outputs, capacity * 4 // 5)
    starts, spent = Moments(capacity), Moments(capacity)
    bind, inputs, clock = subject.bind, subject.inputs, subject.clock
    done = drawn = 0
    with no_collection():
        begin = end = clock()
        deadline = begin + int(plan.seconds * 1e9)
        while done < plan.queries or end < deadline:
            query_ns = 0
            for place in range(plan.calls):
                item = order[drawn % DRAWN]
                drawn += 1
                call = bind(inputs[item])
                start = clock()
                call()
                end = clock()
                query_ns += end - start
                if place == 0:
                    starts.values[done] = start
            spent.values[done] = query_ns
            if kept.wants(done, item):
                kept.keep(item)
            done += 1
            if done == len(spent.values):
                starts.grow()
                spent.grow()
    return Timed(starts.taken(done), spent.taken(done), kept.by_input, begin, end)
