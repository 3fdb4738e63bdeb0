"""Facts about the random pauses of `edgemeter.agent.engine.closed_loop`.

They keep queries from coming in step with a clock.
"""

import numpy as np
import pytest

from edgemeter.agent.energy.queries import queries_of
from edgemeter.agent.engine import closed_loop
from edgemeter.agent.engine.scenarios import scenario
from tests.fixtures.timing_world import TICK_NS, World, plan

QUERY_NS = 1_000_000


def timed_with(**changes):
    """Return the timed queries of 1 ms each, for 2 s, with pauses."""
    world = World(lambda _: QUERY_NS)
    settings = {"queries": 11, "seconds": 2.0, "expected_ns": QUERY_NS, "pauses": True} | changes
    return closed_loop.run(world.ticking_watch(), plan(**settings))


def test_pauses_take_a_small_share_of_the_time_and_are_in_no_latency():
    """They take about half a percent, spread over the run, each between two queries."""
    timed = timed_with()
    assert 0.003 < timed.paused_ns / 2e9 < 0.007
    assert timed.latency_ns.max() <= QUERY_NS + TICK_NS
    assert 15 <= len(timed.pauses_ns) <= 25
    ends_ns = timed.starts_ns + timed.latency_ns
    before = np.searchsorted(timed.starts_ns, timed.pauses_ns[:, 0]) - 1
    assert np.all(ends_ns[before] <= timed.pauses_ns[:, 0])
    assert np.all(timed.pauses_ns[:, 1] <= timed.starts_ns[before + 1])


def test_pauses_are_spread_evenly_over_the_length_of_a_query():
    """The next queries then begin at any phase of any clock with equal probability."""
    lengths_ns = np.diff(timed_with(seconds=20.0).pauses_ns).ravel()
    assert lengths_ns.size == pytest.approx(99, abs=2)
    assert lengths_ns.max() < QUERY_NS + 2 * TICK_NS
    counts, _ = np.histogram(lengths_ns, bins=4, range=(0, QUERY_NS))
    assert counts.min() > 12


def test_long_queries_have_shorter_pauses_so_that_there_are_some():
    """For queries of 0.4 s in 10 s there are about eight of 6 ms, and not one of 0.2 s."""
    world = World(lambda _: 400 * QUERY_NS)
    timed = closed_loop.run(
        world.ticking_watch(),
        plan(queries=11, seconds=10.0, expected_ns=400 * QUERY_NS, pauses=True),
    )
    assert 6 <= len(timed.pauses_ns) <= 9
    assert np.diff(timed.pauses_ns).max() <= 13 * QUERY_NS


def test_without_a_sensor_there_are_no_pauses():
    """A plan that does not ask for them has none, and no series of them."""
    timed = timed_with(pauses=False)
    assert timed.paused_ns == 0
    assert {series.name for series in scenario.time_series(timed, timed.begin_ns)} == {
        "latency",
        "query_start",
    }


def test_throughput_leaves_pauses_out():
    """Offline counts over the whole window, and its throughput is as high as without them."""
    with_pauses, without = timed_with(), timed_with(pauses=False)
    rates = [
        scenario.throughput_per_s("offline", timed, timed.latency_ns.size)
        for timed in (with_pauses, without)
    ]
    assert rates[0] == pytest.approx(rates[1], rel=1e-4)


def test_the_record_states_the_moments_of_pauses():
    """The energy finds them in the raw samples."""
    timed = timed_with()
    assert timed.paused_ns > 0
    queries = queries_of(
        scenario.time_series(timed, int(timed.starts_ns[0])), int(timed.starts_ns[0]), timed.end_ns
    )
    np.testing.assert_array_equal(queries.pauses_ns, timed.pauses_ns)
