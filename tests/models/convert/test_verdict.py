"""Tests of the distance of outputs, and of the verdict on a conversion around every limit."""

import math

import numpy as np
import pytest

from edgemeter.models.convert.parity import Agreement, judge_conversion
from tests.fixtures.model_agreement import agreement
from tests.fixtures.rows import table_row

RAMP = np.arange(1, 101, dtype=np.float32).reshape(1, 100)


def compared(*pairs):
    agreement_of_pairs = Agreement()
    for source_output, other_output in pairs:
        agreement_of_pairs.add([source_output], [other_output])
    return agreement_of_pairs


def test_the_ratio_of_signal_to_noise_is_that_of_the_definition():
    """A tenth too much everywhere is a hundredth of the energy as noise, which is 20 dB."""
    assert compared((RAMP, RAMP * np.float32(1.1))).snr_db == pytest.approx(20.0, abs=1e-3)


def test_equal_outputs_have_no_noise_and_other_shapes_no_figure():
    """Equal outputs have an infinite ratio, and outputs of other shapes no figure.

    There is neither a division by zero nor broadcasting. A source of zeros has no signal.
    """
    assert compared((RAMP, RAMP)).snr_db == math.inf
    assert compared((RAMP, RAMP[:, :1])).snr_db is None
    assert compared((RAMP * 0, RAMP)).snr_db == -math.inf


def test_the_worst_output_counts():
    """The worst output gives the ratio, so that good boxes do not hide bad scores."""
    both = Agreement()
    both.add([RAMP * 100, RAMP], [RAMP * 100, RAMP * np.float32(1.1)])
    assert both.snr_db == pytest.approx(20.0, abs=1e-3)


def test_energies_are_summed_over_all_inputs():
    """An input of large values outweighs one of small ones, as energies are summed over all."""
    summed = compared((RAMP, RAMP), (RAMP * 10, RAMP * 11))
    joined = np.concatenate([RAMP, RAMP * 10], axis=1).astype(float)
    noise = np.concatenate([RAMP * 0, RAMP], axis=1).astype(float)
    assert summed.snr_db == pytest.approx(10 * math.log10((joined**2).sum() / (noise**2).sum()))


def test_what_is_not_finite_is_counted_and_not_averaged():
    """One NaN or infinity is counted, not averaged; NaN on both sides is not the conversion's."""
    for bad in (np.nan, np.inf):
        with table_row(bad):
            broken = RAMP.copy()
            broken[0, 3] = bad
            summary = compared((RAMP, RAMP), (RAMP, broken))
            assert summary.not_finite == 1
            assert summary.snr_db is None
    broken = np.full_like(RAMP, np.nan)
    assert compared((broken, broken)).not_finite == 0


def test_with_ground_truth_the_accuracy_decides():
    """With ground truth the loss of accuracy gives the verdict, whatever the tensors say."""
    for precision, before, after, state in (
        ("fp32", 0.75, 0.7485, "ok"),
        ("fp32", 0.75, 0.747, "degraded"),
        ("fp32", 0.75, 0.67, "ruined"),
        ("int8", 0.75, 0.725, "ok"),
        ("int8", 0.75, 0.7, "degraded"),
        ("int8", 0.75, 0.6, "ruined"),
        ("int8", 0.75, 0.0, "ruined"),
        # A tenth of little is little: 0.025 of 0.2 is more than a tenth and within what int8
        # explains.
        ("int8", 0.2, 0.175, "degraded"),
        ("int8", 0.2, 0.16, "ruined"),
        ("int8", 0.02, 0.0, "ruined"),
        ("int8", 0.4, 0.42, "ok"),
    ):
        assert judge_conversion(precision, agreement(), before, after).state == state, (
            f"{precision!r}, {before!r}, {after!r}"
        )


def test_without_ground_truth_common_predictions_decide_and_of_an_unknown_model_the_outputs():
    """Without ground truth the share of common predictions gives the verdict.

    It is the share of objects that source and product both show. Of an unknown model the outputs
    are compared; where they cannot be, nothing is called ok.
    """
    for same, state in ((0.85, "ok"), (0.84, "degraded"), (0.6, "degraded"), (0.59, "ruined")):
        assert judge_conversion("int8", agreement(same=same), None, None).state == state, (
            f"{same!r}"
        )
    for snr_db, state in (
        (12.0, "ok"),
        (11.9, "degraded"),
        (3.0, "degraded"),
        (2.9, "ruined"),
        (None, "degraded"),
    ):
        assert judge_conversion("int8", agreement(snr_db), None, None).state == state, f"{snr_db!r}"


def test_a_wrong_weight_shows_although_the_accuracy_does_not():
    """An fp32 file with a wrong weight is not ok, because it has to agree to rounding."""
    verdict = judge_conversion("fp32", agreement(35.0), 0.75, 0.75)
    assert (verdict.state, "35.0 dB" in verdict.reason) == ("degraded", True)
    assert judge_conversion("fp32", agreement(math.inf), 0.75, 0.75).state == "ok"


def test_nan_one_output_for_all_and_a_source_that_detects_nothing_prove_nothing():
    """NaN, one answer for all, and a source that detects nothing prove nothing.

    That holds even with the accuracy of a lucky set. An accuracy of 0 before and after is not ok;
    the predictions decide.
    """
    assert judge_conversion("fp16", agreement(not_finite=1), 0.75, 0.75).state == "ruined"
    assert (
        judge_conversion("int8", agreement(same=0.8, repeats=[True] * 10), 0.75, 0.75).state
        == "ruined"
    )
    assert judge_conversion("int8", agreement(same=0.2), 0.0, 0.0).state == "ruined"
