"""Tests of converters' errors, which become one line; our own and the user's Ctrl-C pass."""

import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.models.convert import converter_output
from tests.fixtures.rows import table_row


class Foreign(Exception):  # noqa: N818 - as ONNX Runtime names its own
    """Derives from Exception alone."""

    __module__ = "onnxruntime.capi.onnxruntime_pybind11_state"


def test_a_converters_error_is_one_line_with_what_to_do():
    """A converter's error is one line with its kind, its words and the advice.

    For a missing library the line says what to install.
    """
    for raised, becomes in (
        (ValueError("no\nlegs"), ConfigError),
        (AssertionError(), ConfigError),
        (Foreign("no kernel"), ConfigError),
        (ModuleNotFoundError("No module named 'onnx'"), UnavailableError),
    ):
        with table_row(raised, becomes):
            with (
                pytest.raises(becomes) as raised_error,
                converter_output.converter_errors("converting 'a.onnx'", "export it again"),
            ):
                raise raised
            assert "\n" not in str(raised_error.value)
            assert str(raised_error.value).startswith("converting 'a.onnx' failed: ")


def test_what_is_no_converters_passes():
    """Ctrl-C, the program's end and our own errors leave the block as the same object."""
    for raised in (KeyboardInterrupt(), MeasurementError("ours"), SystemExit(3)):
        with table_row(raised):
            with (
                pytest.raises(type(raised)) as raised_error,
                converter_output.converter_errors("converting", "export it again"),
            ):
                raise raised
            assert raised_error.value is raised
