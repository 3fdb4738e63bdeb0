"""The rise of the newest days: found within three days where it is true, and not where days scatter."""

import numpy as np
import pytest

from edgemeter.collector.trend.days import Days
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.rise import RiseLimits, rise_of

USUAL = RiseLimits(by=5.0, against_days=14, over_days=2)


def days_of(x, day=None):
    """Return days of the latency with these values on its scale (100 ln ms)."""
    x = np.asarray(x, dtype=float)
    day = np.arange(len(x)) if day is None else np.asarray(day)
    size = len(x)
    return Days(day, x, np.full(size, 1e-4), np.ones(size, np.int64), np.full(size, np.nan), ((),) * size, 0.05)


def rise(x, limits=USUAL, **changes):
    """Return the rise at the end of these values."""
    return rise_of(METRICS["latency_p50_ms"], days_of(x), limits, **changes)


def first_day(x, start):
    """Return how many days after `start` a rise is found first, a thousand if never."""
    return next((day - start + 1 for day in range(start, len(x)) if rise(x[: day + 1])), 1000)


def test_six_per_cent_at_a_noise_of_a_per_cent_are_found_within_three_days():
    """In twenty series; most of them on the second day, the first on which two days can agree."""
    draw = np.random.default_rng(1)
    late = []
    for _ in range(20):
        x = 0.8 * draw.normal(size=45)
        x[30:] += 100 * np.log(1.06)
        late.append(first_day(x, 30))
    assert np.mean(np.array(late) <= 3) >= 0.95
    assert np.median(late) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("noise", [0.8, 4.0])
def test_a_stable_series_has_a_rise_in_two_hundred_days_in_one_case_of_fifty_at_most(noise):
    """Also where days scatter by almost as much as the ratio: then they have to stand out from that."""
    draw = np.random.default_rng(2)
    assert np.mean([first_day(noise * draw.normal(size=230), 20) < 1000 for _ in range(50)]) <= 0.02


def test_one_wild_day_is_no_rise():
    """Twice the latency on the newest day, and as ever on the one before."""
    x = 0.5 * np.random.default_rng(3).normal(size=40)
    x[-1] += 70
    assert rise(x) is None


def test_size_levels_and_days_are_reported():
    """Ten per cent over the last three days, and a fall as well."""
    x = np.full(40, 230.0) + 0.1 * np.random.default_rng(4).normal(size=40)
    x[-3:] += 100 * np.log(1.1)
    risen = rise(x, RiseLimits(by=5.0, against_days=20, over_days=3))
    assert risen.size == pytest.approx(10, abs=0.3)
    assert risen.after / risen.before == pytest.approx(1.1, abs=0.003)
    assert (risen.day, risen.last_day, risen.over_days, risen.against_days, risen.is_worse) == (37, 39, 3, 20, True)
    assert rise(-x).is_worse is False
    assert rise(x, RiseLimits(by=12.0, against_days=20, over_days=3)) is None


def test_too_few_days_before_and_those_before_an_expected_new_level_do_not_count():
    """Five points within the days before are needed."""
    x = np.r_[np.zeros(20), np.full(2, 8.0)]
    assert rise(x) is not None
    assert rise(x, begin_day=17) is None
    assert rise(x[-6:]) is None
    far = days_of(x, day=[*range(20), 60, 61])
    assert rise_of(METRICS["latency_p50_ms"], far, USUAL) is None


def test_a_rise_lasts_until_it_is_the_level_of_the_days_before_or_is_gone():
    """Its first day stays; one day back at the old level does not end it, all of them do."""
    x = 0.5 * np.random.default_rng(5).normal(size=40)
    x[30:] += 8
    assert {rise(x[: size + 1]).day for size in range(31, 40)} == {30}
    x[38] -= 8
    assert rise(x).day == 30
    gone = np.r_[x[:33], np.zeros(5)]
    assert rise(gone) is None


def test_the_days_before_are_as_many_as_asked_for():
    """The fifth day of five counts: with the four after it alone there is no level to rise from."""
    x = np.r_[np.zeros(20), np.full(2, 8.0)]
    assert rise(x, RiseLimits(by=5.0, against_days=5, over_days=2)).day == 20
    assert rise(x, RiseLimits(by=5.0, against_days=4, over_days=2)) is None
