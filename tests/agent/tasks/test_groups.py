"""Bounds of figures, and the largest gap between groups."""

import math

import pytest

from edgemeter.agent.tasks import groups


def test_bounds_reach_1_96_standard_errors_and_stay_within_0_and_1():
    """The normal quantile; a ratio has no bound below 0 or above 1."""
    assert groups.between(0.5, 0.1, math.inf) == (pytest.approx(0.5 - 0.1959964), pytest.approx(0.5 + 0.1959964))
    assert groups.between(0.99, 0.1, math.inf)[1] == 1
    assert groups.between(0.5, None, math.inf) == (None, None)


def test_an_error_from_few_parts_reaches_further():
    """Student's t with 19 degrees of freedom: 2.093 standard errors."""
    assert groups.between(0.5, 0.1, 19)[1] == pytest.approx(0.5 + 0.2093024)


def test_the_gap_of_three_groups_has_wider_bounds_than_that_of_two():
    """The largest of three pairs was picked: 2.394 standard errors (Bonferroni) in place of 1.960."""
    made = [groups.scored_group(name, value, 0.03, 40, None, math.inf) for name, value in (("a", 0.5), ("b", 0.6), ("c", 0.55))]
    two, three = groups.largest_gap(made[:2], math.inf), groups.largest_gap(made, math.inf)
    assert (three.best, three.worst, three.value) == ("b", "a", pytest.approx(0.1))
    assert two.high - two.value == pytest.approx(1.959964 * 0.03 * 2**0.5, abs=1e-6)
    assert three.high - three.value == pytest.approx(2.393980 * 0.03 * 2**0.5, abs=1e-6)
    assert three.low == 0


def test_there_is_no_gap_with_fewer_than_two_figures():
    """A group that was too small takes no part."""
    assert (
        groups.largest_gap([groups.scored_group("a", 0.5, 0.1, 40, None, 19), groups.scored_group("b", None, None, 3, None, 19)], 19)
        is None
    )


def test_a_gap_without_standard_errors_has_no_bounds():
    """Nobody asked for them."""
    gap = groups.largest_gap([groups.scored_group("a", 0.5, None, 40, None, 19), groups.scored_group("b", 0.25, None, 40, None, 19)], 19)
    assert (gap.value, gap.low, gap.high) == (0.25, None, None)
