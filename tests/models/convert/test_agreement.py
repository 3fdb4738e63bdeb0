"""How far outputs are apart, and the verdict on a conversion at and around every limit."""

import math

import numpy as np
import pytest

from edgemeter.models.convert.agreement import OutputComparison, judge_conversion
from edgemeter.models.convert.onnx_quantise import output_loss
from edgemeter.models.convert.variation import OutputSpread
from tests.fixtures.model_agreement import agreement
from tests.fixtures.rows import table_row

RAMP = np.arange(1, 101, dtype=np.float32).reshape(1, 100)


def compared(*pairs, same=None):
    """Return the agreement of one output over these pairs."""
    comparison = OutputComparison(("scores",), 1 / 16)
    for source_output, other_output in pairs:
        comparison.add([source_output], [other_output], same, repeats=None)
    return comparison.summary()


def test_the_ratio_of_signal_to_noise_is_that_of_the_definition():
    """A tenth too much everywhere: the noise has a hundredth of the energy, 20 dB."""
    (output,) = compared((RAMP, RAMP * np.float32(1.1))).outputs
    assert output.snr_db == pytest.approx(20.0, abs=1e-3)
    assert output.largest_error == pytest.approx(10.0, rel=1e-5)
    assert output.lowest_cosine == pytest.approx(1.0)


def test_equal_outputs_have_no_noise_and_other_shapes_no_figure():
    """Infinite, not a division by zero; no figure rather than a broadcast one; the lowest cosine is that of the worst input."""
    (output,) = compared((RAMP, RAMP)).outputs
    assert (output.largest_error, output.snr_db) == (0.0, math.inf)
    assert compared((RAMP, RAMP[:, :1])).outputs[0].largest_error is None
    (output,) = compared((RAMP, RAMP), (RAMP, -RAMP)).outputs
    assert output.lowest_cosine == pytest.approx(-1.0)


def test_energies_are_summed_over_all_inputs():
    """An input of large values outweighs one of small ones, as in one long vector."""
    (output,) = compared((RAMP, RAMP), (RAMP * 10, RAMP * 11)).outputs
    joined = np.concatenate([RAMP, RAMP * 10], axis=1).astype(float)
    noise = np.concatenate([RAMP * 0, RAMP], axis=1).astype(float)
    assert output.snr_db == pytest.approx(10 * math.log10((joined**2).sum() / (noise**2).sum()))


def test_what_is_not_finite_is_counted_and_not_averaged():
    """One NaN or infinity in one of two inputs; NaN on both sides is not the conversion's."""
    for bad in (np.nan, np.inf):
        with table_row(bad):
            broken = RAMP.copy()
            broken[0, 3] = bad
            summary = compared((RAMP, RAMP), (RAMP, broken))
            assert summary.not_finite == 1
            assert (summary.outputs[0].snr_db, summary.snr_db) == (None, None)
    broken = np.full_like(RAMP, np.nan)
    assert compared((broken, broken)).not_finite == 0


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


def test_without_ground_truth_the_predictions_in_common_decide_and_of_an_unknown_model_the_outputs():
    """The share of objects that source and product both show gives the verdict; where outputs cannot be compared nothing is called ok."""
    for same, state in ((0.85, "ok"), (0.84, "degraded"), (0.6, "degraded"), (0.59, "ruined")):
        assert judge_conversion("int8", agreement(same=same), None, None).state == state, f"{same!r}"
    for snr_db, state in ((12.0, "ok"), (11.9, "degraded"), (3.0, "degraded"), (2.9, "ruined"), (None, "degraded")):
        assert judge_conversion("int8", agreement(snr_db), None, None).state == state, f"{snr_db!r}"


def test_a_wrong_weight_shows_although_the_accuracy_does_not():
    """An fp32 file agrees to rounding, or it is another model."""
    verdict = judge_conversion("fp32", agreement(35.0), 0.75, 0.75)
    assert (verdict.state, "35.0 dB" in verdict.reason) == ("degraded", True)
    assert judge_conversion("fp32", agreement(math.inf), 0.75, 0.75).state == "ok"


def test_nan_one_output_for_all_and_a_source_that_detects_nothing_prove_nothing():
    """Even with the accuracy of a lucky set; 0 before and 0 after is not ok: the predictions decide."""
    assert judge_conversion("fp16", agreement(not_finite=1), 0.75, 0.75).state == "ruined"
    assert judge_conversion("int8", agreement(variation="collapsed"), 0.75, 0.75).state == "ruined"
    assert judge_conversion("int8", agreement(same=0.2), 0.0, 0.0).state == "ruined"


def test_the_loss_counts_each_channel_by_itself():
    """A dead score beside pixels is a half of two channels, however small its energy."""
    expected = [[np.array([[[640.0, 320.0], [0.5, 0.25]]], np.float32)]]
    actual = [[np.array([[[640.0, 320.0], [0.0, 0.0]]], np.float32)]]
    assert output_loss(expected, actual) == pytest.approx(0.5)
    assert output_loss(expected, expected) == 0
    assert output_loss(expected, [[np.full((1, 2, 2), np.nan, np.float32)]]) == 1


def test_what_moves_less_than_the_precision_shows_is_not_missed():
    """A sixteenth of the largest value for int8, a hundredth of that for fp16: what int8 rounds away is not seen in it."""
    for visible, variation in ((1 / 16, "unseen"), (1e-3, "collapsed")):
        spread = OutputSpread(visible)
        follower = OutputSpread(visible)
        for value in (1.0, 1.01):
            spread.add(np.float32([value, 1]), np.float32([1, 1]))
            follower.add(np.float32([value, 1]), np.float32([value, 1]))
        assert (spread.variation(), follower.variation()) == (variation, "follows")


def test_no_movement_is_seen_in_outputs_that_cannot_be_compared():
    """Another shape, or not finite: the verdict says that by itself."""
    for other in (np.zeros(3, np.float32), np.float32([np.nan, 0])):
        spread = OutputSpread(1 / 16)
        for value in (0.0, 1.0):
            spread.add(np.float32([value, 1]), other)
        assert spread.variation() == "unseen"
