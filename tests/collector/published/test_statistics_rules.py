import pytest

from edgemeter.collector.published.rules import evidence_of
from tests.fixtures.published_rows import published_row


def judge(rule, *figures):
    """Return the evidence of a rule on the first of several figures of a case, None without."""
    rows = [published_row(figure, value, "a model", "a board", **dict(*fields)) for figure, value, *fields in figures]
    return next((entry for entry in evidence_of(rows[0], rows[1:]) if entry.rule == rule), None)


@pytest.mark.parametrize(
    ("images", "state"),
    [(4, "impossible"), (9, "impossible"), (30, "unclear"), (99, "unclear"), (100, "plausible"), (5000, "plausible"), (None, "unclear")],
)
def test_an_accuracy_needs_a_hundred_items(images, state):
    """A handful says nothing; AIME has 30 questions, which is little; not stated is not few."""
    assert judge("too-few-items", ("accuracy", 61.0, {"images": images})).state == state


def test_the_interval_of_few_items_is_in_the_sentence():
    """Wilson's for 2.44 of 4: 0.211 to 0.901."""
    accuracy = ("accuracy", 0.61, {"images": 4, "unit": "ratio", "accuracy_metric": "top-1"})
    assert "0.61 over 4 items has 95% bounds of 0.21 to 0.9 by chance alone" in judge("too-few-items", accuracy).sentence


@pytest.mark.parametrize(
    ("metric", "is_counted"),
    [
        ("accuracy", True), ("top-1", True), ("top5", True), ("Top-1 accuracy", True), ("acc,none", True), ("acc_norm,none", True),
        ("exact_match,strict-match", True), ("pass@1", True), ("mAP", False), ("mAP50-95", False), ("mean IoU", False), ("F1", False),
        ("SSIM", False), ("ROUGE-L", False), ("CIDEr", False), ("WER", False), ("pixel accuracy", False), ("balanced_accuracy", False),
        ("token accuracy", False), (None, False),
    ],
)  # fmt: skip
def test_only_right_answers_over_items_have_bounds_of_a_share(metric, is_counted):
    """An AP is no number of right answers out of so many."""
    assert ("95%" in judge("too-few-items", ("accuracy", 61.0, {"images": 500, "accuracy_metric": metric})).sentence) is is_counted


@pytest.mark.parametrize(
    ("metric", "state"),
    [
        ("top-1", "impossible"), ("accuracy", "impossible"), ("exact_match,none", "impossible"), ("mAP", "impossible"),
        ("mean IoU", "impossible"), ("CIDEr", None), ("PSNR", None), ("FID", None), ("WER", None), (None, "unclear"),
    ],
)  # fmt: skip
def test_only_a_share_is_at_most_one(metric, state):
    """A CIDEr of 1.33 is ordinary, a word error rate of 1.33 bad."""
    evidence = judge("outside-metric", ("accuracy", 133.0, {"images": 500, "accuracy_metric": metric}))
    assert (evidence.state if evidence else None) == state
    assert judge("outside-metric", ("accuracy", 100.0, {"images": 500, "accuracy_metric": metric})) is None


def test_what_is_no_share_has_no_bounds():
    """Chance does not lead to 137%."""
    assert judge("too-few-items", ("accuracy", 137.0, {"images": 5000, "accuracy_metric": "accuracy"})) is None


@pytest.mark.parametrize(
    ("figure", "fields", "state"),
    [
        ("latency-p90", {"count": 9}, "impossible"),
        ("latency-p90", {"count": 10}, "unclear"),
        ("latency-p90", {"count": 50}, "unclear"),
        ("latency-p90", {"count": 63}, "unclear"),
        ("latency-p90", {"count": 64}, None),
        ("latency-p99", {"count": 99}, "impossible"),
        ("latency-p99", {"count": 100}, "unclear"),
        ("latency-p99", {"count": 661}, "unclear"),
        ("latency-p99", {"count": 662}, None),
        ("latency-p99", {}, "unclear"),
        ("ttft", {"statistic": "p95", "count": 100}, "unclear"),
        ("ttft", {"statistic": "p99.9", "count": 999}, "impossible"),
        ("ttft", {"statistic": "median", "count": 3}, None),
        ("latency", {"count": 3}, None),
        ("tokens", {"statistic": "p99", "count": 3}, None),
    ],
)
def test_a_percentile_needs_the_queries_that_own_runs_need(figure, fields, state):
    """64 for a p90, 662 for a p99; of fewer it is weak, and it is none where not one query lies beyond it."""
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
