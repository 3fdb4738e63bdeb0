"""Reading scales from an .onnx without a protobuf library."""

import importlib
from pathlib import Path

import pytest

from edgemeter.agent.runtimes.onnx_file import read_onnx

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "shipped"


def test_scale_and_zero_point_are_those_of_the_quantising_nodes(models):
    """Constants may be raw bytes, packed floats or packed integers, also negative."""
    for name, x_zero, y_zero in (("uint8", 2, 4), ("int8", -1, -5)):
        assert read_onnx(models / f"onnx_{name}.onnx").quantised == {
            "x": (0.5, x_zero),
            "y": (0.25, y_zero),
        }


def test_garbled_and_cut_files_have_none_or_those_read_so_far(models, tmp_path):
    """Reading never raises, and what cannot be followed is not found."""
    content = (models / "onnx_int8.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    for length in range(1, len(content), 11):
        path.write_bytes(content[:length])
        assert set(read_onnx(path).quantised) <= {"x", "y"}
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        read_onnx(path)


def test_operators_and_weights_determine_the_precision(models):
    """A file quantised inside may have float inputs and outputs, which show nothing.

    The shipped int8 file shows its quantisation at its ends.
    """
    for name, precision in [
        ("onnx", "fp32"),
        ("onnx_float16", "fp16"),
        ("onnx_int8", "int8"),
        ("onnx_uint8", "int8"),
    ]:
        assert read_onnx(models / f"{name}.onnx").precision == precision, f"{name!r}"
    for precision in ("fp32", "int8"):
        assert read_onnx(SHIPPED / f"edgemeter-shapes_{precision}.onnx").precision == precision


@pytest.mark.needs(module="onnx")
def test_the_type_of_weights_determines_the_precision_of_floats(tmp_path):
    """A single fp64 number beside fp32 weights does not change the precision."""
    onnx = importlib.import_module("onnx")
    for kinds, precision in [
        ((1,), "fp32"),
        ((11,), "fp64"),
        ((1, 11), "fp32"),
        ((16, 1), "bf16"),
        ((10, 1), "fp16"),
        ((), "fp32"),
    ]:
        weights = [onnx.helper.make_tensor(f"w{kind}", kind, [1], [1.0]) for kind in kinds]
        onnx.save(
            onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], weights)),
            tmp_path / "m.onnx",
        )
        assert read_onnx(tmp_path / "m.onnx").precision == precision, f"{kinds!r}"
