"""Facts about bad input.

Each is one line that names the thing to change and a status that tells, but never a traceback or a
number.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.rows import table_row
from tests.fixtures.servers import free_port

pytestmark = pytest.mark.services
SHIPPED = Path(__file__).resolve().parents[2] / "models" / "shipped"
SOUND = SHIPPED / "edgemeter-shapes_fp32.onnx"


def edgemeter(
    *arguments: object, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [*EDGEMETER, *map(str, arguments)]
    variables = {**os.environ, "EDGEMETER_HOME": str(cwd / "home"), **environment}
    return subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture
def folder(tmp_path):
    """Return a folder with files that are good, broken or absent.

    It has two photographs, broken models, annotations, a suite, a store, and a library that is not
    there.
    """
    photographs = tmp_path / "photos"
    photographs.mkdir()
    for name in ("a.png", "b.png"):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(photographs / name)
    sound = (SHIPPED / "edgemeter-shapes_int8.tflite").read_bytes()
    (tmp_path / "cut.tflite").write_bytes(sound[: len(sound) // 2])
    (tmp_path / "text.onnx").write_text("this is no model\n")
    absent = {
        "images": [{"id": 1, "file_name": "gone.png"}],
        "annotations": [],
        "categories": [{"id": 1, "name": "x"}],
    }
    (tmp_path / "absent.json").write_text(json.dumps(absent))
    (tmp_path / "typo.toml").write_text('name = "s"\n[[case]]\nmodel = "m.onnx"\nthreds = 2\n')
    (tmp_path / "notes.txt").write_text("no ledger\n")
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "onnxruntime.py").write_text("raise ImportError('not here')\n")
    return tmp_path


def test_bad_input_is_one_line_that_names_it(folder):
    """Bad input gives status 1 or 2 and no standard output.

    With `-q`, which hides progress and notes, standard error has one line.
    """
    nobody = f"127.0.0.1:{free_port()}"
    for arguments, named in (
        (("run", "-q", "gone.onnx", "--data", "photos"), "gone.onnx"),
        (("run", "-q", "cut.tflite", "--data", "photos"), "cut.tflite"),
        (("run", "-q", "text.onnx", "--data", "photos"), "text.onnx"),
        (("run", "-q", SOUND, "--data", "photos", "--annotations", "absent.json"), "'gone.png'"),
        (("run", "-q", SOUND, "--data", "photos", "--broker", nobody), nobody),
        (("run", "-q", SOUND, "--mode", "rapid"), "edgemeter[onnx]"),
        (("run", "typo.toml"), "threds"),
        (("compare", "--reference", "reference", "--ledger", "notes.txt"), "notes.txt"),
        (("collector", "up", "--broker", nobody, "--ledger", "new.sqlite"), nobody),
        (("collector", "up", "--port", "0", "--ledger", "notes.txt"), "notes.txt"),
    ):
        with table_row(*arguments):
            shadow = {"PYTHONPATH": str(folder / "shadow")} if named == "edgemeter[onnx]" else {}
            result = edgemeter(*arguments, cwd=folder, **shadow)
            assert result.returncode in (1, 2)
            assert result.stdout == ""
            (line,) = result.stderr.splitlines()
            assert named in line
    assert (folder / "notes.txt").read_text() == "no ledger\n"


@pytest.mark.realdata
def test_a_real_model_that_cannot_run_here_is_one_line(realdata, folder):
    """A model for an Edge TPU, and one that fails at allocation by design, give one line each."""
    for file, named in (
        ("mobilenet_v1_0.25_128_quant_edgetpu.tflite", "--runtime edgetpu"),
        ("model_invoking_error.tflite", "fake-op-double"),
    ):
        with table_row(file):
            result = edgemeter(
                "run", "-q", realdata / "models" / file, "--data", "photos", cwd=folder
            )
            assert result.returncode in (1, 2)
            assert named in result.stderr
            assert "Traceback" not in result.stderr
