import math

import numpy as np
import pytest

from edgemeter.agent.base.run_statistics import interval_of_ratio, median_interval
from edgemeter.collector.compare import spread as compare_spread
from edgemeter.collector.compare.spread import RunPoint
from tests.fixtures.rows import table_row

DAYS = 10


def points(values, device="pi-1", day=0):
    """Return a point for each value, of one device on one day."""
    return [RunPoint(value, device, day) for value in values]


def test_the_interval_is_that_of_the_agent():
    """`compare` of models and of results would otherwise give two answers to one question."""
    for count in (3, 4, 5, 6, 7, 12, 60, 1000):
        with table_row(count):
            values = np.random.default_rng(count).lognormal(0, 0.1, count).tolist()
            expected = median_interval(values)
            interval = compare_spread.interval_of_points(points(values))
            assert (interval.low, interval.high) == (expected.low, expected.high)


def test_the_interval_interpolates_between_exact_order_statistics():
    """By whole numbers, which logarithms of the gamma function must come close to; also where 2**1024 and more does not fit a float."""
    for count in (6, 7, 60, 1000):
        with table_row(count):
            ordered = np.sort(np.random.default_rng(count).lognormal(0, 0.1, count))
            coverage = 1 - 2 * np.cumsum([math.comb(count, rank) for rank in range(count // 2 + 1)]) / 2.0**count
            inner = int(np.searchsorted(-coverage, -0.95, side="right"))
            share = (coverage[inner - 1] - 0.95) / (coverage[inner - 1] - coverage[inner])
            weight = (count - inner) * share / (inner + (count - 2 * inner) * share)
            bounds = [(1 - weight) * side[inner - 1] + weight * side[inner] for side in (ordered, ordered[::-1])]
            interval = median_interval(ordered.tolist())
            assert (interval.low, interval.high) == pytest.approx(bounds, rel=1e-9)
    interval = median_interval([1.0 + index / 5000 for index in range(5000)])
    assert 1.45 < interval.low < 1.5 < interval.high < 1.55


def suspicion_of(values, days=None):
    """Return the interval of one run a day on one board."""
    return compare_spread.interval_of_points(
        [RunPoint(value, "pi-1", day) for day, value in zip(days or range(len(values)), values, strict=True)]
    )


def test_a_step_that_is_not_confirmed_yet_is_within_the_interval_and_named():
    """Twenty days, then some 6% higher: the interval reaches the level since; days without a run shift no date."""
    level = np.exp(0.004 * np.random.default_rng(3).normal(size=27))
    for at in (25, 20, 10, 2):
        with table_row(at):
            values = np.where(np.arange(27) < at, level, 1.06 * level)
            interval = suspicion_of(values)
            assert interval.step_day == at
            assert interval.low <= np.median(values) < 1.061 < interval.high
    gaps = [*range(20), *range(30, 37)]
    interval = suspicion_of(np.where(np.arange(27) < 20, level, 1.06 * level), gaps)
    assert (interval.step_day, interval.suspicion) == (30, "a step is suspected on 1970-01-31")


def test_the_last_day_alone_is_no_step():
    """It may be an outlier; nor are there two levels in four days, or in values that never change."""
    level = np.exp(0.01 * np.random.default_rng(3).normal(size=27))
    for values in ([*level[:26], 1.2], [1.0, 1.0, 1.2, 1.2], [1.0] * 9, [1.0, 1.0, 1.0]):
        with table_row(len(values)):
            assert suspicion_of(values).step_day is None


@pytest.mark.nightly
@pytest.mark.parametrize(("days", "correlation"), [(5, 0.0), (40, 0.5)])
def test_level_histories_are_marked_in_at_most_one_of_twenty_comparisons(days, correlation):
    """Two sides, either of which may be marked; where days are independent nine of ten intervals stay as they were."""
    draw, marked, wider, trials = np.random.default_rng(days), 0, 0, 300
    for _ in range(2 * trials):
        noise = draw.normal(size=days + 20)
        for index in range(1, len(noise)):
            noise[index] = correlation * noise[index - 1] + math.sqrt(1 - correlation**2) * noise[index]
        values = np.exp(0.01 * noise[20:])
        interval, plain = suspicion_of(values), median_interval(values.tolist())
        marked += interval.step_day is not None
        wider += interval.high / interval.low > plain.high / plain.low * (1 + 1e-9)
    assert marked / trials <= 0.05
    assert correlation or wider / (2 * trials) <= 0.12


def test_thirty_days_show_that_they_are_independent():
    """Then nothing is taken for granted; days that wander say so."""
    noise = 0.01 * np.random.default_rng(3).normal(size=40)
    wandering = np.convolve(noise, np.ones(5), "valid")
    assert (suspicion_of(np.exp(noise)).within, suspicion_of(np.exp(noise[:20])).within) == (
        "this board",
        "this board, days taken as independent",
    )
    assert suspicion_of(np.exp(wandering)).within == "this board, days that depend on each other"


def test_two_runs_have_no_interval_and_two_days_that_of_their_runs():
    """Nor has a figure that is not above zero: it has no logarithm."""
    assert compare_spread.interval_of_points(points([1.0, 2.0])) is None
    assert compare_spread.interval_of_points(points([1.0, 2.0, 0.0])) is None
    interval = compare_spread.interval_of_points([*points([1.0, 1.1, 1.2]), *points([1.0, 1.1, 1.2], day=1)])
    assert (interval.level, interval.members, interval.days, interval.over) == ("run", 6, 2, "6 runs")


def test_runs_count_as_days_and_days_as_devices():
    """A thousand runs on three days are three days, far wider than their runs; many days of three boards are three boards."""
    spread = [point for day, level in enumerate((1.0, 1.1, 1.2)) for point in points([level] * 300, day=day)]
    interval = compare_spread.interval_of_points(spread)
    assert (interval.level, interval.members, interval.days, interval.runs) == ("day", 3, 3, 900)
    assert (interval.low < 1.0, interval.high > 1.2) == (True, True)
    spread = [point for device in "abc" for day in range(DAYS) for point in points([1.0 + day / 100], device, day)]
    interval = compare_spread.interval_of_points(spread)
    assert (interval.level, interval.members, interval.devices, interval.days) == ("device", 3, 3, DAYS)


@pytest.mark.nightly
@pytest.mark.parametrize(("days", "runs", "day_sd", "at_least"), [(5, 3, 0.01, 0.95), (2, 5, 0.03, 0.93)])
def test_the_interval_of_a_ratio_holds_its_truth_in_95_of_100_trials(days, runs, day_sd, at_least):
    """Two cases of one truth; two days that differ widen it to what the next may be, without which 63% of the last would hold; seeded."""
    source, hits, trials = np.random.default_rng(4), 0, 300
    for _ in range(trials):
        sides = []
        for _ in range(2):
            levels = source.normal(0, day_sd, days)
            noise = source.normal(0, 0.01, (days, runs))
            spread = [point for day in range(days) for point in points(np.exp(levels[day] + noise[day]).tolist(), day=day)]
            interval = compare_spread.interval_of_points(spread)
            sides.append((float(np.median([point.value for point in spread])), (interval.low, interval.high)))
        low, high = interval_of_ratio(*sides[0], *sides[1])
        hits += low <= 1 <= high
    assert at_least <= hits / trials
    # With days enough the interval is no wider than it has to be.
    assert days < 5 or hits / trials <= 0.999


def test_the_interval_of_unequal_days_holds_the_median_that_is_shown():
    """Twenty runs of one day pull the median over all runs out of what the other days span; of a ratio it holds the ratio."""
    interval = compare_spread.interval_of_points(
        [*points([12.0] * 20, day=0), *(point for day in range(1, 12) for point in points([10.0 + day / 100], day=day))]
    )
    assert (interval.level, interval.members) == ("day", 12)
    assert (interval.low < 10.2, interval.high >= 12.0) == (True, True)
    low, high = interval_of_ratio(5.0, (1.0, 2.0), 1.0, (0.9, 1.1))
    assert low <= 5.0 <= high


def test_what_a_meter_may_be_wrong_by_widens_in_squares():
    """3% over runs and 4% of the meter are 5%."""
    low, high = compare_spread.widened_interval((10 * math.exp(-0.03), 10 * math.exp(0.03)), 10.0, 10 * math.expm1(0.04))
    assert math.log(high / 10) == pytest.approx(0.05)
    assert math.log(10 / low) == pytest.approx(0.05)


def test_an_interval_states_what_was_not_sampled():
    """Of one day and one board it holds neither other days nor other boards."""
    for devices, days, within in (
        (1, 1, "this day, this board"),
        (1, 2, "these 2 days, this board"),
        (2, 1, "this day, these 2 boards"),
        (1, 5, "this board, days taken as independent"),
        (2, 5, "these 2 boards, days taken as independent"),
        (3, 2, ""),
    ):
        with table_row(devices, days):
            run_points = [
                RunPoint(10 + 0.01 * index, f"pi-{device}", day) for device in range(devices) for day in range(days) for index in range(3)
            ]
            assert compare_spread.interval_of_points(run_points).within == within


def test_runs_that_lie_too_far_apart_for_a_float_have_no_interval_or_a_finite_one():
    """Any board can send them; one day each, as the search for dependent days works on ratios."""
    extremes = (5e-324, 1e308, 1e-200, 1e200)
    for count in (3, 4, 5, 6, 9, 20):
        with table_row(count):
            runs = [RunPoint(extremes[number % len(extremes)], "pi-1", number) for number in range(count)]
            interval = compare_spread.interval_of_points(runs)
            assert interval is None or 0 <= interval.low <= interval.high < float("inf")
