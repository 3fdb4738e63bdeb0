"""Facts about `edgemeter.agent.base.run_statistics`; each is held against a count of all possibilities or a closed form."""

from itertools import combinations, product
from math import comb, erf, exp, inf, log

import numpy as np
import pytest

from edgemeter.agent.base import run_statistics
from tests.fixtures.rows import table_row


def test_three_runs_have_students_interval_on_logarithms():
    """They are exp of the mean of the logs -/+ t(2) s / sqrt 3."""
    values = [1.0, 1.1, 1.21]
    interval = run_statistics.median_interval(values)
    reach = 4.302653 * log(1.1) / 3**0.5
    assert (interval.low, interval.high) == (pytest.approx(1.1 * exp(-reach)), pytest.approx(1.1 * exp(reach)))


def test_five_runs_have_their_range_a_little_widened():
    """A twentieth of the range each way, on logarithms; equal runs have no width."""
    interval = run_statistics.median_interval([4.0, 1.0, 3.0, 2.0, 2.5])
    assert (interval.low, interval.high) == (pytest.approx(4**-0.05), pytest.approx(4**1.05))
    assert run_statistics.median_interval([2.0] * 5) == run_statistics.Interval(2.0, 2.0)


def test_more_runs_have_interpolated_order_statistics():
    """The bounds lie between the order statistics that have just more and just less than 95%, whatever the distribution."""
    for count in [6, 7, 8, 10, 13, 20, 50]:
        with table_row(count):
            values = np.sort(np.random.default_rng(count).lognormal(0, 1, count))
            interval = run_statistics.median_interval(values[::-1].tolist())
            coverage = [1 - 2 * sum(comb(count, below) for below in range(rank)) / 2**count for rank in range(1, count // 2 + 1)]
            wide = max(rank for rank, confidence in enumerate(coverage) if confidence >= 0.95)
            assert values[wide] <= interval.low < values[wide + 1]
            assert values[-wide - 2] < interval.high <= values[-wide - 1]


def test_signed_ranks_hold_what_all_signs_give():
    """For ten pairs, exactly the shifts outside the interval have a Wilcoxon p of at most 5%, counted over all 1,024 signs."""
    differences = np.random.default_rng(2).normal(0.3, 1, 10)
    interval = run_statistics.pair_interval(differences)

    def p(shift):
        shifted = differences - shift
        ranks = np.abs(shifted).argsort().argsort() + 1
        rank_sum = ranks[shifted > 0].sum()
        sums = np.array([np.dot(signs, ranks) for signs in product((0, 1), repeat=10)])
        return min(1.0, 2 * min((sums <= rank_sum).mean(), (sums >= rank_sum).mean()))

    assert [p(shift) <= 0.05 for shift in (interval.low - 1e-9, interval.low + 1e-9)] == [True, False]
    assert [p(shift) <= 0.05 for shift in (interval.high - 1e-9, interval.high + 1e-9)] == [False, True]


def test_few_pairs_have_students_interval():
    """Nine pairs and fewer: mean -/+ t s / sqrt n; one pair has none."""
    interval = run_statistics.pair_interval([1.0, 3.0, 0.0, 2.0])
    reach = 3.182446 * (5 / 3) ** 0.5 / 2
    assert (interval.low, interval.high) == (pytest.approx(1.5 - reach), pytest.approx(1.5 + reach))
    assert run_statistics.pair_interval([1.0]) is None
    # 99.9% asks for a p below the smallest that the signs of ten pairs can give (2 / 1,024).
    assert run_statistics.pair_interval(np.arange(10.0), 0.999) == run_statistics.Interval(-inf, inf)


def test_an_interval_of_neighbours_that_depend_is_wider():
    """The same pairs in an order in which neighbours are alike: the interval widens about its centre, by at least what 0.6 would make."""
    values = np.random.default_rng(3).normal(0.0, 1.0, 20)
    assert run_statistics.neighbour_widening(values) == 1
    rising, mixed = run_statistics.pair_interval(np.sort(values)), run_statistics.pair_interval(values)
    widening = run_statistics.neighbour_widening(np.sort(values))
    assert widening > run_statistics.widening_of(20) > 2
    assert rising.high - rising.low == pytest.approx(widening * (mixed.high - mixed.low))
    assert [run_statistics.neighbour_widening(row) for row in ([], [1.0], [1.0, 2.0, 3.0], [2.0] * 10)] == [1] * 4


def test_the_centre_is_not_moved_by_a_few_wild_pairs():
    """The Hodges-Lehmann estimate of ten pairs around 0.01, two of them disturbed, stays near 0.01."""
    assert run_statistics.centre([0.010, 0.011, 0.009, 0.010, 0.012, 0.008, 0.010, 0.011, 0.9, 0.7]) == pytest.approx(0.0105, abs=0.001)


def test_mann_whitney_is_exact_for_few_runs():
    """The p equals the share of all ways to divide the ranks that are as extreme."""
    draw = np.random.default_rng(3)
    for _ in range(5):
        a, b = draw.normal(0, 1, 5), draw.normal(1, 1, 6)
        ranks = np.concatenate([a, b]).argsort().argsort()
        sums = np.array([sum(ranks_of_a) for ranks_of_a in combinations(range(11), 5)])
        rank_sum = ranks[:5].sum()
        exact = min(1.0, 2 * min((sums <= rank_sum).mean(), (sums >= rank_sum).mean()))
        assert run_statistics.mann_whitney_p(a, b) == pytest.approx(exact, rel=1e-12)


def test_mann_whitney_takes_ties_and_many_runs():
    """With ties the variance is corrected: two of four tied with all of the others, by hand; nothing but ties has no p."""
    # U = 6 of 12, no difference: p is 1 after the continuity correction.
    assert run_statistics.mann_whitney_p([1, 1, 2, 2], [1, 2, 1.5]) == 1.0
    # U = 400 of 441 cells; variance without ties 441 * 43 / 12, one tied pair takes 441 / 12 * 6 / (42 * 41) off.
    a, b = np.arange(21.0), np.arange(21.0) + 20
    sd = (441 / 12 * (43 - 6 / (42 * 41))) ** 0.5
    z = (441 - 0.5 - 441 / 2 - 0.5) / sd
    assert run_statistics.mann_whitney_p(a, b) == pytest.approx(1 - erf(z / 2**0.5), rel=1e-6)
    assert run_statistics.mann_whitney_p([1, 1], [1, 1, 1]) is None
    assert run_statistics.mann_whitney_p([], [1.0]) is None


def test_welch_is_students_t_where_spreads_and_counts_are_equal():
    """Its t and degrees of freedom are then those of the pooled test: t = 3, 8 degrees, p = 0.01707."""
    a = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    assert run_statistics.welch_p(a, a + 3.0) == pytest.approx(0.0170717, abs=1e-6)
    assert run_statistics.welch_p([1.0], a) is None
    assert run_statistics.welch_p([1.0, 1.0], [1.0, 1.0]) is None


def test_hedges_g_is_the_difference_in_standard_deviations():
    """Three apart at a standard deviation of sqrt 2.5, times 1 - 3 / 31 for ten runs; above 0 where b is the larger."""
    a = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    assert run_statistics.hedges_g(a, a + 3.0) == pytest.approx(3 / 2.5**0.5 * (1 - 3 / 31))
    assert run_statistics.hedges_g(a + 3.0, a) < 0
    assert run_statistics.hedges_g([1.0, 1.0], [2.0, 2.0]) is None
    assert run_statistics.hedges_g([1.0], a) is None


def test_two_runs_and_runs_too_far_apart_for_a_float_have_no_interval():
    """A spread cannot be told from two runs; absurd values in a record end no comparison."""
    assert run_statistics.median_interval([1.0, 1.1]) is None
    assert run_statistics.median_interval([0.0, 1.0, 1.1]) is None
    assert run_statistics.median_interval([0.0, 0.0, 0.0, 0.0, 1.0]) is None
    assert run_statistics.median_interval([0.0] * 6) == run_statistics.Interval(0.0, 0.0)
    assert run_statistics.median_interval([1e-300, 1e300, 1e300]) is None
