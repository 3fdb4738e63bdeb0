"""Bounds of figures."""

import math

import pytest

from edgemeter.agent.tasks import parts


def test_bounds_reach_1_96_standard_errors_and_stay_within_the_limits():
    """The normal quantile on the scale of log odds, of a rate of the logarithm; a ratio has no bound below 0 or above 1."""
    low, high = parts.between(0.5, 1e-4, math.inf)
    assert (low, high) == (pytest.approx(0.5 - 1.959964e-4, abs=1e-9), pytest.approx(0.5 + 1.959964e-4, abs=1e-9))
    assert parts.between(0.5, 0.1, math.inf) == (pytest.approx(0.3134615), pytest.approx(0.6865385))
    low, high = parts.between(0.99, 0.1, math.inf)
    assert 0 < low < 0.99 < high <= 1
    low, high = parts.between(0.1, 0.05, math.inf, (0.0, math.inf))
    assert (low, high) == (pytest.approx(0.1 * math.exp(-0.979982)), pytest.approx(0.1 * math.exp(0.979982)))
    # At a limit itself.
    assert parts.between(0.0, 0.1, math.inf) == (0.0, pytest.approx(0.1959964))
    assert parts.between(0.0, 0.1, math.inf, (-1.0, 1.0)) == (pytest.approx(-0.1935247, abs=1e-6), pytest.approx(0.1935247, abs=1e-6))
    # An error from few parts reaches further: Student's t with 19 degrees of freedom, 2.093 standard errors.
    assert parts.between(0.5, 1e-4, 19)[1] == pytest.approx(0.5 + 2.093024e-4, abs=1e-9)
