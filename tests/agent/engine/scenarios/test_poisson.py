import numpy as np
import pytest

from edgemeter.agent.engine import schedule
from edgemeter.agent.engine.scenarios import poisson, scenario
from edgemeter.agent.engine.scenarios.timing import TimedQueries
from tests.fixtures.timing_world import TICK_NS, World, plan

MS = 1_000_000


def serve(service_ns, **changes):
    world = World(lambda _: service_ns)
    settings = {"queries": 2000, "rate_per_s": 100.0, "expected_ns": service_ns} | changes
    return schedule.run_poisson(world.ticking_watch(), plan(**settings))


def test_arrivals_are_fixed_beforehand_and_exponential():
    """The same seed gives the same schedule, and its gaps are exponential.

    They have the mean and the spread of that distribution.
    """
    due = poisson.schedule_ns(plan(queries=20_000, rate_per_s=200.0))
    np.testing.assert_array_equal(due, poisson.schedule_ns(plan(queries=20_000, rate_per_s=200.0)))
    gaps = np.diff(due)
    assert gaps.mean() == pytest.approx(5 * MS, rel=0.02)
    assert gaps.std() == pytest.approx(5 * MS, rel=0.03)
    assert not np.array_equal(
        due, poisson.schedule_ns(plan(queries=20_000, rate_per_s=200.0, seed=4))
    )


def test_a_schedule_lasts_for_queries_and_seconds():
    """100 a second for 10 s are 1,000 arrivals, and 64 queries at 1 a second are 64."""
    assert poisson.schedule_ns(plan(queries=64, seconds=10.0, rate_per_s=100.0)).size == 1000
    assert poisson.schedule_ns(plan(queries=64, seconds=10.0, rate_per_s=1.0)).size == 64


def test_waiting_follows_queueing_theory():
    """The mean wait is that of Pollaczek and Khinchine, copying included.

    At half load with constant service it is rho / (2 (1 - rho)) services.
    """
    timed = serve(5 * MS, queries=20_000)
    waits = timed.starts_ns - timed.arrivals_ns
    assert waits.min() >= 0
    assert waits.mean() == pytest.approx(0.5 * 5 * MS, rel=0.1)
    np.testing.assert_array_equal(timed.latency_ns - waits, np.full(20_000, 5 * MS + TICK_NS))


def test_a_slow_query_delays_those_behind_it():
    """One stall of a second is in the latency of every query that arrived meanwhile.

    No query is omitted.
    """
    world = World(lambda n: 1_000 * MS if n == 500 else MS)
    timed = schedule.run_poisson(world.ticking_watch(), plan(queries=1000, rate_per_s=100.0))
    late = timed.latency_ns > 50 * MS
    assert 80 <= late.sum() <= 130
    assert timed.unserved == 0


def test_utilisation_is_the_busy_share_of_the_timed_part():
    """It is about the rate times the service time, and never above 1.

    A run at ten times the capacity gives up, and counts the queries that it left.
    """
    assert poisson.utilisation_ratio(serve(5 * MS, queries=6_000)) == pytest.approx(0.5, abs=0.03)
    assert 0.99 < poisson.utilisation_ratio(serve(15 * MS)) <= 1
    timed = serve(100 * MS)
    assert timed.unserved > 0
    assert timed.latency_ns.size + timed.unserved == 2000
    assert 0.99 < poisson.utilisation_ratio(timed) <= 1
    assert timed.end_ns - timed.begin_ns == pytest.approx(2 * 20e9, rel=0.1)


def queue(utilisation, queries, generator, is_even):
    """Return the load of a queue at 100 arrivals a second by Lindley's recursion.

    Its services are constant or exponential.
    """
    arrivals = np.cumsum(generator.exponential(10 * MS, queries)).astype(np.int64)
    mean_ns = utilisation * 10 * MS
    services = np.full(queries, mean_ns) if is_even else generator.exponential(mean_ns, queries)
    starts, free = np.empty(queries, np.int64), 0
    for index, (arrival, service) in enumerate(
        zip(arrivals.tolist(), services.tolist(), strict=True)
    ):
        starts[index] = max(arrival, free)
        free = int(starts[index]) + round(service)
    ends = starts + np.rint(services).astype(np.int64)
    return scenario.load_of_timed(
        TimedQueries(starts, ends - arrivals, 0, int(ends[-1]), arrivals), 1, 100.0
    )


@pytest.mark.parametrize("is_even", [True, False], ids=["M/D/1", "M/M/1"])
@pytest.mark.parametrize(("queries", "draws"), [(64, 200), (128, 200), (1024, 40)])
@pytest.mark.parametrize("utilisation", [0.7, 0.8, 0.9])
def test_a_rate_that_leaves_time_is_seldom_called_unsustained(utilisation, queries, draws, is_even):
    """At 70, 80 and 90% of the capacity at most one queue in twenty is called so.

    None is busy for more than all of the time.
    """
    generator = np.random.default_rng(7)
    loads = [queue(utilisation, queries, generator, is_even) for _ in range(draws)]
    assert sum(not load.is_sustained for load in loads) <= 0.05 * draws
    assert max(load.utilisation_ratio for load in loads) <= 1


@pytest.mark.parametrize("is_even", [True, False], ids=["M/D/1", "M/M/1"])
def test_a_rate_that_is_a_fifth_too_high_is_found_in_1024_queries(is_even):
    """Nine in ten such rates are found, and all where services are constant."""
    generator = np.random.default_rng(8)
    assert sum(queue(1.2, 1024, generator, is_even).is_sustained is False for _ in range(40)) >= (
        40 if is_even else 36
    )


def test_waking_up_late_is_not_hidden():
    """The wait sleeps until shortly before the arrival and spins for the rest.

    It is late by a look or two at the clock when the timer is 60 us late.
    """
    timed = serve(MS, queries=100, rate_per_s=10.0)
    waits = timed.starts_ns - timed.arrivals_ns
    assert np.median(waits) <= 3 * TICK_NS
