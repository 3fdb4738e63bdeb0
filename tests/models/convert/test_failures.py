"""What converters raise becomes one line; what is ours, or the user's Ctrl-C, passes."""

import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.models.convert import converter_output


class Foreign(Exception):  # noqa: N818 - as ONNX Runtime names its own
    """Derives from Exception alone."""

    __module__ = "onnxruntime.capi.onnxruntime_pybind11_state"


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (ValueError("no\nlegs"), ConfigError),
        (AssertionError(), ConfigError),
        (Foreign("no kernel"), ConfigError),
        (ModuleNotFoundError("No module named 'onnx'"), UnavailableError),
    ],
)
def test_a_converters_error_is_one_line_with_what_to_do(raised, becomes):
    """Its kind, its words and the advice; a missing library with what to install."""
    with pytest.raises(becomes) as caught, converter_output.converter_errors("converting 'a.onnx'", "export it again"):
        raise raised
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("converting 'a.onnx' failed: ")


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), MeasurementError("ours"), SystemExit(3)])
def test_what_is_no_converters_passes(raised):
    """Unchanged."""
    with pytest.raises(type(raised)) as caught, converter_output.converter_errors("converting", "export it again"):
        raise raised
    assert caught.value is raised
