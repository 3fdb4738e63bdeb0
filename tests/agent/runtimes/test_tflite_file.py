"""Reading a .tflite without running it: every offset is checked before C++ follows it."""

import struct
from itertools import product
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import tflite_file
from tests.fixtures.rows import table_row


def test_every_truncation_is_found(models, tmp_path):
    """At whichever byte a file ends early (here every 17th), one line says so."""
    path = tmp_path / "cut.tflite"
    for name in ("litert", "litert_int8"):
        content = (models / f"{name}.tflite").read_bytes()
        for length in range(1, len(content), 17):
            path.write_bytes(content[:length])
            with pytest.raises(ConfigError, match=r"truncated or garbled|lacks the identifier"):
                tflite_file.read_tflite(path)


def test_a_garbled_file_never_raises_anything_else(models, tmp_path):
    """Every 13th byte, set to 255, leaves a file that passes or is refused in one line."""
    content = (models / "litert_signed.tflite").read_bytes()
    path = tmp_path / "garbled.tflite"
    refused = 0
    for at in range(0, len(content), 13):
        path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        try:
            tflite_file.read_tflite(path)
        except ConfigError:
            refused += 1
    assert refused > len(content) // 130


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
    """Integers count only with a scale: indices are not quantised. The shipped files are what they are called."""
    shipped = Path(__file__).resolve().parents[3] / "models" / "shipped"
    for path, precision in [
        (models / "litert.tflite", "fp32"),
        (models / "litert_int8.tflite", "int8"),
        (models / "litert_int32.tflite", "fp32"),
        (shipped / "edgemeter-shapes_fp32.tflite", "fp32"),
        (shipped / "edgemeter-shapes_int8.tflite", "int8"),
    ]:
        assert tflite_file.read_tflite(path).precision == precision, path.name
