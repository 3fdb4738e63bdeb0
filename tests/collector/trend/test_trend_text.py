"""Test the trend in words.

How often a board throttles is a sentence, the same in trend and alert.
"""

from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.collector.alerts.firing import FiringContext, firings
from edgemeter.collector.alerts.rules import AlertRule
from edgemeter.collector.trend import trend_text, watch
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days

STEP_DAY = 60


def throttling_days(before, after, *, device="pi-1"):
    """Return the runs of 90 days that throttle or not: before day 60, and from then on."""
    conditions = [
        (Condition(when="before", throttled_now=throttled),) for throttled in (before, after)
    ]
    first = make_days([100.0] * STEP_DAY, device=device, conditions=conditions[0])
    return first + make_days(
        [None] * STEP_DAY + [100.0] * 30, device=device, seq=1000, conditions=conditions[1]
    )


def test_throttling_is_a_sentence_in_the_trend_and_in_its_alert():
    """Both have the same words on how often, since when, and how often before, not points."""
    for before, after, sentence in (
        (False, True, "always throttles since 2024-12-03, never before"),
        (True, False, "no longer throttles since 2024-12-03, always before"),
    ):
        history = history_of(throttling_days(before, after))
        (trend,) = watch.trends_of(history, (), ("is_throttled",))
        text = trend_text.step_text("is_throttled", trend.steps[0])
        assert text.startswith(f"{sentence}; ")
        rule = AlertRule(name="step", kind="step", metrics=("is_throttled",), direction="both")
        (fired,) = firings((rule,), FiringContext(history, (), (), (FIRST_DAY + 90) * DAY_NS))
        assert fired.text == text
