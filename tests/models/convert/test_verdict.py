"""The word for a conversion, at and around every limit."""

import math

from edgemeter.models.convert.agreement import judge_conversion
from tests.fixtures.model_agreement import agreement


def test_with_ground_truth_the_accuracy_decides():
    """The loss of accuracy gives the verdict, whatever the tensors say."""
    for precision, before, after, state in (
        ("fp32", 0.75, 0.7485, "ok"),
        ("fp32", 0.75, 0.747, "degraded"),
        ("fp32", 0.75, 0.67, "ruined"),
        ("int8", 0.75, 0.725, "ok"),
        ("int8", 0.75, 0.7, "degraded"),
        ("int8", 0.75, 0.6, "ruined"),
        ("int8", 0.75, 0.0, "ruined"),
        # A tenth of little is little: 0.025 of 0.2 is more than a tenth and within what int8 explains.
        ("int8", 0.2, 0.175, "degraded"),
        ("int8", 0.2, 0.16, "ruined"),
        ("int8", 0.02, 0.0, "ruined"),
        ("int8-dynamic", 0.4, 0.42, "ok"),
    ):
        assert judge_conversion(precision, agreement(), before, after).state == state, f"{precision!r}, {before!r}, {after!r}"


def test_without_ground_truth_the_predictions_in_common_decide():
    """The share of objects that source and product both show gives the verdict."""
    for same, state in ((0.99, "ok"), (0.8, "degraded"), (0.5, "ruined")):
        assert judge_conversion("int8", agreement(same=same), None, None).state == state, f"{same!r}"


def test_of_an_unknown_model_the_outputs_decide():
    """And where they cannot be compared nothing is called ok."""
    for snr_db, state in ((40.0, "ok"), (8.0, "degraded"), (1.0, "ruined"), (None, "degraded")):
        assert judge_conversion("int8", agreement(snr_db), None, None).state == state, f"{snr_db!r}"


def test_a_wrong_weight_shows_although_the_accuracy_does_not():
    """An fp32 file agrees to rounding, or it is another model."""
    found = judge_conversion("fp32", agreement(35.0), 0.75, 0.75)
    assert (found.state, "35.0 dB" in found.reason) == ("degraded", True)
    assert judge_conversion("fp32", agreement(math.inf), 0.75, 0.75).state == "ok"


def test_nan_and_one_output_for_all_are_ruin():
    """Even with the accuracy of a lucky set."""
    assert judge_conversion("fp16", agreement(not_finite=1), 0.75, 0.75).state == "ruined"
    assert judge_conversion("int8", agreement(stuck=True), 0.75, 0.75).state == "ruined"


def test_a_source_that_detects_nothing_proves_nothing_about_accuracy():
    """0 before and 0 after is not ok: the predictions decide."""
    assert judge_conversion("int8", agreement(same=0.2), 0.0, 0.0).state == "ruined"
