"""Bounds of figures, and the largest gap between groups."""

import math

import pytest

from edgemeter.agent.base.statistics import wilson_interval
from edgemeter.agent.contract.record_accuracy import PartAccuracy
from edgemeter.agent.tasks import item_accuracy, parts


def group(name, value, error, images, freedom=math.inf):
    """Return a group with a figure."""
    return item_accuracy.ScoredGroup(PartAccuracy(name=name, value=value, images=images), parts.Bounded(error=error, freedom=freedom))


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


def test_the_gap_of_three_groups_has_wider_bounds_than_that_of_two():
    """The largest of three pairs was picked: 2.394 standard errors (Bonferroni) in place of 1.960."""
    groups = [group(name, value, 0.03, 40) for name, value in (("a", 0.5), ("b", 0.6), ("c", 0.55))]
    two, three = item_accuracy.largest_gap(groups[:2]), item_accuracy.largest_gap(groups)
    assert (three.best, three.worst, three.value) == ("b", "a", pytest.approx(0.1))
    assert two.high - two.value == pytest.approx(1.959964 * 0.03 * 2**0.5, abs=1e-6)
    assert three.high - three.value == pytest.approx(2.393980 * 0.03 * 2**0.5, abs=1e-6)
    assert three.low == 0


def test_a_gap_without_standard_errors_has_no_bounds():
    """Nobody asked for them; and a group that was too small takes no part in a gap."""
    gap = item_accuracy.largest_gap([group("a", 0.5, None, 40), group("b", 0.25, None, 40)])
    assert (gap.value, gap.low, gap.high) == (0.25, None, None)
    assert item_accuracy.largest_gap([group("a", 0.5, 0.1, 40), group("b", None, None, 3)]) is None
    # A word error rate of 0.1 is better than one of 1.4; the gap may exceed 1, and has no upper bound there.
    gap = item_accuracy.largest_gap([group("a", 1.4, 0.1, 40), group("b", 0.1, 0.1, 40)], "lower", math.inf)
    assert (gap.best, gap.worst, gap.value) == ("b", "a", pytest.approx(1.3))
    assert gap.high > 1.5


def test_a_group_s_figure_is_that_of_its_items_alone():
    """40 items half right, 31 all right, 29 too few: Wilson's bounds of each."""
    right = {index: index < 20 or index >= 40 for index in range(100)}
    names = {index: "half" if index < 40 else "all" if index < 71 else "few" for index in range(100)}
    parts_by_name = {scored_group.part.name: scored_group.part for scored_group in item_accuracy.scored_groups(names, parts.Share(right))}
    assert {name: (part.value, part.images) for name, part in parts_by_name.items()} == {
        "half": (0.5, 40),
        "all": (1.0, 31),
        "few": (None, 29),
    }
    assert (parts_by_name["half"].low, parts_by_name["half"].high) == wilson_interval(20, 40)
