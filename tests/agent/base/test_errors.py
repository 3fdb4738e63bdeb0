"""The words of an error on one line."""

import numpy as np

from edgemeter.agent.base.errors import one_line


def test_an_error_shows_no_numbers_of_an_array():
    """An array is replaced however a library prints it, and the text around it stays."""
    for shape, dtype in (((3, 40, 40), np.float32), ((40, 40), np.uint8), ((1000,), np.float32)):
        array = (np.random.default_rng(0).random(shape) * 200).astype(dtype)
        assert one_line(ValueError(f"cannot take\n{array!r} here")).startswith(
            "cannot take array([...]"
        )
        assert one_line(f"got {array} here") == "got [...] here"
        assert one_line(f"got {array.tolist()} here") == "got [...] here"
