import numpy as np
import pytest

from edgemeter.collector.trend import noise, scan
from edgemeter.collector.trend.scan import scan_series
from edgemeter.collector.trend.thresholds import CONFIRMED_LESS


def looked(x, known_variance=None, temperature=None, only=None, present=None):
    x = np.atleast_2d(np.asarray(x, dtype=float))
    known_variance = np.zeros_like(x) if known_variance is None else np.atleast_2d(known_variance)
    present = np.ones_like(x, dtype=bool) if present is None else present
    return scan_series(x, known_variance, present, np.full(len(x), 0.01), temperature, only)


def test_a_step_is_that_of_a_regression_that_is_computed_the_long_way():
    """Suffix sums give the size and error of weighted least squares for that day.

    The regressors are [1, temperature, step].
    """
    draw = np.random.default_rng(2)
    x, heat = draw.uniform(-1, 1, size=(1, 50)), draw.normal(size=(1, 50))
    known_variance = draw.uniform(0.5, 4.0, size=(1, 50))
    result = looked(x, known_variance, heat, only=np.array([30]))
    variances, between = noise.day_variances(
        x, known_variance, np.ones_like(x, dtype=bool), np.array([0.01])
    )
    weight = 1 / (variances[0] + noise.long_run(between, result.day_variance - between))
    design = np.stack([np.ones(50), heat[0], (np.arange(50) >= 30).astype(float)], axis=1)
    covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
    coefficients = covariance @ design.T @ (weight * x[0])
    assert result.step[0] == pytest.approx(coefficients[2], rel=1e-9)
    assert result.error[0] == pytest.approx(np.sqrt(covariance[2, 2]), rel=1e-9)
    assert result.score[0] == pytest.approx(
        abs(coefficients[2]) / np.sqrt(covariance[2, 2]), rel=1e-9
    )
    assert result.slope_error[0] > 0


def test_a_large_step_is_not_taken_for_outliers():
    """The size of a step of forty sigma is right although every later day would be clipped."""
    x = np.random.default_rng(3).normal(size=(20, 60))
    x[:, 50:] += 40.0
    result = looked(x)
    assert set(result.split) == {50}
    assert np.allclose(result.step, 40.0, atol=1.5)


def test_a_shorter_series_beside_longer_ones_has_the_score_that_it_has_alone():
    """The points of the shorter series are at the end of its row."""
    x = np.random.default_rng(4).normal(size=(5, 60))
    wide, present = (
        np.pad(x, ((0, 0), (30, 0))),
        np.pad(np.ones_like(x, dtype=bool), ((0, 0), (30, 0))),
    )
    assert looked(wide, present=present).score == pytest.approx(looked(x).score)


def test_a_step_that_the_temperature_hides_is_none():
    """The heating was switched on the same day.

    So the step and the effect of the warmth cannot be separated.
    """
    x = np.random.default_rng(7).normal(size=(1, 60))
    heat = (np.arange(60) >= 45)[None, :] * 10 + np.random.default_rng(8).normal(size=(1, 60))
    assert looked(x, temperature=heat).scores[0, 45] == 0
    assert looked(x).scores[0, 45] > 0


def test_an_uncertainty_that_all_days_share_does_not_blunt_the_scan():
    """A meter is known to 2% only, but repeats to 0.2%: a step of 1% stands out."""
    x = 0.2 * np.random.default_rng(9).normal(size=(50, 80))
    x[:, 60:] += 1.0
    result = looked(x, np.full((50, 80), 4.0))
    assert np.all(result.score > scan.step_score(80))


def test_fresh_runs_that_confirm_a_step_lower_the_threshold_and_nothing_else_does():
    """Six days of five runs after the split lower it, where runs scatter most.

    Such days before the split too, days that scatter, or two days do not.
    """
    once, always = np.ones(60, dtype=np.int64), np.full(60, 5)
    confirmed, briefly = (
        np.where(np.arange(60) >= 54, 5, once),
        np.where(np.arange(60) >= 58, 5, once),
    )
    variance = np.where(confirmed > 1, 0.15, 0.75)
    assert scan.less_where_confirmed(confirmed, variance, 0.25, 50) == CONFIRMED_LESS
    for runs, known_variance, day_variance in (
        (confirmed, variance, 2.0),
        (always, np.full(60, 0.15), 0.25),
        (briefly, variance, 0.25),
    ):
        assert scan.less_where_confirmed(runs, known_variance, day_variance, 50) == 0


def test_a_temperature_that_never_changes_is_no_regressor():
    """A sensor that always shows 48.3 degrees explains no step and makes none.

    Its rounding errors could do either.
    """
    x = 230 + np.random.default_rng(5).normal(size=(50, 100))
    x[:, 92:] += 8
    alone = looked(x)
    with_heat = looked(x, temperature=np.full(x.shape, 48.3))
    assert with_heat.split == pytest.approx(alone.split)
    assert with_heat.score == pytest.approx(alone.score)
