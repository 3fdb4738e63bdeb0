"""Facts about `edgemeter.agent.engine.scenarios.offline`, and how scenarios count throughput."""

import pytest

from edgemeter.agent.engine.scenarios import offline, scenario, single_stream
from tests.fixtures.timing_world import BIND_NS, World, plan


def test_queries_are_samples_and_batches_are_counted_up():
    """100 samples in batches of 8 are 13 batches; a median needs 11 at least."""
    assert offline.run(World(lambda _: 1_000).subject(), plan(batch=8)).latency_ns.size == 13
    assert offline.run(World(lambda _: 1_000).subject(), plan(batch=50)).latency_ns.size == 11


def test_throughput_is_over_the_whole_window():
    """Copying a batch in counts as work here, and does not in single_stream."""
    whole = offline.run(World(lambda _: 1_000).subject(), plan(batch=8))
    assert scenario.throughput_per_s("offline", whole, 13 * 8) == pytest.approx(8e9 / (1_000 + BIND_NS))
    calls = single_stream.run(World(lambda _: 1_000).subject(), plan())
    assert scenario.throughput_per_s("single_stream", calls, 100) == pytest.approx(1e9 / 1_000)


def test_the_window_begins_with_the_work():
    """Offline it begins before the first batch is copied in, in single_stream with the first query."""
    whole = offline.run(World(lambda _: 1_000).subject(), plan(batch=8))
    assert scenario.window("offline", whole).start_ns == whole.starts_ns[0] - BIND_NS
    assert scenario.window("single_stream", whole).start_ns == whole.starts_ns[0]


def test_a_scenario_tells_how_long_it_will_take():
    """The longer of the time asked for and the queries asked for; a schedule takes what it takes."""
    assert scenario.SCENARIOS["single_stream"].seconds(plan(expected_ns=10**9)) == 100.0
    assert scenario.SCENARIOS["multi_stream"].seconds(plan(expected_ns=10**9, calls=8)) == 800.0
    assert scenario.SCENARIOS["offline"].seconds(plan(expected_ns=10**9, batch=8)) == 13.0
    assert scenario.SCENARIOS["poisson"].seconds(plan(rate_per_s=50.0)) == pytest.approx(2.0, rel=0.4)
