"""Test `edgemeter.collector.compare.accuracy_gate`.

A case that keeps too little of its accuracy has no rank.
"""

import pytest

from tests.fixtures.comparison_factory import (
    OTHER_DATA,
    compare_runs,
    make_reference,
    make_run,
    row_of,
)
from tests.fixtures.rows import table_row


def test_a_ruined_quantisation_has_no_ratio_and_a_reason_that_names_both_cases():
    """A case ten times as fast with an AP of .02 has no ratio of cost.

    The difference of accuracy stays, and the reason names both cases.
    """
    comparison = compare_runs(
        make_run(precision="int8", p50_ms=0.2, ap=0.02, id="ruined"),
        make_run(ap=0.4),
        make_reference(ap=0.4),
    )
    row = row_of(comparison, "int8")
    assert "below accuracy gate" in row.marks
    assert {name: decision.value for name, decision in row.decisions.items()} == {
        "accuracy_value": pytest.approx(-0.38)
    }
    assert row.not_ranked == (
        "tiny-detector int8 on onnx, pi-1: AP 0.020 of the 0.400 that tiny-detector fp32 on "
        "onnx, server-1 has, "
        "needed 0.360 (90% of it): its speed is not ranked"
    )
    assert [(entry.run, entry.reason) for entry in comparison.left_out] == [
        ("ruined", f"not ranked: {row.not_ranked}")
    ]


def test_the_gate_is_nine_tenths_of_the_reference():
    """A case just below it does not rank; one just above it, or better, does."""
    for ap, ranks in ((0.359, False), (0.361, True), (0.45, True)):
        with table_row(ap):
            result = row_of(
                compare_runs(make_run(precision="int8", ap=ap), make_reference(ap=0.4)), "int8"
            )
            assert (result.not_ranked is None, "latency_p50_ms" in result.decisions) == (
                ranks,
                ranks,
            )


def test_a_ruined_file_on_the_reference_too_is_held_against_its_fp32():
    """The same ruined int8 on the server is no excuse.

    It does not rank there, and nothing is compared with it.
    """
    ruined = {"precision": "int8", "ap": 0.02}
    comparison = compare_runs(make_run(**ruined), make_reference(**ruined), make_reference(ap=0.4))
    row, server = row_of(comparison, "int8"), row_of(comparison, "int8", "server-1")
    assert "tiny-detector fp32 on onnx, server-1" in row.not_ranked
    assert row.reference.key.precision == "fp32"
    assert server.not_ranked


def test_like_is_held_against_like_only():
    """Accuracy on other data, or of a less precise reference, decides nothing.

    Of the same precision it does.
    """
    other = compare_runs(
        make_run(precision="int8", ap=0.02),
        make_reference(ap=0.4, data=OTHER_DATA),
        make_reference(ap=None),
    )
    lower = compare_runs(make_run(ap=0.3), make_reference(precision="int8", ap=0.4))
    same = compare_runs(make_run(ap=0.3), make_reference(ap=0.4))
    assert row_of(other, "int8").not_ranked is None
    assert row_of(lower, "fp32").not_ranked is None
    assert row_of(same, "fp32").not_ranked
