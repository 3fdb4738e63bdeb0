"""The interval of a figure over runs."""

import math

import pytest

from edgemeter.agent.base.over_runs import interval_over_runs


def test_the_interval_of_three_runs_is_that_of_students_t_on_their_logarithms() -> None:
    """Two degrees of freedom: t is 4.30265; the logarithms 0, 1 and 2 have the mean 1 and the standard deviation 1."""
    interval = interval_over_runs([1.0, math.e**2, math.e])
    reach = 4.302652729911275 / math.sqrt(3)
    assert interval == pytest.approx((math.e, math.exp(1 - reach), math.exp(1 + reach)), rel=1e-9)
    assert interval is not None
    assert interval.half_width_ratio == pytest.approx(math.expm1(reach), rel=1e-9)


def test_equal_runs_have_an_interval_without_width() -> None:
    """Nothing scatters."""
    assert interval_over_runs([5.0] * 4) == pytest.approx((5.0, 5.0, 5.0), rel=1e-12)


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [1.0, 0.0, 2.0], [1.0, -1.0, 2.0], [1e-300, 1.0, 1e300]])
def test_there_is_no_interval_of_two_runs_of_a_value_that_is_not_above_0_or_beyond_all_floats(values: list[float]) -> None:
    """What has no logarithm has no interval on logarithms."""
    assert interval_over_runs(values) is None
