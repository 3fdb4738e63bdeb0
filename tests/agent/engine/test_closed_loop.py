"""Facts about `edgemeter.agent.engine.closed_loop`.

They cover what every loop times with, and how scenarios count throughput.
"""

import gc
import itertools

import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.engine import closed_loop
from edgemeter.agent.engine.scenarios import poisson, scenario
from edgemeter.agent.engine.stopwatch import no_collection
from tests.fixtures.timing_world import BIND_NS, World, plan


def test_only_the_call_is_between_the_clock_reads():
    """The time spent on binding inputs is in no latency."""
    world = World(lambda n: 1_000 + n)
    timed = closed_loop.run(world.watch(), plan())
    np.testing.assert_array_equal(timed.latency_ns, 1_000 + np.arange(100))
    assert timed.end_ns == world.now
    assert timed.arrivals_ns is None


def test_a_run_lasts_until_both_queries_and_seconds_are_reached():
    """A quick model runs on for the time, and a slow one for the queries."""
    quick, slow = World(lambda _: 10_000), World(lambda _: 10_000_000)
    assert closed_loop.run(quick.watch(), plan(queries=10, seconds=0.001)).latency_ns.size == 93
    assert closed_loop.run(slow.watch(), plan(queries=10, seconds=0.001)).latency_ns.size == 10


def refusing(first, wait_s):
    """Return a world of calls of a microsecond, whose first few a server refuses for so long."""
    numbers = itertools.count()

    def script(_):
        if next(numbers) < first:
            raise AnswerError("busy", kind="http 429", retry_after_s=wait_s)
        return 1_000

    return World(script)


def test_the_timed_part_begins_with_the_first_answer():
    """A refusal of the server before it takes none of the time.

    A wait before it is no pause between queries.
    """
    timed = closed_loop.run(refusing(2, 5.0).watch(), plan(queries=10))
    assert timed.begin_ns == timed.starts_ns[0] - BIND_NS
    assert timed.pauses_ns.size == 0
    assert [failed.number for failed in timed.failures] == [0, 1]


def test_nobody_waits_longer_than_a_minute():
    """A server that asks for a wait of an hour is asked again before."""
    world = refusing(1, 3600.0)
    closed_loop.run(world.watch(), plan(queries=1))
    assert world.slept_s == [60.0]


def test_the_collector_stays_off_until_the_outer_of_two_blocks_ends():
    """Timed parts within a part that is timed as a whole pay for no collection.

    The collector is on again after an error too.
    """
    with no_collection():
        with no_collection():
            assert not gc.isenabled()
        # A thread that ends meanwhile takes some of them with it.
        assert (gc.isenabled(), gc.get_freeze_count() > 0) == (False, True)
    with pytest.raises(ZeroDivisionError), no_collection():
        _ = 1 / 0
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


def test_throughput_is_over_the_whole_window_of_batches():
    """Copying a batch in counts as work in offline, and does not in single_stream."""
    timed = closed_loop.run(World(lambda _: 1_000).watch(), plan(queries=13))
    assert scenario.throughput_per_s("offline", timed, 13 * 8) == pytest.approx(
        8e9 / (1_000 + BIND_NS)
    )
    assert scenario.throughput_per_s("single_stream", timed, 13) == pytest.approx(1e9 / 1_000)


def test_a_scenario_estimates_its_duration():
    """It is the longer of the seconds and the queries asked for, or that of the schedule."""
    assert closed_loop.seconds(plan(expected_ns=10**9)) == 100.0
    assert poisson.seconds(plan(rate_per_s=50.0)) == pytest.approx(2.0, rel=0.4)
