"""Facts about `edgemeter.agent.engine.warm_up`: when it ends, and the error rates that its docstring states."""

from itertools import accumulate

import numpy as np
import pytest

from edgemeter.agent.engine import warm_up
from tests.fixtures.timing_world import World

MS = 1_000_000


def warm(script, limit_s=10.0):
    """Return the result of a warm-up with queries that take as long as scripted."""
    return warm_up.warm_up(World(script).subject(), limit_s)


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


LENGTH = 12_000
SERIES = 20


def first_settled(series):
    """Return after how many queries the series is found to have settled, looked at as the warm-up does; None when never."""
    count = 64
    while count <= LENGTH:
        if warm_up.has_settled(series[:count]):
            return count
        count = warm_up.next_check(count)
    return None


def noisy(draw, kind, deviation_ratio):
    """Return a series of level 1 whose values scatter in one of several ways."""
    normal = draw.standard_normal(LENGTH)
    shapes = {
        "normal": lambda: normal,
        "skewed": lambda: draw.lognormal(0, 0.8, LENGTH) - 1,
        "bimodal": lambda: 2 * (draw.random(LENGTH) < 0.4) + normal / 10,
        "autocorrelated": lambda: np.array(list(accumulate(normal, lambda before, new: 0.7 * before + new))) * np.sqrt(1 - 0.7**2),
        "spiked": lambda: normal / 5 + 5 * (draw.random(LENGTH) < 0.03),
    }
    return 1 + deviation_ratio * shapes[kind]()


@pytest.mark.slow
def test_a_settled_series_is_found_to_be_so_soon():
    """However it scatters, a series without a trend settles; the noisier, the later, but not without end."""
    for deviation_ratio, queries in [(0.001, 100), (0.01, 250), (0.05, 600), (0.2, 600)]:
        for kind in ["normal", "skewed", "bimodal", "autocorrelated", "spiked"]:
            draw = np.random.default_rng(11)
            counts = [first_settled(noisy(draw, kind, deviation_ratio)) for _ in range(SERIES)]
            assert None not in counts, f"{kind!r}, {deviation_ratio!r}"
            assert np.quantile(counts, 0.95) <= queries, f"{kind!r}, {deviation_ratio!r}"


@pytest.mark.slow
def test_an_unsettled_series_is_not_called_steady():
    """A fall to the level is waited for: at most one series in ten still has 2%, or half its scatter, to go."""
    for time_constant in [10, 50, 200]:
        for excess_ratio in [0.1, 0.5, 2.0]:
            for deviation_ratio in [0.002, 0.01, 0.05]:
                draw = np.random.default_rng(12)
                level = 1 + excess_ratio * np.exp(-np.arange(LENGTH) / time_constant)
                counts = [first_settled(level * noisy(draw, "normal", deviation_ratio)) for _ in range(SERIES)]
                too_early = sum(count is not None and level[count - 1] - 1 > max(0.02, deviation_ratio / 2) for count in counts)
                assert too_early <= SERIES // 10, f"{deviation_ratio!r}, {excess_ratio!r}, {time_constant!r}"


@pytest.mark.parametrize("growth_ratio", [0.001, -0.0003])
def test_what_goes_on_rising_or_falling_never_settles(growth_ratio):
    """By 0.1% with every query, or down by 0.03%, under a scatter of 0.2%."""
    draw = np.random.default_rng(13)
    line = (1 + growth_ratio) ** np.arange(LENGTH)
    counts = [first_settled(line * noisy(draw, "normal", 0.002)) for _ in range(SERIES)]
    assert sum(count is not None for count in counts) <= SERIES // 10


def test_a_scatter_that_grows_is_not_settled():
    """The same median with four times the spread in the second half is another state of the machine."""
    draw = np.random.default_rng(14)
    series = np.concatenate([1 + 0.02 * draw.standard_normal(2000), 1 + 0.08 * draw.standard_normal(1000)])
    assert not warm_up.has_settled(series.tolist())
    assert warm_up.has_settled(series[:2000].tolist())


def test_a_noisy_series_is_checked_as_soon_as_it_can_be_found_settled():
    """At 384 queries the last half first shows a trend of a quarter of any spread; a check just before it would be for nothing."""
    draw = np.random.default_rng(16)
    noise = [noisy(draw, "normal", 0.2)[:384].tolist() for _ in range(SERIES)]
    assert not any(warm_up.has_settled(series[:382]) for series in noise)
    assert sum(map(warm_up.has_settled, noise)) >= SERIES * 3 // 4
    for first in range(64, 384):
        count = first
        while count < 384:
            count = warm_up.next_check(count)
        assert count <= 480
        assert count == 384 or first > 307


def test_mann_kendall_knows_trends_and_ties():
    """A rising line has the largest statistic (n = 10: score 45, variance 125); equal values have none."""
    assert warm_up.mann_kendall(np.arange(10.0)) == pytest.approx(44 / np.sqrt(125))
    assert warm_up.mann_kendall(-np.arange(10.0)) == pytest.approx(-44 / np.sqrt(125))
    assert warm_up.mann_kendall(np.ones(10)) == 0.0


def test_mann_kendall_finds_a_trend_by_chance_in_five_percent():
    """Under no trend its statistic is about standard normal."""
    draw = np.random.default_rng(15)
    share = np.mean([abs(warm_up.mann_kendall(draw.standard_normal(32))) > 1.96 for _ in range(2000)])
    assert 0.035 <= share <= 0.065


def test_theil_sen_is_the_slope_of_most():
    """One value far off does not move it."""
    values = np.arange(20.0) / 10
    values[7] = 50.0
    assert warm_up.theil_sen(values) == pytest.approx(0.1)
