"""The load of a run in the record's words: samples a query, rates offered and served, queueing apart from service."""

from edgemeter.agent import records
from edgemeter.agent.engine import statistics
from edgemeter.agent.engine.scenarios import batching, poisson
from edgemeter.agent.engine.scenarios.timing import Timed
from edgemeter.agent.engine.suites import Case


def load(case: Case, queries: batching.Shape, timed: Timed) -> records.Load:
    """Return what was asked of the model, and how much of it was done."""
    return told(timed, queries.samples, queries.calls, case.rate_per_s)


def told(timed: Timed, samples_per_query: int, calls_per_query: int, rate_per_s: float | None) -> records.Load:
    """Return what `load` returns, from what a record holds."""
    served = int(timed.latency_ns.size)
    part = records.Load(samples_per_query=samples_per_query, calls_per_query=calls_per_query, samples=served * samples_per_query)
    if timed.arrivals_ns is None:
        return part
    queueing_ns = timed.starts_ns - timed.arrivals_ns
    busy = poisson.utilisation_ratio(timed)
    return records.Load(
        samples_per_query=part.samples_per_query,
        calls_per_query=part.calls_per_query,
        samples=part.samples,
        target_per_s=rate_per_s,
        achieved_per_s=served * 1e9 / max(timed.end_ns - timed.begin_ns, 1),
        utilisation_ratio=busy,
        is_sustained=busy is not None and busy < 1 and timed.unserved == 0,
        unserved=timed.unserved,
        queueing=statistics.stage(queueing_ns),
        service=statistics.stage(timed.latency_ns - queueing_ns),
    )
