"""Facts about `edgemeter.agent.engine.scenarios.poisson`."""

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios import poisson
from tests.fixtures.timing_world import TICK_NS, World, plan

MS = 1_000_000


def serve(service_ns, **changes):
    """Return what came of queries that take so long each."""
    world = World(lambda _: service_ns)
    settings = {"queries": 2000, "rate_per_s": 100.0, "expected_ns": service_ns} | changes
    return poisson.run(world.subject(clock=world.ticking), plan(**settings))


def test_arrivals_are_fixed_beforehand_and_exponential():
    """The same seed gives the same schedule; gaps have the mean and the spread of an exponential distribution."""
    due = poisson.schedule_ns(plan(queries=20_000, rate_per_s=200.0))
    np.testing.assert_array_equal(due, poisson.schedule_ns(plan(queries=20_000, rate_per_s=200.0)))
    gaps = np.diff(due)
    assert gaps.mean() == pytest.approx(5 * MS, rel=0.02)
    assert gaps.std() == pytest.approx(5 * MS, rel=0.03)
    assert not np.array_equal(due, poisson.schedule_ns(plan(queries=20_000, rate_per_s=200.0, seed=4)))


def test_a_schedule_lasts_for_queries_and_seconds():
    """100 a second for 10 s are 1,000 arrivals; 64 queries at 1 a second are 64."""
    assert poisson.schedule_ns(plan(queries=64, seconds=10.0, rate_per_s=100.0)).size == 1000
    assert poisson.schedule_ns(plan(queries=64, seconds=10.0, rate_per_s=1.0)).size == 64


def test_waiting_follows_queueing_theory():
    """At half load with constant service the mean wait is rho / (2 (1 - rho)) services (Pollaczek and Khinchine), copying included."""
    timed = serve(5 * MS, queries=20_000)
    waits = timed.starts_ns - timed.arrivals_ns
    assert waits.min() >= 0
    assert waits.mean() == pytest.approx(0.5 * 5 * MS, rel=0.1)
    np.testing.assert_array_equal(timed.latency_ns - waits, np.full(20_000, 5 * MS + TICK_NS))


def test_a_slow_query_delays_those_behind_it():
    """One stall of a second is in the latency of every query that arrived meanwhile: none is omitted."""
    world = World(lambda n: 1_000 * MS if n == 500 else MS)
    timed = poisson.run(world.subject(clock=world.ticking), plan(queries=1000, rate_per_s=100.0))
    late = timed.latency_ns > 50 * MS
    assert 80 <= late.sum() <= 130
    assert timed.unserved == 0


def test_a_rate_that_can_be_sustained_is_below_one_and_one_that_cannot_ends():
    """Utilisation is rate times service; half load is about a half."""
    assert poisson.utilisation_ratio(serve(5 * MS, queries=6_000)) == pytest.approx(0.5, abs=0.03)
    assert poisson.utilisation_ratio(serve(9 * MS)) < 1
    # At one and a half times the capacity it is above 1; at ten times the run gives up, and counts whom it left.
    assert poisson.utilisation_ratio(serve(15 * MS)) > 1
    timed = serve(100 * MS)
    assert timed.unserved > 0
    assert timed.latency_ns.size + timed.unserved == 2000
    assert poisson.utilisation_ratio(timed) > 1
    assert timed.end_ns - timed.begin_ns == pytest.approx(2 * 20e9, rel=0.1)


def test_waking_up_late_is_not_hidden():
    """The wait sleeps to shortly before the arrival and spins the rest: late by a look or two at the clock when the timer is 60 us late."""
    timed = serve(MS, queries=100, rate_per_s=10.0)
    waits = timed.starts_ns - timed.arrivals_ns
    assert np.median(waits) <= 3 * TICK_NS
