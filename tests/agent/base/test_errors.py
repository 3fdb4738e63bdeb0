"""The words of an error on one line."""

import numpy as np

from edgemeter.agent.base.errors import one_line


def test_an_error_shows_no_numbers_of_an_array():
    """However a library prints it, whole or shortened; what stands around it stays."""
    for shape, dtype in (((3, 40, 40), np.float32), ((40, 40), np.uint8), ((1000,), np.float32)):
        array = (np.random.default_rng(0).random(shape) * 200).astype(dtype)
        assert one_line(ValueError(f"cannot take\n{array!r} here")).startswith("cannot take array([...]")
        assert one_line(f"got {array} here") == "got [...] here"
        assert one_line(f"got {array.tolist()} here") == "got [...] here"


def test_shapes_are_shown():
    """They are what such an error is about."""
    words = "input [1, 3, 640, 640] and outputs [[1, 84, 8400], [1, 3, 80, 80, 85]] differ in axis [2], by 0.5 [%]"
    assert one_line(words) == words


def test_a_long_error_keeps_its_beginning_and_its_end():
    """A traceback has its reason at the end."""
    text = one_line("begins " + "words " * 500 + "RuntimeError: sizes differ")
    assert text.startswith("begins words")
    assert text.endswith("RuntimeError: sizes differ")
    assert len(text) == 300
