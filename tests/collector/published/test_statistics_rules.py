import pytest

from edgemeter.collector.published.rules import evidence_of
from tests.fixtures.published_rows import published_row


def judge(rule, *figures):
    """Return the evidence of a rule on the first of several figures of a case, None without."""
    rows = [published_row(figure, value, "a model", "a board", **dict(*fields)) for figure, value, *fields in figures]
    return next((entry for entry in evidence_of(rows[0], rows[1:]) if entry.rule == rule), None)


@pytest.mark.parametrize(
    ("images", "state"), [(4, "impossible"), (99, "impossible"), (100, "plausible"), (5000, "plausible"), (None, "unclear")]
)
def test_an_accuracy_needs_a_hundred_items(images, state):
    """Not stated is not few."""
    assert judge("too-few-items", ("accuracy", 61.0, {"images": images})).state == state


def test_the_interval_of_few_items_is_in_the_sentence():
    """Wilson's for 2.44 of 4: 0.211 to 0.901."""
    assert (
        "0.61 over 4 items has 95% bounds of 0.21 to 0.9 by chance alone"
        in judge("too-few-items", ("accuracy", 0.61, {"images": 4, "unit": "ratio"})).sentence
    )


def test_an_error_has_no_interval_of_a_share_and_may_be_above_one():
    """A word error rate of 112% is bad, not impossible."""
    assert "95%" not in judge("too-few-items", ("accuracy", 112.0, {"images": 500, "accuracy_metric": "WER"})).sentence
    assert judge("outside-metric", ("accuracy", 112.0, {"images": 500, "accuracy_metric": "WER"})) is None
    assert judge("outside-metric", ("accuracy", 112.0, {"images": 500, "accuracy_metric": "top-1"})).state == "impossible"
    assert judge("outside-metric", ("accuracy", 100.0, {"images": 500})) is None


@pytest.mark.parametrize(
    ("figure", "fields", "state"),
    [
        ("latency-p90", {"count": 63}, "impossible"),
        ("latency-p90", {"count": 64}, None),
        ("latency-p99", {"count": 661}, "impossible"),
        ("latency-p99", {"count": 662}, None),
        ("latency-p99", {}, "unclear"),
        ("ttft", {"statistic": "p95", "count": 129}, "impossible"),
        ("ttft", {"statistic": "p99.9", "count": 6635}, "impossible"),
        ("ttft", {"statistic": "median", "count": 3}, None),
        ("latency", {"count": 3}, None),
        ("tokens", {"statistic": "p99", "count": 3}, None),
    ],
)
def test_a_percentile_needs_the_queries_that_own_runs_need(figure, fields, state):
    """64 for a p90, 130 for a p95, 662 for a p99, 6,636 for a p99.9; medians and rates are none of them."""
    evidence = judge("unsupported-percentile", (figure, 50.0, fields))
    assert (evidence.state if evidence else None) == state


@pytest.mark.parametrize(
    ("first", "second", "is_crossed"),
    [
        (("latency", 90.0, {"statistic": "median"}), ("latency-p99", 85.2), True),
        (("latency-p99", 85.2), ("latency", 90.0, {"statistic": "median"}), True),
        (("latency-p90", 86.4), ("latency-p99", 85.2), True),
        (("latency-p90", 85.24), ("latency-p99", 85.2), False),
        (("latency-mean", 92.3), ("latency", 85.0, {"statistic": "max"}), True),
        (("latency-mean", 80.0), ("latency", 85.0, {"statistic": "min"}), True),
        (("latency-mean", 130.0), ("latency-p99", 110.5), False),
        (("latency", 120.0), ("latency-p99", 85.2), False),
        (("ttft", 120.0, {"statistic": "median"}), ("ttft", 85.2, {"statistic": "p99"}), True),
        (("ttft", 120.0, {"statistic": "median"}), ("latency-p99", 85.2), False),
        (("tokens", 20.0, {"statistic": "median"}), ("tokens", 17.2, {"statistic": "p99"}), False),
        (("tokens", 20.0, {"statistic": "mean"}), ("tokens", 17.2, {"statistic": "max"}), True),
    ],
)
def test_percentiles_of_a_case_are_in_order(first, second, is_crossed):
    """A mean may be above a p99; a statistic that is not stated is none; a rate has percentiles in either direction."""
    evidence = judge("percentiles-cross", first, second)
    assert (evidence is not None) is is_crossed
    assert evidence is None or evidence.state == "impossible"
