"""Facts about `edgemeter.agent.engine.scenarios.closed_loop`, what every scenario times with, and how scenarios count throughput."""

import gc

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios import closed_loop, scenario
from edgemeter.agent.engine.scenarios.timing import no_collection
from tests.fixtures.timing_world import BIND_NS, World, plan


def test_only_the_call_is_between_the_clock_reads():
    """Time spent binding inputs is in no latency."""
    world = World(lambda n: 1_000 + n)
    timed = closed_loop.run_single_stream(world.subject(), plan())
    np.testing.assert_array_equal(timed.latency_ns, 1_000 + np.arange(100))
    assert timed.end_ns == world.now
    assert timed.arrivals_ns is None


def test_a_run_lasts_until_both_queries_and_seconds_are_reached():
    """A quick model runs on for the time, a slow one for the queries."""
    quick, slow = World(lambda _: 10_000), World(lambda _: 10_000_000)
    assert closed_loop.run_single_stream(quick.subject(), plan(queries=10, seconds=0.001)).latency_ns.size == 93
    assert closed_loop.run_single_stream(slow.subject(), plan(queries=10, seconds=0.001)).latency_ns.size == 10


def test_the_arrays_grow_when_the_warm_up_promised_fewer_queries():
    """Queries that turn out a hundred times quicker than expected are all kept."""
    timed = closed_loop.run_single_stream(World(lambda _: 1_000).subject(), plan(queries=1, seconds=0.01, expected_ns=100_000))
    assert timed.latency_ns.size == 5628
    assert set(timed.latency_ns.tolist()) == {1_000}
    assert np.diff(timed.starts_ns).min() > 0


def test_inputs_are_drawn_repeatably_and_all_occur():
    """The same seed draws the same inputs; another seed others."""
    worlds = [World(lambda _: 1_000) for _ in range(3)]
    for world, seed in zip(worlds, (3, 3, 4), strict=True):
        closed_loop.run_single_stream(world.subject(), plan(seed=seed))
    assert worlds[0].bound == worlds[1].bound != worlds[2].bound
    assert set(worlds[0].bound) == set(range(5))


def test_some_outputs_are_kept_with_their_input():
    """What is kept under an index is what that input gave."""
    kept_outputs = closed_loop.run_single_stream(World(lambda _: 1_000).subject(), plan()).kept
    assert len(kept_outputs) >= 2
    assert all(arrays[0][0] == index for index, arrays in kept_outputs.items())


def test_the_collector_stays_off_until_the_outer_of_two_blocks_ends():
    """Timed parts within one that is timed as a whole pay for no collection; it is on again after an error too."""
    with no_collection():
        with no_collection():
            assert not gc.isenabled()
        # A thread that ends meanwhile takes some of them with it.
        assert (gc.isenabled(), gc.get_freeze_count() > 0) == (False, True)
    with pytest.raises(ZeroDivisionError), no_collection():
        _ = 1 / 0
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


def test_queries_are_samples_and_batches_are_counted_up():
    """100 samples in batches of 8 are 13 batches; a median needs 11 at least."""
    assert closed_loop.run_offline(World(lambda _: 1_000).subject(), plan(batch=8)).latency_ns.size == 13
    assert closed_loop.run_offline(World(lambda _: 1_000).subject(), plan(batch=50)).latency_ns.size == 11


def test_throughput_is_over_the_whole_window():
    """Copying a batch in counts as work here, and does not in single_stream."""
    batches = closed_loop.run_offline(World(lambda _: 1_000).subject(), plan(batch=8))
    assert scenario.throughput_per_s("offline", batches, 13 * 8) == pytest.approx(8e9 / (1_000 + BIND_NS))
    calls = closed_loop.run_single_stream(World(lambda _: 1_000).subject(), plan())
    assert scenario.throughput_per_s("single_stream", calls, 100) == pytest.approx(1e9 / 1_000)


def test_a_scenario_estimates_its_duration():
    """The longer of the time asked for and the queries asked for; a schedule takes what it takes."""
    assert scenario.SCENARIOS["single_stream"].seconds(plan(expected_ns=10**9)) == 100.0
    assert scenario.SCENARIOS["offline"].seconds(plan(expected_ns=10**9, batch=8)) == 13.0
    assert scenario.SCENARIOS["poisson"].seconds(plan(rate_per_s=50.0)) == pytest.approx(2.0, rel=0.4)
