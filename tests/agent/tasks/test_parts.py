"""Facts about figures over parts of the images, and the bounds of a difference of two models."""

import math

import numpy as np
import pytest

from edgemeter.agent.base.evidence import accuracy_difference
from edgemeter.agent.base.statistics import jackknife_error
from edgemeter.agent.tasks import parts
from edgemeter.agent.tasks.parts import PARTS, Jackknifed, Share, numbered, without_parts


def test_two_models_get_the_same_parts_of_the_same_images():
    """The order of the images does not matter, and every image is left out once."""
    images = list(range(100, 145))
    subsets, other = ([], [])
    without_parts(images, lambda subset: subsets.append(set(subset)) or 0.0)
    without_parts(images[::-1], lambda subset: other.append(set(subset)) or 0.0)
    assert subsets == other
    left_out = [set(images) - subset for subset in subsets]
    assert len(left_out) == PARTS
    assert sorted(image for part in left_out for image in part) == images


def test_classes_of_one_name_are_numbered():
    """No class's figure replaces another one's."""
    assert numbered(["cat", "dog", "cat"]) == ["cat", "dog", "cat (2)"]


def test_a_figure_without_bounds_states_why():
    """Its bounds are not stated as 1 and 1.

    There may be too few images, one part with all objects, or no part that changes it.
    """
    assert Jackknifed(lambda _: 0.5).bounded(range(19)).reason == "fewer than 20 images"
    assert without_parts(range(19), lambda _: 0.5) == ()
    assert (
        "there is nothing to find"
        in Jackknifed(lambda subset: 0.5 if 7 in subset else None).bounded(range(40)).reason
    )
    bounds = Jackknifed(lambda _: 1.0).bounded(range(100))
    assert (bounds.low, bounds.high, len(bounds.without_parts)) == (None, None, PARTS)
    assert bounds.reason == "none of 20 parts of the images changes the figure"


def test_a_share_has_bounds_where_all_is_right():
    """By Wilson's bounds, of 100 right answers at least 96.3% are right."""
    bounds = Share(dict.fromkeys(range(100), True)).bounded(range(100))
    assert (bounds.low, bounds.high, bounds.reason) == (pytest.approx(0.963, abs=5e-4), 1.0, None)


def test_copies_of_an_item_are_no_further_evidence():
    """For 20 items, each five times, the bounds are those of 20.

    With fewer different items there are no bounds from parts.
    """
    hard, copies = (
        np.random.default_rng(1).random(20),
        {number: number % 20 for number in range(20, 100)},
    )
    mean = Jackknifed(lambda members: float(np.mean([hard[number % 20] for number in members])))
    right = Share({number: bool(hard[number % 20] < 0.7) for number in range(100)})
    for figure in (mean, right):
        few, many = figure.bounded(range(20)), figure.bounded(range(100), copies=copies)
        assert (many.low, many.high) == pytest.approx((few.low, few.high))
        assert many.without_parts == pytest.approx(few.without_parts)
    assert (
        mean.bounded(range(100), copies=dict.fromkeys(range(19, 100), 18)).reason
        == "fewer than 20 images"
    )
    # One item that is there 81 times among 20 different ones is most of the share.
    bounds = right.bounded(range(100), copies=dict.fromkeys(range(20, 100), 0))
    assert bounds.high - bounds.low > 0.5


def test_the_error_of_a_mean_is_its_standard_error():
    """For parts of one item, the jackknife is sd / sqrt(n).

    Sums of the same values in another order have no spread.
    """
    assert jackknife_error([0.1 + 0.2, 0.3] * 10) is None
    assert jackknife_error([0.3 + 1e-6, 0.3] * 10) > 0
    values = np.random.default_rng(1).normal(size=PARTS)
    without_one = [(values.sum() - value) / (PARTS - 1) for value in values]
    assert jackknife_error(without_one) == pytest.approx(values.std(ddof=1) / np.sqrt(PARTS))


def test_what_is_hard_for_both_narrows_the_bounds_of_their_difference():
    """95% of the bounds hold, at about half the width of independent ones.

    The figure is top-1 of two models on 200 images, one 4 points better.
    """
    draw = np.random.default_rng(2)
    hits, widths, independent = 0, [], []
    for _ in range(60):
        hard = draw.random(200)
        better, other = (hard + 0.1 * draw.normal(size=200) < limit for limit in (0.74, 0.70))
        parts = [
            without_parts(range(200), lambda subset, right=right: float(right[list(subset)].mean()))
            for right in (better, other)
        ]
        low, high = accuracy_difference(*parts, better.mean() - other.mean()).bounds()
        hits += low <= 0.04 <= high
        widths.append(high - low)
        independent.append(2 * 2.093 * np.hypot(*map(jackknife_error, parts)))
    assert hits >= 54
    assert np.mean(widths) < 0.6 * np.mean(independent)


def test_recordings_without_an_error_have_an_upper_bound():
    """Of thirty utterances without an error, at most one in eight is all wrong."""
    bounds = Jackknifed(lambda _: 0.0, limits=(0.0, np.inf), is_mean=True).bounded(
        range(30), "utterances"
    )
    assert (bounds.low, bounds.high) == (0.0, pytest.approx(0.1274, abs=1e-4))


def test_the_bounds_of_a_word_error_rate_hold():
    """With errors in bursts over twenty utterances, only 87% of plain-scale bounds held."""
    random = np.random.default_rng(4)
    holds = 0
    for _ in range(100):
        words = np.round(random.lognormal(2.6, 0.6, 20)) + 1
        wrong = random.poisson(0.05 * words * random.gamma(1, 1, 20))
        figure = Jackknifed(
            lambda subset, wrong=wrong, words=words: float(
                wrong[list(subset)].sum() / words[list(subset)].sum()
            ),
            limits=(0.0, np.inf),
            is_mean=True,
        )
        bounds = figure.bounded(range(20), "utterances")
        holds += bounds.low <= 0.05 <= bounds.high
    assert 90 <= holds <= 99


def test_bounds_reach_1_96_standard_errors_and_stay_within_the_limits():
    """The normal quantile applies on the scale of log odds, or of a rate's logarithm.

    A ratio has no bound below 0 or above 1.
    """
    low, high = parts.between(0.5, 1e-4, math.inf)
    assert (low, high) == (
        pytest.approx(0.5 - 1.959964e-4, abs=1e-9),
        pytest.approx(0.5 + 1.959964e-4, abs=1e-9),
    )
    assert parts.between(0.5, 0.1, math.inf) == (pytest.approx(0.3134615), pytest.approx(0.6865385))
    low, high = parts.between(0.99, 0.1, math.inf)
    assert 0 < low < 0.99 < high <= 1
    low, high = parts.between(0.1, 0.05, math.inf, (0.0, math.inf))
    assert (low, high) == (
        pytest.approx(0.1 * math.exp(-0.979982)),
        pytest.approx(0.1 * math.exp(0.979982)),
    )
    # At a limit itself.
    assert parts.between(0.0, 0.1, math.inf) == (0.0, pytest.approx(0.1959964))
    assert parts.between(0.0, 0.1, math.inf, (-1.0, 1.0)) == (
        pytest.approx(-0.1935247, abs=1e-6),
        pytest.approx(0.1935247, abs=1e-6),
    )
    # An error from few parts reaches further: Student's t with 19 degrees of freedom, 2.093
    # standard errors.
    assert parts.between(0.5, 1e-4, 19)[1] == pytest.approx(0.5 + 2.093024e-4, abs=1e-9)
