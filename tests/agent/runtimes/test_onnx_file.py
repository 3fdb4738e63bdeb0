"""Reading scales from an .onnx without a protobuf library."""

import pytest

from edgemeter.agent.runtimes import onnx_file
from edgemeter.agent.runtimes.onnx_file import Quantisation


@pytest.mark.parametrize(("name", "x_zero", "y_zero"), [("uint8", 2, 4), ("int8", -1, -5)])
def test_scale_and_zero_point_are_those_of_the_quantising_nodes(models, name, x_zero, y_zero):
    """Raw bytes, packed floats and (negative) packed integers are all ways to write a constant."""
    found = onnx_file.quantisations(models / f"onnx_{name}.onnx")
    assert found == {"x": Quantisation(0.5, x_zero), "y": Quantisation(0.25, y_zero)}


def test_a_model_without_quantising_nodes_has_none(models):
    """Nothing is guessed."""
    assert onnx_file.quantisations(models / "onnx.onnx") == {}


def test_garbled_and_cut_files_have_none_or_those_read_so_far(models, tmp_path):
    """What cannot be followed is not found; it never raises."""
    whole = (models / "onnx_int8.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    for length in range(1, len(whole), 2):
        path.write_bytes(whole[:length])
        assert set(onnx_file.quantisations(path)) <= {"x", "y"}
    for at in range(0, len(whole), 2):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        onnx_file.quantisations(path)
