"""Facts about `edgemeter.agent.engine.warm_up`.

They show when it ends, and the error rates that its docstring states.
"""

from itertools import accumulate

import numpy as np
import pytest

from edgemeter.agent.engine import warm_up
from tests.fixtures.rows import table_row
from tests.fixtures.timing_world import World

MS = 1_000_000


NOISE = np.random.default_rng(8).normal(0.0, 1.0, 10_000)


def test_a_warm_up_ends_when_the_latency_has_settled():
    """It ends with its limit at the latest.

    Clocks take tens of milliseconds to rise, so that 64 queries of 0.1 ms do not suffice.
    """
    for name, script, limit_s, is_steady, fewest, highest in [
        ("constant", lambda _: 10 * MS, 10.0, True, 64, 64),
        ("quick: half a second", lambda _: MS // 10, 10.0, True, 4_900, 6_950),
        ("better by 1% with every query", lambda n: int(1e9 * 0.99**n), 60.0, False, 91, 100),
        (
            "half the speed for 0.4 s",
            lambda n: 4 * MS if n < 100 else 2 * MS,
            10.0,
            True,
            200,
            5_000,
        ),
        (
            "a scatter of 20%",
            lambda n: int(10 * MS * max(0.3, 1 + 0.2 * NOISE[n])),
            10.0,
            True,
            64,
            600,
        ),
        # A hundred queries that scatter by 5% cannot show small trends within the limit: no trend
        # is seen, and that has to do.
        (
            "a scatter of 5%, cut off",
            lambda n: int(100 * MS * (1 + 0.05 * NOISE[n])),
            10.0,
            True,
            95,
            105,
        ),
        # Too slow for a trend: judged by its halves.
        ("six that agree", lambda _: 2_000 * MS, 11.0, True, 6, 6),
        ("four that halve", lambda n: 8_000 * MS // 2**n, 14.5, False, 4, 4),
        ("two that agree", lambda _: 20_000 * MS, 11.0, True, 2, 2),
    ]:
        with table_row(name):
            warmed = warm_up.warm_up(World(script).watch(), limit_s)
            assert warmed.steady == is_steady
            assert fewest <= warmed.queries <= highest
            # The level that is reported is the one of the last queries.
            level_ns = script(warmed.queries - 1)
            assert "scatter" in name or not is_steady or warmed.query_ns == level_ns


LENGTH = 12_000
SERIES = 20
KINDS = ["normal", "skewed", "bimodal", "autocorrelated", "spiked"]


def first_settled(series):
    """Return after how many queries the series is found to have settled.

    It is looked at as the warm-up does; None means never.
    """
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
        "autocorrelated": lambda: (
            np.array(list(accumulate(normal, lambda before, new: 0.7 * before + new)))
            * np.sqrt(1 - 0.7**2)
        ),
        "spiked": lambda: normal / 5 + 5 * (draw.random(LENGTH) < 0.03),
    }
    return 1 + deviation_ratio * shapes[kind]()


def test_a_series_has_settled_once_its_trend_is_over():
    """A series that scatters by 1% has settled after 250 queries, however it scatters.

    One that falls by half over 50 queries has not before 2% are left, and one that rises never
    does.
    """
    draw = np.random.default_rng(13)
    assert all(first_settled(noisy(draw, kind, 0.01)) <= 250 for kind in KINDS)
    falling = 1 + 0.5 * np.exp(-np.arange(LENGTH) / 50)
    counts = [first_settled(falling * noisy(draw, "normal", 0.01)) for _ in range(5)]
    assert max(falling[count - 1] for count in counts) < 1.02
    for growth_ratio in (0.001, -0.0003):
        line = (1 + growth_ratio) ** np.arange(LENGTH)
        assert [first_settled(line * noisy(draw, "normal", 0.002)) for _ in range(3)] == [None] * 3


def test_a_scatter_that_grows_is_not_settled():
    """Four times the spread with the same median is another state of the machine."""
    draw = np.random.default_rng(14)
    series = np.concatenate(
        [1 + 0.02 * draw.standard_normal(2000), 1 + 0.08 * draw.standard_normal(1000)]
    )
    assert not warm_up.has_settled(series.tolist())
    assert warm_up.has_settled(series[:2000].tolist())


def test_mann_kendall_knows_trends_and_ties():
    """A rising line has the largest statistic, and equal values have none.

    For n = 10 the score is 45 and the variance 125.
    """
    assert warm_up.mann_kendall(np.arange(10.0)) == pytest.approx(44 / np.sqrt(125))
    assert warm_up.mann_kendall(-np.arange(10.0)) == pytest.approx(-44 / np.sqrt(125))
    assert warm_up.mann_kendall(np.ones(10)) == 0.0


def test_theil_sen_is_the_slope_of_most():
    """One value far off does not change it."""
    values = np.arange(20.0) / 10
    values[7] = 50.0
    assert warm_up.theil_sen(values) == pytest.approx(0.1)
