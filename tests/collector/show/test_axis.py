import math

import pytest

from edgemeter.collector.show import drawing

ODD = [[], [0.0], [5.0], [5.0, 5.0], [0.0, 0.0], [-3.0, 4.0], [1e-300, 1e300], [math.nan, math.inf, 2.0], [1e-6, 1e12], [0.4, 0.41]]


@pytest.mark.parametrize("values", ODD)
@pytest.mark.parametrize("make", [drawing.amounts_axis, drawing.shares_axis])
def test_an_axis_is_finite_and_rising_whatever_the_values_are(make, values):
    """Nothing, one value, equal values, values that no latency has: every place and tick is a number on the sheet."""
    made = make(values, 40.0, 400.0)
    assert made.low < made.high
    assert all(40.0 <= made.place(value) <= 400.0 for value in [*made.ticks, made.low, made.high, *(v for v in values if math.isfinite(v))])
    assert all(made.label(tick) for tick in made.ticks)
    assert 1 <= len(made.ticks) <= 20


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.0, 9.7, ["0", "2", "4", "6", "8"]),
        (0.0, 0.97, ["0.0", "0.2", "0.4", "0.6", "0.8"]),
        (0.61, 0.66, ["0.61", "0.62", "0.63", "0.64", "0.65", "0.66"]),
        (0.0, 12_000.0, ["0", "5,000", "10,000"]),
    ],
)
def test_linear_ticks_are_one_two_or_five_times_a_power_of_ten(low, high, labels):
    """With as many decimals as the step needs."""
    made = drawing.linear_axis(low, high, 0.0, 100.0)
    assert [made.label(tick) for tick in made.ticks] == labels


def test_a_range_of_little_more_than_one_stays_linear_and_begins_at_zero():
    """Half the time is half the length."""
    made = drawing.amounts_axis([2.0, 8.0], 0.0, 100.0)
    assert (made.kind, made.low) == ("linear", 0.0)
    assert made.place(8.0) == pytest.approx(4 * made.place(2.0))


def test_a_wide_range_becomes_logarithmic_and_equal_ratios_equal_lengths():
    """2 ms and 700 ms are both readable."""
    made = drawing.amounts_axis([2.0, 700.0], 0.0, 100.0)
    assert made.kind == "log"
    assert made.place(20.0) - made.place(2.0) == pytest.approx(made.place(200.0) - made.place(20.0))
    assert [made.label(tick) for tick in made.ticks] == ["2", "5", "10", "20", "50", "100", "200", "500"]


def test_many_decades_have_a_tick_each():
    """1, 10, 100 and not three of each."""
    made = drawing.log_axis(0.01, 1000.0, 0.0, 100.0)
    assert [made.label(tick) for tick in made.ticks] == ["0.01", "0.1", "1", "10", "100", "1,000"]


def test_an_accuracy_axis_stays_within_zero_and_one():
    """No model is better than right."""
    made = drawing.shares_axis([0.0, 1.0], 0.0, 100.0)
    assert (made.low, made.high) == (0.0, 1.0)


@pytest.mark.parametrize("make", [drawing.linear_axis, drawing.log_axis])
def test_equal_ends_are_spread_apart(make):
    """One value stands in the middle of its axis."""
    made = make(5.0, 5.0, 0.0, 100.0)
    assert made.place(5.0) == pytest.approx(50.0)
    assert made.ticks


def test_an_axis_may_run_upward():
    """Where y grows downward, the start is the bottom."""
    made = drawing.linear_axis(0.0, 1.0, 300.0, 30.0)
    assert (made.place(0.0), made.place(1.0)) == (300.0, 30.0)
