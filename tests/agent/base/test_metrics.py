"""Facts about metrics, which are named in one table.

Errors, of which less is better, are judged in the opposite direction everywhere.
"""

import pytest

from edgemeter.agent.base.metrics import gain, is_reached, needed_value
from edgemeter.collector.trend.metrics import METRICS as FOLLOWED
from edgemeter.collector.trend.run_columns import common_facts
from edgemeter.models.convert.parity import judge_conversion
from tests.fixtures.comparison_factory import compare_runs, figures_of, make_run, row_of
from tests.fixtures.model_agreement import agreement
from tests.fixtures.record_factory import SHA_DATA, make_accuracy
from tests.fixtures.rows import table_row


def erring(value, **changes):
    return make_accuracy(
        metric="wer", value=value, better="lower", dataset_sha256=SHA_DATA, **changes
    )


def test_a_gate_on_an_error_is_the_reference_over_the_ratio():
    """90% of a WER of 0.18 allows 0.20, and a case without errors passes every gate."""
    assert needed_value(0.18, 0.9, "lower") == pytest.approx(0.2)
    assert [is_reached(value, 0.2, "lower") for value in (0.0, 0.1999, 0.2, 0.201, 1.4)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert gain(0.2, "lower") == -0.2


def test_the_speed_of_a_case_that_errs_more_is_not_ranked():
    """A case that errs less than the reference is ranked."""
    reference = make_run(device="server-1", role="reference", accuracy=erring(0.18), p50_ms=2.0)
    worse, better = (make_run(precision="int8", accuracy=erring(value)) for value in (0.25, 0.1))
    assert (
        "wer 0.250 of the 0.180 that" in row_of(compare_runs(reference, worse), "int8").not_ranked
    )
    assert "needed 0.200 (90% of it)" in row_of(compare_runs(reference, worse), "int8").not_ranked
    assert row_of(compare_runs(reference, better), "int8").not_ranked is None


def test_the_trend_follows_an_error_where_more_is_worse():
    """The direction comes from the metric of the series, which never mixes two metrics."""
    metric = FOLLOWED["accuracy_value"]
    for run, value, is_rise_worse in (
        (make_run(accuracy=erring(0.25)), 0.25, True),
        (make_run(ap=0.5), 0.5, False),
    ):
        with table_row(value):
            figures = figures_of(run)
            assert figures.value("accuracy_value") == value
            assert metric.is_worse(1.0, metric.kind(common_facts(figures.subject))) is is_rise_worse
            assert (
                metric.is_worse(-1.0, metric.kind(common_facts(figures.subject)))
                is not is_rise_worse
            )


def test_a_conversion_that_errs_more_is_ruined():
    """A conversion that errs less or as much is fine."""
    states = [
        judge_conversion("int8", agreement(), 0.1, after, "lower").state
        for after in (0.3, 0.1, 0.0)
    ]
    assert states == ["ruined", "ok", "ok"]
