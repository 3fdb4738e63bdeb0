"""Facts about `edgemeter.agent.engine.warm_up`."""

import numpy as np

from edgemeter.agent.engine.warm_up import warm_up
from tests.fixtures.timing_world import World

MS = 1_000_000


def warm(script, limit_s=10.0):
    """Return the result of a warm-up with queries that take as long as scripted."""
    return warm_up(World(script).subject(), limit_s)


def test_a_settled_model_is_steady_after_few_queries():
    """Ten milliseconds each: 64 queries."""
    warmed = warm(lambda _: 10 * MS)
    assert (warmed.steady, warmed.queries, warmed.median_ns) == (True, 64, 10 * MS)


def test_a_quick_model_is_warmed_for_half_a_second():
    """Clocks take tens of milliseconds to rise: 64 queries of 0.1 ms do not suffice."""
    warmed = warm(lambda _: MS // 10)
    assert warmed.steady
    assert 0.5e9 <= warmed.duration_ns <= 0.7e9


def test_a_latency_that_keeps_falling_is_never_steady():
    """A warm-up that improves by 1% with every query reaches its limit and reports it."""
    warmed = warm(lambda n: int(1e9 * 0.99**n), 60.0)
    assert not warmed.steady
    assert warmed.duration_ns >= 60e9


def test_a_clock_that_rises_late_is_waited_for():
    """The first 0.4 s run at half speed: the level that is reported is the one after."""
    warmed = warm(lambda n: 4 * MS if n < 100 else 2 * MS)
    assert warmed.steady
    assert warmed.median_ns == 2 * MS
    assert warmed.queries >= 200


def test_noise_needs_no_long_warm_up():
    """Queries that scatter by 20% settle within the 10 s of quick mode."""
    noise = np.random.default_rng(8).normal(1.0, 0.2, 10_000).clip(0.3)
    warmed = warm(lambda n: int(10 * MS * noise[n]))
    assert warmed.steady
    assert warmed.queries <= 600


def test_a_limit_that_comes_first_asks_only_that_it_looks_settled():
    """A hundred queries that scatter by 5% cannot show small trends within the limit: no trend is seen, and that has to do."""
    noise = np.random.default_rng(8).normal(1.0, 0.05, 1_000)
    warmed = warm(lambda n: int(100 * MS * noise[n]))
    assert warmed.steady
    assert 95 <= warmed.queries <= 105


def test_a_model_too_slow_for_a_trend_is_judged_by_its_halves():
    """Six queries of 2 s that agree are steady; four that halve are not; two are unknown."""
    assert warm(lambda _: 2_000 * MS, 11.0).steady
    assert not warm(lambda n: 8_000 * MS // 2**n, 14.5).steady
    assert not warm(lambda _: 20_000 * MS, 11.0).steady
