"""Reading a .tflite without running it: every offset is checked before C++ follows it."""

import struct
from itertools import product
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import tflite_file
from tests.fixtures.rows import table_row

NAMES = ["litert", "litert_signed", "litert_int8", "litert_int32", "litert_open", "litert_edgetpu", "litert_custom"]


def test_whole_files_pass(models):
    """The check refuses nothing that is whole."""
    for name in NAMES:
        with table_row(name):
            tflite_file.read_tflite(models / f"{name}.tflite")


def test_custom_operators_are_named(models):
    """That is how an Edge TPU model is recognised before it is loaded."""
    assert tflite_file.read_tflite(models / "litert_edgetpu.tflite").custom_operators == ("edgetpu-custom-op",)
    assert tflite_file.read_tflite(models / "litert.tflite").custom_operators == ()


def test_the_signature_names_tensors_by_index(models):
    """Index 0 is the input, 4 the output of the fixture."""
    file = tflite_file.read_tflite(models / "litert_signed.tflite")
    assert (file.inputs, file.outputs) == ({0: "x"}, {4: "y"})
    assert tflite_file.read_tflite(models / "litert.tflite").outputs == {}


def test_what_the_file_states_of_itself_is_read(models):
    """Names, normalisation and the labels behind the model."""
    assert tflite_file.read_tflite(models / "litert_signed.tflite").metadata == {
        "name": "Linear",
        "author": "nobody",
        "input_names": "image",
        "output_names": "score",
        "input_mean": "127.5",
        "input_sd": "128",
        "labels.txt": "cat\ndog\nowl\n",
    }


@pytest.mark.parametrize("name", ["litert", "litert_int8"])
def test_every_truncation_is_found(models, tmp_path, name):
    """At whichever byte a file ends early (here every third), one line says so."""
    content = (models / f"{name}.tflite").read_bytes()
    path = tmp_path / "cut.tflite"
    for length in range(1, len(content), 3):
        path.write_bytes(content[:length])
        with pytest.raises(ConfigError, match=r"truncated or garbled|lacks the identifier"):
            tflite_file.read_tflite(path)


def test_a_garbled_file_never_raises_anything_else(models, tmp_path):
    """Every third byte, set to 255, leaves a file that passes or is refused in one line."""
    content = (models / "litert_signed.tflite").read_bytes()
    path = tmp_path / "garbled.tflite"
    refused = 0
    for at in range(0, len(content), 3):
        path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        try:
            tflite_file.read_tflite(path)
        except ConfigError:
            refused += 1
    assert refused > len(content) // 30


def at_operator(top):
    """Return where the first operator points to its options."""
    return next(next(top.tables(2)).tables(3))._field(4)


def at_quantisation(top):
    """Return where the first tensor points to its quantisation."""
    return next(next(top.tables(2)).tables(0))._field(4)


def at_buffer(top):
    """Return where the second buffer points to its data."""
    return list(top.tables(4))[1]._field(0)


def at_code(top):
    """Return where the model points to its operator codes."""
    return top._field(1)


def test_an_offset_that_leads_outside_is_found_wherever_it_stands(models, tmp_path):
    """Each of these ends an interpreter without a verifier."""
    for offset, locate in product([0x7FFFFFFF, 100_000], [at_operator, at_quantisation, at_buffer, at_code]):
        content = bytearray((models / "litert_int8.tflite").read_bytes())
        struct.pack_into("<I", content, locate(tflite_file.root_table(bytes(content))), offset)
        path = tmp_path / "garbled.tflite"
        path.write_bytes(content)
        with table_row(locate.__name__, offset), pytest.raises(ConfigError, match="truncated or garbled"):
            tflite_file.read_tflite(path)


def test_tensors_determine_the_precision(models):
    """Integers count only with a scale: indices are not quantised."""
    for name, precision in [("litert", "fp32"), ("litert_int8", "int8"), ("litert_int32", "fp32")]:
        assert tflite_file.read_tflite(models / f"{name}.tflite").precision == precision, f"{name!r}"


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_shipped_files_are_what_they_are_called(precision):
    """Both by their tensors."""
    shipped = Path(__file__).resolve().parents[3] / "models" / "shipped"
    assert tflite_file.read_tflite(shipped / f"edgemeter-shapes_{precision}.tflite").precision == precision
