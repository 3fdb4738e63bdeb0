"""Facts about `edgemeter.agent.engine.scenarios.single_stream`, and about what every scenario times with."""

import gc

import numpy as np
import pytest

from edgemeter.agent.engine.scenarios import single_stream
from tests.fixtures.timing_world import World, plan


def test_only_the_call_is_between_the_clock_reads():
    """Time spent binding inputs is in no latency."""
    world = World(lambda n: 1_000 + n)
    timed = single_stream.run(world.subject(), plan())
    np.testing.assert_array_equal(timed.latency_ns, 1_000 + np.arange(100))
    assert timed.end_ns == world.now
    assert timed.arrivals_ns is None


def test_a_run_lasts_until_both_queries_and_seconds_are_reached():
    """A quick model runs on for the time, a slow one for the queries."""
    quick, slow = World(lambda _: 10_000), World(lambda _: 10_000_000)
    assert single_stream.run(quick.subject(), plan(queries=10, seconds=0.001)).latency_ns.size == 93
    assert single_stream.run(slow.subject(), plan(queries=10, seconds=0.001)).latency_ns.size == 10


def test_the_arrays_grow_when_the_warm_up_promised_fewer_queries():
    """Queries that turn out a hundred times quicker than expected are all kept."""
    timed = single_stream.run(World(lambda _: 1_000).subject(), plan(queries=1, seconds=0.01, expected_ns=100_000))
    assert timed.latency_ns.size == 5628
    assert set(timed.latency_ns.tolist()) == {1_000}
    assert np.diff(timed.starts_ns).min() > 0


def test_inputs_are_drawn_repeatably_and_all_occur():
    """The same seed draws the same inputs; another seed others."""
    worlds = [World(lambda _: 1_000) for _ in range(3)]
    for world, seed in zip(worlds, (3, 3, 4), strict=True):
        single_stream.run(world.subject(), plan(seed=seed))
    assert worlds[0].bound == worlds[1].bound != worlds[2].bound
    assert set(worlds[0].bound) == set(range(5))


def test_some_outputs_are_kept_with_their_input():
    """What is kept under an index is what that input gave."""
    kept = single_stream.run(World(lambda _: 1_000).subject(), plan()).kept
    assert len(kept) >= 2
    assert all(arrays[0][0] == index for index, arrays in kept.items())


def test_half_an_hour_of_queries_is_kept_whole():
    """A sustained run of 30 minutes on a compressed clock: every query is there, to the end."""
    timed = single_stream.run(World(lambda _: 20_000_000).subject(), plan(queries=64, seconds=1800.0, expected_ns=20_000_000))
    assert timed.end_ns - timed.begin_ns == pytest.approx(1800e9, rel=1e-4)
    assert timed.latency_ns.size == pytest.approx(90_000, rel=1e-3)


def test_garbage_collection_is_back_on_after_an_error():
    """A query that fails leaves the collector as it was, and nothing set aside."""

    def fail(_):
        raise ZeroDivisionError

    before = gc.get_freeze_count()
    with pytest.raises(ZeroDivisionError):
        single_stream.run(World(fail).subject(), plan())
    assert gc.isenabled()
    assert gc.get_freeze_count() <= before
