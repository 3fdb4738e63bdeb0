"""Facts about bad input: each is one line that says what to do, and a status that tells; never a traceback, never a number."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.servers import free_port

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "runtimes"
SHIPPED = Path(__file__).resolve().parents[2] / "models" / "shipped"


def edgemeter(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Return the finished command, its home below `cwd`."""
    command = [*EDGEMETER, *map(str, arguments)]
    variables = {**os.environ, "EDGEMETER_HOME": str(cwd / "home"), **environment}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two photographs, sound and broken models, annotations, suites and stores."""
    photographs = tmp_path / "photos"
    photographs.mkdir()
    for name in ("a.png", "b.png"):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(photographs / name)
    (tmp_path / "empty").mkdir()
    sound = (SHIPPED / "edgemeter-shapes_int8.tflite").read_bytes()
    (tmp_path / "cut.tflite").write_bytes(sound[: len(sound) // 2])
    (tmp_path / "text.onnx").write_text("this is no model\n")
    absent = {"images": [{"id": 1, "file_name": "gone.png"}], "annotations": [], "categories": [{"id": 1, "name": "x"}]}
    (tmp_path / "absent.json").write_text(json.dumps(absent))
    (tmp_path / "typo.toml").write_text('name = "s"\n[[case]]\nmodel = "m.onnx"\nthreds = 2\n')
    (tmp_path / "notes.txt").write_text("no ledger\n")
    return tmp_path


SOUND = SHIPPED / "edgemeter-shapes_fp32.onnx"
CASES = [
    ("a missing model", ("run", "-q", "--model", "gone.onnx", "--data", "photos"), "there is no model at"),
    ("a truncated .tflite", ("run", "-q", "--model", "cut.tflite", "--data", "photos"), "is truncated or garbled"),
    ("an .onnx that is text", ("run", "-q", "--model", "text.onnx", "--data", "photos"), "it is not an ONNX model"),
    ("a folder without images", ("run", "-q", "--model", SOUND, "--data", "empty"), "no photographs"),
    ("no folder", ("run", "-q", "--model", SOUND, "--data", "gone"), "there is no data at"),
    ("annotations of absent images", ("run", "-q", "--model", SOUND, "--data", "photos", "--annotations", "absent.json"), "'gone.png'"),
    ("a suite with a typo", ("run", "typo.toml"), "[[case]] number 1 threds: no such key: did you mean threads?"),
    ("an unknown runtime", ("run", "-q", "--model", SOUND, "--runtime", "tensorrt9"), "no runtime is called 'tensorrt9'"),
    ("a store that is not ours", ("compare", "--reference", "reference", "--ledger", "notes.txt"), "notes.txt"),
    ("a store that is not there", ("compare", "--reference", "reference", "--ledger", "gone.sqlite"), "gone.sqlite"),
]


@pytest.mark.services
@pytest.mark.parametrize(("arguments", "says"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_bad_input_is_one_line_that_names_the_remedy(folder, arguments, says):
    """Nothing on standard output; with `-q`, which hides progress and notes, one line on standard error; status 1 or 2."""
    result = edgemeter(*arguments, cwd=folder)
    assert result.returncode in (1, 2)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert says in lines[0]
    assert ":" in lines[0]


def test_no_broker_at_the_address_ends_before_anything_is_measured(folder):
    """The address is tried first, and the line names it and both ways out."""
    address = f"127.0.0.1:{free_port()}"
    result = edgemeter("run", "--model", SOUND, "--data", "photos", "--broker", address, cwd=folder)
    assert result.returncode == 1
    assert f"no MQTT broker answers at {address}" in result.stderr
    assert "leave out --broker" in result.stderr


@pytest.mark.services
def test_a_runtime_that_is_not_installed_names_how_to_install_it(folder):
    """The line holds the pip command with the extra."""
    (folder / "shadow").mkdir()
    (folder / "shadow" / "onnxruntime.py").write_text("raise ImportError('not here')\n")
    result = edgemeter("run", "-q", "--model", SOUND, "--mode", "rapid", cwd=folder, PYTHONPATH=str(folder / "shadow"))
    assert result.returncode == 1
    assert "pip install 'edgemeter[onnx]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.services
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("mobilenet_v1_0.25_128_quant_edgetpu.tflite", "is compiled for an Edge TPU: measure it with --runtime edgetpu"),
        ("model_invoking_error.tflite", "fake-op-double"),
    ],
)
def test_a_real_model_that_cannot_run_here_states_why(realdata, folder, file, says):
    """An Edge TPU model on a processor, and one that fails at allocation by design."""
    result = edgemeter("run", "-q", "--model", realdata / "models" / file, "--data", "photos", cwd=folder)
    assert result.returncode in (1, 2)
    assert says in result.stderr
    assert "Traceback" not in result.stderr
