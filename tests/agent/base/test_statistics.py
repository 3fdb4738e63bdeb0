"""Facts about `edgemeter.agent.base.statistics`, against published tables."""

import math
from statistics import NormalDist

import pytest

from edgemeter.agent.base import statistics
from edgemeter.agent.base.statistics import (
    jackknife_freedom,
    student_quantile,
    student_two_sided_p,
    wilson_interval,
)
from tests.fixtures.rows import table_row


def test_quantiles_are_those_of_the_tables():
    """The values come from the NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2."""
    for confidence, freedom, t in [
        (0.95, 1, 12.706),
        (0.95, 4, 2.776),
        (0.95, 9, 2.262),
        (0.99, 9, 3.250),
        (0.999, 4, 8.610),
        (0.90, 30, 1.697),
        (0.95, 120, 1.980),
    ]:
        assert statistics.student_quantile(confidence, freedom) == pytest.approx(t, abs=6e-4), (
            f"{confidence!r}, {freedom!r}"
        )


def test_a_quantile_is_that_of_plain_bisection_to_the_last_digit():
    """Newton's method only saves steps and changes no digit."""
    for confidence in (0.5, 0.9, 0.95, 1 - 0.05 / 3, 1 - 0.05 / 400):
        for freedom in (1, 1.4, 2, 7.3, 98.1, 1000):
            low, high = 0.0, 1.0
            while statistics.student_two_sided_p(high, freedom) > 1 - confidence:
                low, high = high, high * 2
            while high - low > 1e-12 * high:
                middle = (low + high) / 2
                is_below = statistics.student_two_sided_p(middle, freedom) > 1 - confidence
                low, high = (middle, high) if is_below else (low, middle)
            assert statistics.student_quantile(confidence, freedom) == (low + high) / 2, (
                f"{confidence!r}, {freedom!r}"
            )


def test_a_quantile_ends_where_the_probability_is_known_less_well_than_its_last_step():
    """With ten million degrees of freedom it is that of the normal distribution."""
    assert statistics.student_quantile(0.01, 1e7) == pytest.approx(0.0125335, rel=1e-5)


def test_with_two_degrees_of_freedom_the_tail_has_a_closed_form():
    """The tail is P(|T| >= t) = 1 - t / sqrt(2 + t^2)."""
    for t in (0.01, 0.5, 1.0, 4.0, 50.0):
        assert statistics.student_two_sided_p(t, 2) == pytest.approx(
            1 - t / (2 + t * t) ** 0.5, rel=1e-9
        )
        assert statistics.student_two_sided_p(-t, 2) == statistics.student_two_sided_p(t, 2)


def test_the_bounds_are_those_of_the_literature():
    """The bounds of a ratio agree with published values to four digits."""
    # By the formula with z = 1.959964, worked out apart; 81 of 263 is the example of R. G.
    # Newcombe, Statistics in Medicine 17 (1998).
    for successes, trials, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ]:
        assert wilson_interval(successes, trials) == (
            pytest.approx(low, abs=6e-5),
            pytest.approx(high, abs=6e-5),
        ), f"{successes!r}, {trials!r}"


def test_an_error_that_hangs_on_one_part_has_few_degrees_of_freedom():
    """Even parts leave one degree of freedom fewer than there are parts.

    Three parts leave 2, and twenty of which a single one moves leave 3.
    """
    assert jackknife_freedom([0.4, 0.6] * 10) == 19
    assert jackknife_freedom([0.5] * 19 + [0.9]) == 3
    assert jackknife_freedom([0.1, 0.2, 0.3]) == 2
    assert 3 < jackknife_freedom([0.5, 0.51] * 9 + [0.52, 0.55]) < 19


def test_any_number_of_degrees_of_freedom_has_a_quantile():
    """Figures that hardly differ have more than 10^64, where Student's t is normal."""
    normal = NormalDist()
    for freedom in (1e5, 1e7, 1e12, 1e15, 1e16, 6.8e64, 1e300, math.inf):
        for confidence in (0.5, 0.95, 0.999):
            with table_row(freedom, confidence):
                quantile = normal.inv_cdf((1 + confidence) / 2)
                assert student_quantile(confidence, freedom) == pytest.approx(
                    quantile, rel=4 / min(freedom, 1e7)
                )
                assert student_two_sided_p(quantile, freedom) == pytest.approx(
                    1 - confidence, rel=40 / min(freedom, 1e7)
                )
    for freedom in (1e-3, 0.5, 1.0):
        assert 0 <= student_two_sided_p(1e300, freedom) <= student_two_sided_p(1e-300, freedom) <= 1
