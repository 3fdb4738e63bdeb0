"""Facts about `edgemeter.agent.engine.output_check`: which outputs are the same."""

from dataclasses import replace

import numpy as np

from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.engine.output_check import OutputDifference, output_difference, summarise_check

RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=(1, 6, 40)).astype(np.float32)
NAN = np.array([1.0, np.nan, 3.0], np.float32)


def changed(array, index, value):
    """Return a copy with one value changed."""
    copy = array.copy()
    copy[index] = value
    return copy


def test_equal_outputs_are_identical_even_where_they_are_no_numbers():
    """The same NaN in the same place is the same answer; whether NaN may be there is another question."""
    for arrays in ([FLOATS], [NAN], [np.array([np.inf, -np.inf])], [], [np.zeros((1, 0, 6), np.float32)], [np.array(["a", "b"])]):
        assert output_difference(arrays, [array.copy() for array in arrays]) == OutputDifference(ratio=0.0)


def test_what_cannot_be_subtracted_differs():
    """Another shape or number of tensors, NaN on one side, infinity of the other sign, something where nothing was."""
    for outputs, other in [
        ([np.zeros((1, 3, 6))], [np.zeros((1, 4, 6))]),
        ([FLOATS], [FLOATS, FLOATS]),
        ([NAN], [np.array([1.0, 2.0, 3.0], np.float32)]),
        ([np.array([1.0, 2.0])], [np.array([1.0, np.inf])]),
        ([np.zeros(3)], [np.array([0.0, 1e-9, 0.0])]),
    ]:
        difference = output_difference(outputs, other)
        assert (difference.ratio, difference.is_rounding) == (None, False), f"{outputs!r}, {other!r}"


def test_rounding_is_distinguished_from_a_changed_value():
    """Another order of summing moves the sixth digit of floats; integers have no noise, and a channel is judged by its own values."""
    noisy = (FLOATS * (1 + 1e-6 * RNG.normal(size=FLOATS.shape))).astype(np.float32)
    integers = np.arange(100, dtype=np.int8)
    # A YOLO's one tensor: its boxes reach 640, by which a score that is wrong by 0.5 would be rounding.
    tensor = np.zeros((1, 84, 840), np.float32)
    tensor[0, :4] = RNG.uniform(0, 640, (4, 840))
    tensor[0, 4:] = RNG.uniform(0, 1, (80, 840))
    # Of a class that the photograph does not show all scores are noise.
    tensor[0, 20] = 1e-7
    for name, outputs, other, is_rounding in [
        ("float kernels", FLOATS, noisy, True),
        ("one value of 240", FLOATS, changed(FLOATS, (0, 3, 7), FLOATS[0, 3, 7] + 0.1), False),
        ("one step of an integer", integers, changed(integers, 50, 51), False),
        ("a score beside boxes in pixels", tensor, changed(tensor, (0, 10, 5), tensor[0, 10, 5] + 0.5), False),
        ("a score of a class that is not there", tensor, changed(tensor, (0, 20, 5), 3e-7), True),
    ]:
        difference = output_difference([outputs], [other])
        assert difference.is_rounding == is_rounding, name


def test_outputs_of_another_order_are_the_same_when_the_predictions_are():
    """Suppression inside a model may swap two boxes; without a look at the answers that is a difference."""
    swapped = output_difference([np.array([[1.0, 2.0]])], [np.array([[2.0, 1.0]])])
    check = summarise_check([replace(swapped, common_ratio=ratio) for ratio in (1.0, 0.98, None)])
    assert check == OutputCheck(compared=3, differing=2)
    assert summarise_check([]) == OutputCheck(compared=0, differing=0)
