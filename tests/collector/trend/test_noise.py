import numpy as np
import pytest

from edgemeter.collector.trend import noise
from edgemeter.collector.trend.thresholds import POORLY_KNOWN
from tests.fixtures.rows import table_row


def full(x):
    """Return that every day has a point."""
    return np.ones_like(x, dtype=bool)


def test_the_scatter_is_the_median_difference_of_neighbours_over_that_of_a_normal_variable():
    """Odd and even numbers of differences agree, also after the common variance is subtracted."""
    for days in (14, 15):
        for own_variance in (0.0, 0.1):
            with table_row(days, own_variance):
                draw = np.random.default_rng(days)
                x, present = (
                    draw.normal(size=(40, days)),
                    np.arange(days)[None, :] >= draw.integers(0, 4, (40, 1)),
                )
                _, between = noise.day_variances(
                    x, np.full_like(x, own_variance), present, np.full(40, 1e-6)
                )
                medians = [
                    np.median(np.abs(np.diff(row[is_present])))
                    for row, is_present in zip(x, present, strict=True)
                ]
                expected = (np.array(medians) / 0.67448975) ** 2 / 2 - own_variance
                assert between == pytest.approx(np.maximum(expected, 5e-13), rel=1e-2, abs=1e-6)


def test_runs_of_a_day_show_their_own_scatter():
    """The runs' scatter of 0.5 is found although the days are far apart.

    Too few pairs show nothing.
    """
    draw = np.random.default_rng(3)
    day = np.repeat(np.arange(300), 4)
    value = np.repeat(10 * draw.normal(size=300), 4) + 0.5 * draw.normal(size=1200)
    assert noise.run_variance(value, day, np.zeros(1200)) == pytest.approx(0.25, rel=0.15)
    assert noise.run_variance(value[:8], day[:8], np.zeros(8)) is None


def test_what_neighbours_share_lengthens_the_memory():
    """An autoregression of 0.5 triples the variance that counts in a mean.

    It is more as the half is not known.
    """
    draw = np.random.default_rng(4)
    x = np.zeros((200, 400))
    for day in range(1, 400):
        x[:, day] = 0.5 * x[:, day - 1] + np.sqrt(0.75) * draw.normal(size=200)
    _, between = noise.day_variances(x, np.zeros_like(x), full(x), np.full(200, 1e-6))
    shared = noise.shared_variance(x, np.ones_like(x), full(x))
    assert np.mean(shared) == pytest.approx(0.5, abs=0.1)
    assert np.mean(noise.long_run(between, shared)) == pytest.approx(
        3.0 * (1 + 0.5 * POORLY_KNOWN) ** 2, rel=0.2
    )


def test_the_median_of_the_least_values_is_that_of_numpy():
    """Odd, even and zero counts agree."""
    medians = noise.row_medians(
        np.array([[3.0, 9.0, 1.0, 7.0], [3.0, np.inf, 1.0, 7.0], [1.0] * 4]), np.array([4, 3, 0])
    )
    assert list(medians[:2]) == [5.0, 3.0]
    assert np.isnan(medians[2])
