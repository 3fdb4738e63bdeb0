"""How far outputs are apart: known figures, and what cannot be compared."""

import math

import numpy as np
import pytest

from edgemeter.models.convert.agreement import OutputComparison
from tests.fixtures.rows import table_row

RAMP = np.arange(1, 101, dtype=np.float32).reshape(1, 100)


def compared(*pairs, same=None):
    """Return the agreement of one output over these pairs."""
    comparison = OutputComparison(("scores",))
    for ours, theirs in pairs:
        comparison.add([ours], [theirs], same)
    return comparison.summary()


def test_the_ratio_of_signal_to_noise_is_that_of_the_definition():
    """A tenth too much everywhere: the noise has a hundredth of the energy, 20 dB."""
    (output,) = compared((RAMP, RAMP * np.float32(1.1))).outputs
    assert output.snr_db == pytest.approx(20.0, abs=1e-3)
    assert output.largest_error == pytest.approx(10.0, rel=1e-5)
    assert output.lowest_cosine == pytest.approx(1.0)


def test_energies_are_summed_over_all_inputs():
    """An input of large values outweighs one of small ones, as in one long vector."""
    (output,) = compared((RAMP, RAMP), (RAMP * 10, RAMP * 11)).outputs
    whole = np.concatenate([RAMP, RAMP * 10], axis=1).astype(float)
    noise = np.concatenate([RAMP * 0, RAMP], axis=1).astype(float)
    assert output.snr_db == pytest.approx(10 * math.log10((whole**2).sum() / (noise**2).sum()))


def test_the_lowest_cosine_is_that_of_the_worst_input():
    """One input turned round among good ones."""
    (output,) = compared((RAMP, RAMP), (RAMP, -RAMP)).outputs
    assert output.lowest_cosine == pytest.approx(-1.0)


def test_equal_outputs_have_no_noise():
    """Infinite, not a division by zero."""
    (output,) = compared((RAMP, RAMP)).outputs
    assert (output.largest_error, output.snr_db) == (0.0, math.inf)


def test_what_is_not_finite_is_counted_and_not_averaged():
    """One NaN or infinity in one of two inputs."""
    for bad in (np.nan, np.inf):
        with table_row(bad):
            broken = RAMP.copy()
            broken[0, 3] = bad
            found = compared((RAMP, RAMP), (RAMP, broken))
            assert found.not_finite == 1
            assert (found.outputs[0].snr_db, found.snr_db) == (None, None)


def test_a_fault_of_the_source_too_is_no_fault():
    """NaN on both sides is not the conversion's."""
    broken = np.full_like(RAMP, np.nan)
    assert compared((broken, broken)).not_finite == 0


def test_other_shapes_cannot_be_compared():
    """No figure rather than a broadcast one."""
    assert compared((RAMP, RAMP[:, :1])).outputs[0].largest_error is None


def test_one_output_for_all_inputs_is_stuck():
    """Only where the source's own outputs differ."""
    assert compared((RAMP, RAMP), (RAMP * 2, RAMP)).stuck
    assert not compared((RAMP, RAMP), (RAMP, RAMP)).stuck
    assert not compared((RAMP, RAMP), (RAMP * 2, RAMP), (RAMP * 3, RAMP * 3)).stuck
