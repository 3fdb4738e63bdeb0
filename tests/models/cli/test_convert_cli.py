"""Tests of `edgemeter models convert`.

They check what is refused before anything is imported or written, and what is printed.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from PIL import Image

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.contract import model_file
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from edgemeter.models.cli import confined
from edgemeter.models.cli.convert import convert
from edgemeter.models.convert import conversion
from tests.fixtures.rows import table_row

FIXTURES = Path(__file__).parents[2] / "fixtures" / "runtimes"


def invoke(*arguments):
    return CliRunner().invoke(
        convert, [str(argument) for argument in arguments], catch_exceptions=False
    )


def test_a_format_is_asked_for_and_annotations_need_their_pictures():
    """A command without a format is wrong usage, as no default writes every format.

    Annotations without pictures are wrong usage too, as ground truth alone scores nothing.
    """
    assert invoke("model.onnx").exit_code == 2
    result = invoke("model.onnx", "--to", "onnx-fp16", "--annotations", "val.json")
    assert (result.exit_code, "--annotations" in result.output) == (2, True)
    with pytest.raises(ConfigError, match=r"'onnx-fp8': did you mean onnx-fp32"):
        invoke("nowhere.onnx", "--to", "onnx-fp8")


def test_the_command_in_the_sandbox_has_every_word_and_the_models_path(tmp_path, monkeypatch):
    """The command in the sandbox has every option and the model's path.

    A lost flag would print a table where JSON was asked for. The sandbox has no catalogue, so names
    cannot be looked up there.
    """
    started = []
    monkeypatch.setattr(
        confined,
        "confined",
        lambda words, *_, **__: started.append(words) or nullcontext(Mock(status=0)),
    )
    source = SHIPPED_FOLDER / "edgemeter-shapes_fp32.onnx"
    words = [
        source.name,
        "--to",
        "onnx-fp16",
        "--output",
        str(tmp_path / "out"),
        "--trusted",
        "--format",
        "json",
    ]
    monkeypatch.setattr(sys, "argv", ["edgemeter", "models", "convert", *words])
    CliRunner().invoke(convert, words, obj="process", catch_exceptions=False)
    assert started == [["models", "convert", str(source), *words[1:]]]


def test_a_source_that_is_no_model_is_one_line(tmp_path):
    """An absent or empty file, a pickle and half an archive are each refused in one line."""
    for content in (None, b"", b"\x80\x02}q\x00.", b"PK\x03\x04 truncated"):
        with table_row(content):
            model = tmp_path / "model.pt2"
            if content is not None:
                model.write_bytes(content)
            with pytest.raises(EdgemeterError, match=r"model\.pt2"):
                invoke(model, "--to", "onnx-fp16", "--output", tmp_path / "out")
            assert not (tmp_path / "out").exists()


def test_a_missing_converter_is_named_with_its_extra(monkeypatch, tmp_path):
    """A missing converter gives one line with the install command, and no file is written."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = invoke(FIXTURES / "onnx.onnx", "--to", "onnx-fp16", "--output", tmp_path / "out")
    assert (result.exit_code, "pip install 'edgemeter[convert]'" in result.stderr) == (1, True)
    assert not list((tmp_path / "out").iterdir())


def test_data_that_do_not_fit_the_source_are_one_error_before_anything_is_converted(
    monkeypatch, tmp_path
):
    """Unsuitable data are one error at the start, not one per format after minutes."""
    monkeypatch.setattr(conversion, "resolve_name", lambda _: pytest.fail("a maker is called"))
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    truth = {
        "images": [{"id": 1, "file_name": "a.png", "width": 64, "height": 64}],
        "annotations": [
            {
                "id": 1,
                "image_id": 1,
                "category_id": 1,
                "bbox": [1, 1, 9, 9],
                "area": 81,
                "iscrowd": 0,
            }
        ],
        "categories": [{"id": 1, "name": "zebra"}],
    }
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    words = ["edgemeter-shapes_fp32.onnx", "--to", "onnx-fp16", "--output", tmp_path / "out"]
    with pytest.raises(ConfigError, match="zebra"):
        invoke(*words, "--data", tmp_path, "--annotations", tmp_path / "truth.json")


@pytest.mark.services
def test_a_machine_without_a_sandbox_converts_only_what_is_called_trusted(tmp_path):
    """Without a sandbox, only a model that is called trusted is converted.

    A converter that a model takes over could remove every file of the user, so nothing else is
    begun.
    """
    (tmp_path / "trtexec").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "trtexec").chmod(0o755)
    checkout = Path(__file__).parents[3]
    environment = {
        **os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{checkout}",
        "EDGEMETER_HOME": str(tmp_path / "home"),
        "PATH": str(tmp_path),
    }  # fmt: skip

    def output(*words):
        command = [sys.executable, "-m", "edgemeter.agent.cli", *words]
        ended = subprocess.run(
            [*map(str, command)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.stdout + ended.stderr

    for words in (
        ["models", "convert", FIXTURES / "onnx.onnx", "--to", "onnx-fp16"],
        ["benchmark", FIXTURES / "onnx.onnx", "--repeats", "2", "--power", "none"],
    ):
        with table_row(words):
            shutil.rmtree(tmp_path / "converted", ignore_errors=True)
            assert "with --trusted" in output(*words)
            assert not (tmp_path / "converted").exists()
            assert "with --trusted" not in output(*words, "--trusted")


@pytest.mark.convert
@pytest.mark.nightly
def test_the_json_has_every_figure(tmp_path):
    """The JSON is one document with verdict, accuracy before and after, sizes and recipe."""
    result = invoke(
        "edgemeter-shapes_fp32.onnx", "--to", "onnx-int8", "--output", tmp_path, "--format", "json"
    )
    assert result.exit_code == 0
    (row,) = json.loads(result.stdout)["conversions"]
    assert (row["verdict"], row["accuracy_before"] - row["accuracy_after"] < 0.03) == ("ok", True)
    assert row["sha256"] == model_file.sha256(Path(row["file"]))
    assert row["size_bytes"] < 0.5 * row["source_size_bytes"]
    assert (row["made"]["from"], row["made"]["snr_db"] > 12) == ("edgemeter-shapes_fp32.onnx", True)


@pytest.mark.convert
@pytest.mark.nightly
def test_a_ruined_conversion_is_loud_and_fails(tmp_path):
    """A ruined conversion has status 1, a line that begins with RUINED, and no file."""
    (tmp_path / "black").mkdir()
    Image.new("RGB", (160, 160)).save(tmp_path / "black" / "black.png")
    result = invoke(
        "edgemeter-shapes_fp32.onnx",
        "--to",
        "onnx-int8",
        "--calibration",
        tmp_path / "black",
        "--output",
        tmp_path / "out",
    )
    assert result.exit_code == 1
    start = "RUINED: edgemeter-shapes_int8.onnx is not written: accuracy 0.7"
    assert any(
        line.startswith(start) and "calibrate on more images like" in line
        for line in result.stderr.splitlines()
    ), result.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.convert
@pytest.mark.nightly
@pytest.mark.realdata
def test_a_file_that_stayed_fp32_is_not_called_fp16(realdata, tmp_path):
    """A file that stayed fp32 is reported instead of being called fp16.

    The quantiser ai-edge-quantizer writes MLPerf Tiny's autoencoder unchanged, and says nothing.
    """
    model = realdata / "mlperf_tiny" / "ad01_fp32.tflite"
    words = [
        "models",
        "convert",
        model,
        "--to",
        "litert-fp16",
        "--output",
        "out",
        "--format",
        "json",
    ]
    command = [sys.executable, "-m", "edgemeter.agent.cli", *words]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, json.loads(result.stdout)["conversions"]) == (1, [])
    assert "the converter left everything in fp32, not in fp16" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.convert
def test_a_quantiser_works_in_its_sandbox(tmp_path):
    """A quantiser in its sandbox writes its files, which nobody may execute.

    The real command runs in a process of its own, as a user calls it.
    """
    command = [
        "-m",
        "edgemeter.agent.cli",
        "models",
        "convert",
        SHIPPED_FOLDER / "edgemeter-shapes_fp32.tflite",
    ]
    command += ["--to", "litert-int8", "--to", "litert-fp16", "--output", tmp_path / "out"]
    completed = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    files = sorted((tmp_path / "out").glob("*.tflite"))
    assert [path.stat().st_mode & 0o777 for path in files] == [0o644, 0o644]
