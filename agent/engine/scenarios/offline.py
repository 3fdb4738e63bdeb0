"""Scenario offline: everything lies ready, batch after batch; what counts is throughput. Source: MLPerf Inference, Offline.

Throughput is samples over the whole window, from before the first batch is copied in to the end of the last: copying is part of the work
here. `queries` of the mode are samples; the latencies are those of whole batches.
"""

from dataclasses import replace

from edgemeter.agent.engine.scenarios import single_stream
from edgemeter.agent.engine.scenarios.timing import Plan, Subject, Timed

# A median of the batches needs so many (MLPerf's early stopping).
FEWEST_BATCHES = 11


def seconds(plan: Plan) -> float:
    """Return about how long it will take."""
    return single_stream.seconds(_in_batches(plan))


def run(subject: Subject, plan: Plan) -> Timed:
    """Run batches until both the samples and the time are reached, and return every duration."""
    return single_stream.run(subject, _in_batches(plan))


def _in_batches(plan: Plan) -> Plan:
    return replace(plan, queries=max(FEWEST_BATCHES, -(-plan.queries // plan.batch)))
