"""Reading a .tflite without running it."""

from contextlib import suppress
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import tflite_file


def test_every_truncation_is_found(models, tmp_path):
    """One line reports a file that ends early at any byte (here every 17th)."""
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
    for at in range(0, len(content), 13):
        path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        with suppress(ConfigError):
            tflite_file.read_tflite(path)


def test_tensors_determine_the_precision(models):
    """Integers count only with a scale, because indices are not quantised.

    The shipped files have the precision in their names.
    """
    shipped = Path(__file__).resolve().parents[3] / "models" / "shipped"
    for path, precision in [
        (models / "litert.tflite", "fp32"),
        (models / "litert_int8.tflite", "int8"),
        (models / "litert_int32.tflite", "fp32"),
        (shipped / "edgemeter-shapes_fp32.tflite", "fp32"),
        (shipped / "edgemeter-shapes_int8.tflite", "int8"),
    ]:
        assert tflite_file.read_tflite(path).precision == precision, path.name
