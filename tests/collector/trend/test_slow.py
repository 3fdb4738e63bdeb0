"""Test slow changes under noise that the method does not assume.

Neighbours share .4 of it, and there are weekends and heavy tails.
"""

import numpy as np
import pytest

from edgemeter.collector.trend.series_trend import is_event
from edgemeter.collector.trend.slow import may_be_slow
from tests.collector.trend.worlds import findings, reported, until, world


def test_a_quarter_of_a_per_cent_a_month_is_a_drift_within_a_year_and_no_step():
    """Nearly every series shows the drift, with an interval that holds it.

    The finding has since when it drifts, and the total.
    """
    trends = findings(world("drift 0.25", "all", 8))
    drifts = [trend.drift for trend in trends if trend.drift]
    assert len(drifts) >= 7
    assert sum(drift.low <= 0.25 <= drift.high for drift in drifts) >= len(drifts) - 1
    assert np.median([drift.total for drift in drifts]) == pytest.approx(3.3, abs=0.5)
    assert all(reported(trend) == [trend.drift] for trend in trends if trend.drift)


def test_a_fast_drift_makes_no_step():
    """It makes none where it begins late or is over, too."""
    for name in ("drift 2 from day 300", "drift 2 until day 150"):
        trends = findings(world(name, "all", 4))
        assert all(
            trend.drift and trend.drift.low < 2.02 < trend.drift.high for trend in trends[:3]
        )
        assert all(reported(trend) == [trend.drift] for trend in trends)
        assert {trend.drift.is_over for trend in trends} == {"until" in name}
        assert [trend.drift.day - 20_000 for trend in trends] == pytest.approx(
            [300 if "300" in name else 0] * 4, abs=5
        )


def test_steps_are_no_drift():
    """Three upward steps of 4% within a year are three steps, on their days."""
    for trend in findings(world("steps 4 at 100 200 300", "all", 4)):
        assert [step.day - 20_000 for step in trend.steps] == pytest.approx([100, 200, 300], abs=3)
        assert trend.drift is None


def test_a_step_in_a_drift_has_its_own_size():
    """A step of six per cent does not include two months of the drift.

    The level drifts by half a per cent a month.
    """
    trends = findings(world("step 6 in drift .5", "all", 6))
    sizes = [
        step.size for trend in trends for step in trend.steps if is_event("latency_p50_ms", step)
    ]
    assert len(sizes) == 6
    assert np.mean(sizes) == pytest.approx(6.18, abs=0.4)
    assert all(trend.drift.low < 0.5 < trend.drift.high for trend in trends[:4])


def test_stable_series_have_no_drift():
    """There is none at any of three looks in a year."""
    series = world("flat", "ar .6", 6)
    for points in (60, 200, 390):
        assert not any(
            reported(trend) for trend in findings([until(days, points) for days in series])
        )


def test_what_moves_less_than_it_has_to_is_not_fitted():
    """By the means of parts a line of 2% may be one of 1.35%, one of half a per cent is none."""
    line, noise = np.linspace(0, 1, 200), 0.3 * np.random.default_rng(1).normal(size=200)
    assert may_be_slow(2.0 * line + noise, 1.35)
    assert not may_be_slow(0.5 * line + noise, 1.35)
