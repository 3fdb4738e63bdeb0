"""Facts about `edgemeter.agent.engine.scenarios.multi_stream`."""

import numpy as np

from edgemeter.agent.engine.scenarios import multi_stream
from tests.fixtures.timing_world import BIND_NS, World, plan


def test_a_query_of_single_calls_lasts_as_long_as_they_do_together():
    """Eight calls of 1,000 ns are a query of 8,000 ns; copying the inputs in between is in no latency."""
    world = World(lambda _: 1_000)
    timed = multi_stream.run(world.subject(), plan(queries=20, calls=8))
    assert timed.latency_ns.tolist() == [8_000] * 20
    assert world.calls == 160
    assert np.diff(timed.starts_ns).tolist() == [8 * (1_000 + BIND_NS)] * 19
    assert timed.end_ns == world.now


def test_a_query_that_fits_one_batch_is_one_call():
    """Where the model takes all samples at once there is one call a query."""
    world = World(lambda _: 5_000)
    timed = multi_stream.run(world.subject(), plan(queries=20, batch=8))
    assert (timed.latency_ns.size, world.calls) == (20, 20)


def test_queries_of_several_calls_run_for_the_time_too():
    """The arrays grow here as well, and what is kept belongs to the last call of a query."""
    timed = multi_stream.run(World(lambda _: 1_000).subject(), plan(queries=1, seconds=0.01, calls=2, expected_ns=1_000_000))
    assert timed.latency_ns.size == 2814
    assert all(arrays[0][0] == index for index, arrays in timed.kept.items())
