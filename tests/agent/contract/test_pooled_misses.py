"""Facts about `edgemeter.agent.contract.pooled_misses`."""

import math

import pytest

from edgemeter.agent.base.statistics import exact_interval
from edgemeter.agent.contract.pooled_misses import pooled_misses
from tests.fixtures.record_factory import make_steady


def pooled(*missed, frames=900):
    """Return what runs of so many frames missed together."""
    return pooled_misses(make_steady(frames=frames, late=late, missed_ratio=late / frames) for late in missed)


def test_the_interval_is_students_t_on_the_shares_of_the_runs():
    """Shares of 1, 2 and 3%: the standard deviation is one point, and t of two degrees of freedom 4.30265; none reaches below 0."""
    runs = pooled(1000, 2000, 3000, frames=100_000)
    reach = 0.01 * 4.302652729911275 / math.sqrt(3)
    assert runs.ratio == 0.02
    assert runs.bounds == pytest.approx((max(0.0, 0.02 - reach), 0.02 + reach))


def test_runs_that_missed_none_have_the_interval_of_the_counted_frames():
    """2,700 frames without a miss leave 0.14% possible."""
    assert pooled(0, 0, 0).bounds == exact_interval(0, 2700)


def test_two_runs_have_a_share_and_no_interval():
    """Nor is anything said of no runs."""
    assert (pooled(9, 9).ratio, pooled(9, 9).bounds) == (0.01, None)
    assert pooled_misses([None]) is None


@pytest.mark.parametrize(
    ("missed", "frames", "is_held"),
    [((8, 8), 900, True), ((9, 9), 900, False), ((0, 9), 900, None), ((0, 0), 149, None), ((0, 0), 150, True)],
)
def test_a_rate_is_held_where_every_run_missed_less_than_1_percent(missed, frames, is_held):
    """It is open where the runs disagree, and below 300 frames in all."""
    assert pooled(*missed, frames=frames).is_held is is_held
