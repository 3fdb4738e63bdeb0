"""The delays and false alarms that are published are the product's: the worlds go through scan, confirmation, size and alert."""

import pytest

from tests.collector.trend import stepped_worlds


@pytest.mark.nightly
@pytest.mark.parametrize(("case", "false_ratio"), [("clean", 0.01), ("mix", 0.05)])
def test_half_of_the_steps_of_three_sigma_are_reported_within_ten_days(case, false_ratio):
    """A step of 3% at 1% of noise; 32 days while it had to be clearly more than 3%. Stable series have hardly an alarm in 200 days."""
    delays = stepped_worlds.judged(case, 100)
    assert delays["days_to_3_sigma"] <= 10
    assert delays["found_3_sigma_in_30"] >= 0.85
    assert delays["false_alarm_ratio"] <= false_ratio
    assert delays["false_alarm_ratio_at_1_per_cent"] <= false_ratio
