"""Tensors of an answer are read from JSON or bytes, and refused rather than converted."""

import math
from itertools import product

import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.runtimes.served_tensors import from_bytes, from_list, served_tensor, to_bytes
from tests.fixtures.rows import table_row


def test_bfloat16_is_rounded_to_the_nearest_and_read_exactly():
    """Ties go to even; the reference is the definition, on float64."""
    values = np.random.default_rng(1).standard_normal(1000).astype(np.float32) * np.float32(1e3)
    values = np.concatenate(
        [values, np.array([0x3F808000, 0x3F818000, 0xBF808000], np.uint32).view(np.float32)]
    )
    tensor = served_tensor("x", "BF16", [len(values)])
    rounded = from_bytes(to_bytes(values, "BF16"), tensor, [len(values)])
    for value, nearest in zip(values.tolist(), rounded.tolist(), strict=True):
        step = 2.0 ** (math.frexp(value)[1] - 8)
        assert nearest == round(value / step) * step


def test_an_empty_output_has_its_declared_type_and_sizes():
    """A list without elements does not show its type and sizes.

    `[[]]` of [1, ?, 6] is no boxes of six numbers.
    """
    for dtype in ("bool", "int64", "float16"):
        info = TensorInfo("o", (1, None, 6), dtype)
        for values, shape in ([[]], (1, 0, 6)), ([], (0, 6)), ([], (0,)):
            array = from_list(values, info, shape)
            assert (array.shape, array.dtype) == (shape, dtype)


def test_an_array_of_bytes_may_be_written_to():
    """The array has the machine's byte order and shares nothing with the answer."""
    for datatype, shape in product(
        ["BOOL", "INT8", "FP16", "FP32", "UINT64", "BF16"], [(), (0, 6), (2, 3)]
    ):
        tensor = served_tensor("o", datatype, [-1] * len(shape))
        array = np.ones(shape, tensor.info.dtype)
        content = to_bytes(array, datatype)
        output = from_bytes(memoryview(content), tensor, list(shape))
        assert (output.shape, output.dtype, output.flags.writeable) == (shape, array.dtype, True)
        np.testing.assert_array_equal(output, array)
        output[...] = 0
        assert content == to_bytes(array, datatype)


def test_what_a_type_cannot_hold_is_refused():
    """The error is one line, as silently converted 300 would be 44.

    The value is tested alone and beside another number.
    """
    for dtype, value in [
        ("uint8", 300), ("uint8", -1), ("int8", 128), ("bool", 2), ("int64", 1 << 63),
        ("int64", 1 << 70), ("uint64", -1), ("uint64", 1.5), ("int32", 1.0), ("int32", None),
        ("int32", "1"), ("float32", "1.5"), ("float32", "NaN"), ("float16", 1e5), ("float32", 1e39),
        ("float64", 10**400), ("float32", {}),
    ]:  # fmt: skip
        for values in ([value], [value, 1]):
            with (
                table_row(dtype, value),
                pytest.raises(
                    AnswerError, match=f"'o' of the served model holds what is no {dtype}"
                ) as failure,
            ):
                from_list(values, TensorInfo("o", (None,), dtype), [len(values)])
            assert "\n" not in str(failure.value)


def test_the_largest_integers_are_exact():
    """They are exact beside small ones too, where NumPy alone would make floats of them."""
    for dtype, values in (
        ("uint64", [2**64 - 1, 5]),
        ("int64", [-(2**63), 2**63 - 1]),
        ("float64", [2**70, 0.5]),
    ):
        assert from_list(values, TensorInfo("o", (2,), dtype), (2,)).tolist() == values


def test_negative_sizes_are_refused():
    """The product of two negative sizes in an answer may be right."""
    tensor = served_tensor("o", "FP32", [-1, -1])
    for read in (
        lambda: from_list([1.0, 2.0], tensor.info, [-1, -2]),
        lambda: from_bytes(bytes(8), tensor, [-1, -2]),
    ):
        with pytest.raises(AnswerError, match=r"states the shape \[-1, -2\]"):
            read()
