"""The ways from what a file is to what it can become, and the functions that make it."""

import ast
from pathlib import Path

from edgemeter.models.convert import formats

CONVERT = Path(formats.__file__).parent


def test_the_way_leads_over_the_forms_between():
    """Each form is made from the one before it, and never back or across.

    No two formats write one file.
    """
    for start, goal in (
        ("onnx-fp32", "litert-int8"),
        ("litert-int8", "litert-fp16"),
        ("onnx-int8", "tensorrt-int8"),
    ):
        assert formats.steps_to(start, goal) is None, f"{start!r}, {goal!r}"
    endings = [entry.ending for entry in formats.FORMATS.values()]
    assert len(set(endings)) == len(endings)
    for start, goal, steps in (
        ("torch", "onnx-int8", ["onnx-fp32", "onnx-int8"]),
        ("torch", "edgetpu", ["litert-fp32", "litert-int8", "edgetpu"]),
        ("onnx-fp32", "tensorrt-int8", ["onnx-int8-symmetric", "tensorrt-int8"]),
        ("litert-int8", "edgetpu", ["edgetpu"]),
    ):
        assert [step.name for step in formats.steps_to(start, goal)] == steps, (
            f"{start!r}, {goal!r}"
        )


def test_every_format_has_a_maker():
    """Every maker in the table is a function that exists.

    The module is not imported, because it may need PyTorch.
    """
    for entry in formats.FORMATS.values():
        module, _, function = entry.maker.partition(":")
        source = (CONVERT / f"{module.rpartition('.')[2]}.py").read_text()
        assert function in {
            node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
        }, entry.name
