"""Facts about the lines of `make bench`."""

from tests.benchmarks.__main__ import PARTS
from tests.benchmarks.comparison import Line, at_least, at_most, compared_pairs


def verdict(goal, *ratios):
    """Return what becomes of a goal after ten pairs that have these ratios in turn."""
    return compared_pairs(Line("n", "ms", "p", goal), [(ratio, 1.0) for ratio in ratios * (10 // len(ratios))]).verdict


def test_a_goal_is_met_or_missed_where_the_interval_decides():
    """1% above misses a goal of 0.2% and meets one of 2%; where the goal lies within the interval, or that is too wide, nothing is sure."""
    assert [verdict(at_most(limit), 1.01) for limit in (1.002, 1.02)] == ["missed", "met"]
    assert verdict(at_most(1.01), 1.0, 1.02) == "not sure"
    assert [verdict(at_most(1.1, reach), 1.0, 1.02) for reach in (0.001, 0.1)] == ["not sure", "met"]
    assert [verdict(at_least(limit), 1.0, 1.02) for limit in (0.9, 1.1)] == ["met", "missed"]
    assert verdict(None, 1.0, 1.02) == ""


def test_all_lines_have_fifteen_minutes_together():
    """The shares of the parts that run by default."""
    assert sum(part.takes_s for part in PARTS.values() if not part.is_long) <= 15 * 60
