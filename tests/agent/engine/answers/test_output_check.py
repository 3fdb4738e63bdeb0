"""Facts about `edgemeter.agent.engine.answers.output_check`: which outputs are the same."""

import numpy as np
import pytest

from edgemeter.agent.engine.answers.output_check import Compared, Difference, difference, summarise

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
        assert difference(arrays, [array.copy() for array in arrays]) == Difference(is_identical=True, ratio=0.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([np.zeros((1, 3, 6))], [np.zeros((1, 4, 6))]),
        ([FLOATS], [FLOATS, FLOATS]),
        ([NAN], [np.array([1.0, 2.0, 3.0], np.float32)]),
        ([np.array([1.0, 2.0])], [np.array([1.0, np.inf])]),
        ([np.array([np.inf])], [np.array([-np.inf])]),
        ([np.zeros(3)], [np.array([0.0, 1e-9, 0.0])]),
        ([np.array(["a"])], [np.array(["b"])]),
    ],
)
def test_what_cannot_be_subtracted_is_another_answer(one, other):
    """Another shape or number of tensors, NaN on one side, infinity of the other sign, something where nothing was."""
    found = difference(one, other)
    assert (found.is_identical, found.ratio, found.is_rounding) == (False, None, False)


def test_noise_of_float_kernels_is_rounding_and_a_changed_value_is_not():
    """Another order of summing moves the sixth digit; one value of 240 that moves by a tenth is seen."""
    noisy = (FLOATS * (1 + 1e-6 * RNG.normal(size=FLOATS.shape))).astype(np.float32)
    assert difference([FLOATS], [noisy]).is_rounding
    assert not difference([FLOATS], [noisy]).is_identical
    assert not difference([FLOATS], [changed(FLOATS, (0, 3, 7), FLOATS[0, 3, 7] + 0.1)]).is_rounding


def test_one_step_of_an_integer_is_a_difference():
    """Integer kernels have no noise."""
    one = np.arange(100, dtype=np.int8)
    assert not difference([one], [changed(one, 50, 51)]).is_rounding


def test_a_wrong_score_beside_boxes_in_pixels_is_seen():
    """Of a YOLO's one tensor the boxes reach 640: by them a score that is wrong by 0.5 would be rounding."""
    tensor = np.zeros((1, 84, 8400), np.float32)
    tensor[0, :4] = RNG.uniform(0, 640, (4, 8400))
    tensor[0, 4:] = RNG.uniform(0, 1, (80, 8400))
    assert not difference([tensor], [changed(tensor, (0, 10, 5), tensor[0, 10, 5] + 0.5)]).is_rounding
    # Of a class that the photograph does not show all scores are noise.
    tensor[0, 20] = 1e-7
    assert difference([tensor], [changed(tensor, (0, 20, 5), 3e-7)]).is_rounding


def test_outputs_of_another_order_are_the_same_when_the_answers_say_so():
    """Suppression inside a model may swap two boxes; without a look at the answers that is a difference."""
    swapped = difference([np.array([[1.0, 2.0]])], [np.array([[2.0, 1.0]])])
    check = summarise([Compared(swapped, 1.0), Compared(swapped, 0.98), Compared(swapped, None)])
    assert (check.compared, check.identical, check.differing, check.worst_ratio) == (3, 0, 2, 0.5)


def test_a_check_of_nothing_has_no_ratio():
    """No output kept: nothing compared, nothing differing."""
    check = summarise([])
    assert (check.compared, check.identical, check.differing, check.worst_ratio) == (0, 0, 0, None)
