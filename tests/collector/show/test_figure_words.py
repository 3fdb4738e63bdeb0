"""Facts about the words of compared figures."""

import math
import random
import re

import pytest

from edgemeter.agent.base.decision import decide
from edgemeter.agent.base.evidence import Evidence, RunValue
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, LATENCY, figure
from edgemeter.collector.compare.case_figure import figure_of_values
from edgemeter.collector.show.figure_words import (
    change_text,
    change_with_interval,
    confidence_text,
    decided_together,
    figure_text,
    outcome_text,
)


def values(*numbers):
    """Return runs of one board and day with these values."""
    return tuple(RunValue(number, "pi-1", 0) for number in numbers)


def ratio(value, error, units=5):
    """Return the decision on a latency that is so many times the reference's, with a standard error of its logarithm."""
    return decide(Evidence(math.log(value), error, units - 1, units, "run"), 0.95, 0.03, "lower")


def over(unit, value, error):
    """Return the decision on a latency over three units, or over one without an interval."""
    units = 1 if error is None else 3
    return decide(Evidence(math.log(value), error, units - 1, units, unit), 0.95, 0.03, "lower")


@pytest.mark.parametrize(
    ("name", "numbers", "unit", "text"),
    [
        ("latency_p50_ms", (138.0, 140.0, 142.0), "ms", "140 ms ± 5%"),
        ("latency_p50_ms", (138.0, 140.0), "ms", "139 ms"),
        ("latency_p50_ms", (100.0, 140.0, 300.0), "", "161 (40 to 653)"),
    ],
)
def test_a_figure_has_its_interval_from_three_runs_on(name, numbers, unit, text):
    """One that is wide has its ends."""
    assert figure_text(figure(name), figure_of_values(values(*numbers)), unit) == text


def test_an_accuracy_has_its_bounds():
    """And what was not measured has no value."""
    scored = figure_of_values(values(0.40, 0.41, 0.42), "points")
    assert figure_text(figure("accuracy_value"), scored) == "0.410 (0.385 to 0.435)"
    assert figure_text(figure("accuracy_value"), None) == "-"


@pytest.mark.parametrize(
    ("decision", "text", "interval", "outcome"),
    [
        (ratio(0.86, 0.02), "-14%", "-19 to -9%", "better"),
        (ratio(1.0, 0.001), "+0.0%", "-0.3 to +0.3%", "no difference above 3%"),
        (ratio(1.02, 0.02), "+2%", "-4 to +8%", "inconclusive; about 37 more runs would decide: measure with --repeats 42"),
        (ratio(0.25, 0.02), "4.0 times as fast", "3.8 to 4.2", "better"),
        (ratio(0.0001, 0.02), "10,000 times as fast", "9,460 to 10,571", "better"),
        (ratio(4.88, 0.02), "4.9 times as long", "4.6 to 5.2", "worse"),
        (ratio(1.96, 0.02), "+96%", "+85 to +107%", "worse"),
        (ratio(1.1, None, 1), "+10%", "", "inconclusive; 3 runs give an interval: measure with --repeats 3"),
        (
            decide(Evidence(-0.099, 0.02, 1000, 50, "image"), 0.95, 0.005, "higher", "points"),
            "-9.9 points",
            "-13.8 to -6.0",
            "worse",
        ),
        (
            decide(Evidence(-0.01, 0.02, 1000, 50, "image"), 0.95, 0.005, "higher", "points"),
            "-1.0 points",
            "-4.9 to +2.9",
            "inconclusive; more images would narrow it",
        ),
        (ratio(1.01, 0.3), "+1%", "-56 to +132%", "inconclusive; not even 100 more runs would decide"),
        (over("day", 1.13, 0.06), "+13%", "-13 to +46%", "inconclusive; about 5 more days would decide"),
        (over("pair", 1.13, 0.06), "+13%", "-13 to +46%", "inconclusive; about 5 more runs would decide: measure with --repeats 8"),
        (over("day", 1.13, None), "+13%", "", "inconclusive; 3 days give an interval"),
    ],
)
def test_a_change_has_the_interval_that_decides_it_and_its_outcome(decision, text, interval, outcome):
    """In per cent, from a factor of two on in times; what is not decided says how many more runs would."""
    with_interval = f"{text}{f' ({interval})' if interval else ''}"
    name = LATENCY if decision.scale == "ratio" else ACCURACY
    assert (change_text(name, decision), change_with_interval(name, decision), outcome_text(decision)) == (text, with_interval, outcome)


def test_only_a_latency_is_so_many_times_as_long_or_as_fast():
    """Other figures are so many times the other, or so many per cent lower."""
    assert change_with_interval(ENERGY, ratio(4.88, 0.02)) == "4.9 times (4.6 to 5.2)"
    assert change_with_interval(ENERGY, ratio(0.25, 0.02)) == "-75% (-76 to -74%)"
    assert change_with_interval(ENERGY, ratio(0.0001, 0.02)) == "-99.99%"


def test_no_interval_that_is_printed_contradicts_its_outcome():
    """Near no change and near the margin there are as many digits as tell on which side a bound lies."""
    chance = random.Random(1)  # noqa: S311 - the same decisions every time, no secret
    for _ in range(2000):
        is_ratio = chance.random() < 0.6
        size = chance.choice((0.001, 0.03, 0.3)) * chance.gauss(0, 1) * (1 if is_ratio else 0.1)
        scale, margin = ("ratio", 0.03) if is_ratio else ("points", 0.005)
        change = decide(Evidence(size, 10 ** chance.uniform(-4, -1.5), 5, 6, "run"), 0.95, margin, "lower", scale)
        text = change_with_interval(LATENCY if is_ratio else ACCURACY, change)
        ends = re.search(r"\(([-+\d.]+) to ([-+\d.]+)", text)
        if ends is None:
            # Both ends are written as the value is.
            assert change.high - change.low < 0.01
            continue
        assert len({len(end.partition(".")[2]) for end in ends.groups()}) == 1, text
        low, high = map(float, ends.groups())
        none = 1 if "times" in text else 0
        within = (-100 * margin / (1 + margin * is_ratio), 100 * margin)
        if change.outcome in ("better", "worse"):
            is_up = (change.outcome == "worse") or none == 1
            assert (low >= none) if is_up else (high <= none), change
        elif change.outcome == "inconclusive":
            assert low <= none <= high, change
        else:
            assert within[0] - 1e-9 < low <= high < within[1] + 1e-9, change


def test_a_confidence_that_is_not_95_is_written():
    """What is almost sure is not written as sure."""
    assert [confidence_text(*pair) for pair in ((0.975,), (0.95, 1 - 0.05 / 3), (1 - 0.05 / 2000,))] == ["97.5%", "95% to 98.3%", "99.997%"]
    alone, of_two = ratio(0.9, 0.02), decide(Evidence(-0.1, 0.02, 4, 5, "run"), 0.975, 0.03, "lower")
    assert decided_together([alone]) == ""
    sure = "the intervals of changes have 95% to 97.5% confidence, so that all decisions together have 95%"
    assert decided_together([alone, of_two, of_two]) == sure
