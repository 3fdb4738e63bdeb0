"""Facts about `edgemeter.agent.base.accuracy_bounds`: the bounds of a difference of two accuracies, or why there are none."""

import pytest

from edgemeter.agent.base.accuracy_bounds import NOT_MOVED, SAME, BoundedFigure, difference_bounds
from edgemeter.agent.base.statistics import wilson_interval


def figure(value, parts=(), low=None, high=None, reason=None):
    """Return an accuracy."""
    return BoundedFigure(value, low, high, parts, reason)


def test_figures_that_are_the_same_in_every_part_have_no_bounds():
    """Not those of width 0, nor the wide ones of two independent figures: on these images they are equal, and that is what is known."""
    parts = [0.5, 0.6] * 10
    bounded = figure(0.55, parts, 0.5, 0.6)
    assert difference_bounds(bounded, bounded) == (equal := difference_bounds(bounded, figure(0.55, parts)))
    assert (equal.bounds, equal.reason) == (None, SAME)


def test_all_against_nothing_has_no_bounds_unless_both_figures_have():
    """AP of a perfect model and of one that finds nothing; of top-1, Wilson's bounds of each give those of the difference."""
    perfect, nothing = [1.0] * 20, [0.0] * 20
    assert difference_bounds(figure(1.0, perfect), figure(0.0, nothing)).reason == NOT_MOVED
    difference = difference_bounds(figure(1.0, perfect, *wilson_interval(100, 100)), figure(0.0, nothing, *wilson_interval(0, 100)))
    low, high = difference.bounds
    assert (low, high) == (pytest.approx(1 - 0.037 * 2**0.5, abs=1e-3), 1.0)


def test_equal_figures_of_different_images_are_bounded():
    """The same share right, of other images: how far they lie apart shows in the parts."""
    low, high = difference_bounds(figure(0.55, [0.5, 0.6] * 10), figure(0.55, [0.6, 0.5] * 10)).bounds
    assert low < 0 < high
