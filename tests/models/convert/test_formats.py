"""The ways from what a file is to what it can become."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.models.convert import formats


def test_the_way_leads_over_the_forms_between():
    """Each form is made from the one before it."""
    for start, goal, steps in (
        ("torch", "onnx-int8", ["onnx-fp32", "onnx-int8"]),
        ("torch", "edgetpu", ["litert-fp32", "litert-int8", "edgetpu"]),
        ("onnx-fp32", "tensorrt-int8", ["onnx-int8-symmetric", "tensorrt-int8"]),
        ("litert-int8", "edgetpu", ["edgetpu"]),
    ):
        assert [step.name for step in formats.steps_to(start, goal)] == steps, f"{start!r}, {goal!r}"


def test_no_way_leads_back_or_across():
    """An int8 file holds no fp32 weights, and ONNX is not read by LiteRT's tools."""
    for start, goal in (("onnx-fp32", "litert-int8"), ("litert-int8", "litert-fp16"), ("onnx-int8", "tensorrt-int8")):
        assert formats.steps_to(start, goal) is None, f"{start!r}, {goal!r}"


def test_an_unknown_format_is_named_with_the_known_ones():
    """One line that says what to choose from."""
    with pytest.raises(ConfigError, match=r"'onnx-int4': did you mean onnx-int8.*\? There are .*onnx-fp16.*litert-int8.*, all$"):
        formats.find_format("onnx-int4")


def test_no_two_formats_write_one_file():
    """Endings tell all forms apart."""
    endings = [entry.ending for entry in formats.FORMATS.values()]
    assert len(set(endings)) == len(endings)
