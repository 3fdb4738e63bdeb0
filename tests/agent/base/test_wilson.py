"""Bounds of a share."""

import pytest

from edgemeter.agent.base.statistics import wilson_interval, wilson_standard_error


def test_the_bounds_are_those_of_the_literature():
    """The bounds of a ratio agree with published values to four digits."""
    # By the formula with z = 1.959964, worked out apart; 81 of 263 is the example of R. G. Newcombe, Statistics in Medicine 17 (1998).
    for successes, trials, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ]:
        assert wilson_interval(successes, trials) == (pytest.approx(low, abs=6e-5), pytest.approx(high, abs=6e-5)), (
            f"{successes!r}, {trials!r}"
        )


def test_the_standard_error_of_all_alike_is_not_zero():
    """Thirty of thirty right is no certainty."""
    assert wilson_standard_error(30, 30) > 0.02
