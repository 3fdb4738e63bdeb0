"""Facts about `edgemeter.agent.engine.timing`."""

import gc

import numpy as np

from edgemeter.agent.engine import timing


class _World:
    """A clock and a runtime whose queries take what the script says, in ns; binding takes time too, but outside the clock reads."""

    def __init__(self, script):
        self.now = 1_000
        self.script = script
        self.bound = []

    def clock(self):
        return self.now

    def bind(self, inputs):
        self.now += 777
        self.bound.append(int(inputs[0][0]))
        return self.call

    def call(self):
        assert not gc.isenabled()
        self.now += self.script(len(self.bound) - 1)

    def outputs(self):
        return [np.array([self.bound[-1]])]


INPUTS = [[np.array([n])] for n in range(5)]


def _run(world, **changes):
    settings = {"queries": 100, "seconds": 0.0, "expected_ns": 1_000, "seed": 3, "clock": world.clock} | changes
    return timing.single_stream(world.bind, world.outputs, INPUTS, **settings)


def test_only_the_call_is_between_the_clock_reads():
    """Time spent binding inputs is in no latency."""
    world = _World(lambda n: 1_000 + n)
    timed = _run(world)
    np.testing.assert_array_equal(timed.latency_ns, 1_000 + np.arange(100))
    assert timed.end_ns == world.now


def test_a_run_lasts_until_both_queries_and_seconds_are_reached():
    """A quick model runs on for the time, a slow one for the queries."""
    assert _run(_World(lambda _: 10_000), queries=10, seconds=0.001).latency_ns.size == 93
    assert _run(_World(lambda _: 10_000_000), queries=10, seconds=0.001).latency_ns.size == 10


def test_the_arrays_grow_when_the_warm_up_promised_fewer_queries():
    """Queries that turn out a hundred times quicker than expected are all kept."""
    timed = _run(_World(lambda _: 1_000), queries=1, seconds=0.01, expected_ns=100_000)
    assert timed.latency_ns.size == 5628
    assert set(timed.latency_ns.tolist()) == {1_000}


def test_inputs_are_drawn_repeatably_and_all_occur():
    """The same seed draws the same inputs; another seed others."""
    worlds = [_World(lambda _: 1_000) for _ in range(3)]
    for world, seed in zip(worlds, (3, 3, 4), strict=True):
        _run(world, seed=seed)
    assert worlds[0].bound == worlds[1].bound != worlds[2].bound
    assert set(worlds[0].bound) == set(range(5))


def test_some_outputs_are_kept_with_their_input():
    """What is kept under an index is what that input gave."""
    kept = _run(_World(lambda _: 1_000)).kept
    assert len(kept) >= 2
    assert all(arrays[0][0] == index for index, arrays in kept.items())


def test_a_settled_warm_up_is_steady_and_short():
    """Equal medians in two neighbouring blocks end the warm-up."""
    world = _World(lambda _: 1_000_000)
    warmed = timing.warm_up(world.bind, INPUTS, 10.0, world.clock)
    assert (warmed.steady, warmed.queries, warmed.median_ns) == (True, 32, 1_000_000)


def test_a_latency_that_keeps_falling_is_never_steady():
    """A warm-up that improves by 1 % with every query runs into its limit and says so."""
    world = _World(lambda n: int(1e9 * 0.99**n))
    warmed = timing.warm_up(world.bind, INPUTS, 60.0, world.clock)
    assert not warmed.steady
    assert warmed.duration_ns >= 60e9


def test_a_model_too_slow_for_two_blocks_is_judged_by_its_halves():
    """Six queries of 2 s that agree are steady; four that halve are not."""
    world = _World(lambda _: 2_000_000_000)
    assert timing.warm_up(world.bind, INPUTS, 11.0, world.clock).steady
    world = _World(lambda n: 8_000_000_000 // 2**n)
    assert not timing.warm_up(world.bind, INPUTS, 14.5, world.clock).steady


def test_garbage_collection_is_back_on_after_an_error():
    """A query that fails leaves the collector as it was."""

    def fail(_):
        raise ZeroDivisionError

    world = _World(fail)
    try:
        _run(world)
    except ZeroDivisionError:
        assert gc.isenabled()
    else:
        raise AssertionError
