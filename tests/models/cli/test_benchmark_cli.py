"""`edgemeter benchmark`: what is refused, what is converted from what, and the recommendation."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract import model_file
from edgemeter.agent.session import checks
from edgemeter.models.cli import benchmark, board_formats
from edgemeter.models.cli.board_formats import BoardFormats, FormatRequest, convert_all
from tests.fixtures.command import edgemeter
from tests.fixtures.played_session import play, run_of
from tests.fixtures.record_factory import make_accuracy, make_model
from tests.fixtures.replay_case import replay_model


def converted(monkeypatch, source, failing=(), calibration=None):
    """Return the outcome of `convert_all`, and by format the name of the converted file.

    The converters write nothing.
    """
    bases = {}

    def convert(base, goal, _request):
        bases[goal.name] = base.name
        if goal.name in failing:
            raise UnavailableError(f"no converter for {goal.name}")
        return source.with_name(f"m{goal.ending}")

    monkeypatch.setattr(board_formats, "_convert", convert)
    monkeypatch.setattr(board_formats, "which", lambda _: None)
    monkeypatch.setattr(board_formats, "find_spec", lambda _: "installed")
    return convert_all(
        FormatRequest(source, source.parent, calibration, 200), lambda _: None
    ), bases


def test_each_step_is_made_once(monkeypatch, tmp_path):
    """Later formats are made from a written file, so that a PyTorch model is traced only once.

    The file is the fp32 one.
    """
    converted_files, bases = converted(monkeypatch, tmp_path / "m.pt2", calibration=tmp_path)
    assert {bases[name] for name in ("onnx-fp16", "onnx-int8")} == {"m_fp32.onnx"}
    assert {bases[name] for name in ("litert-fp16", "litert-int8")} == {"m_fp32.tflite"}
    assert {bases[name] for name in ("onnx-fp32", "litert-fp32")} == {"m.pt2"}
    assert set(converted_files.reasons) == {"edgetpu", "tensorrt-fp16", "tensorrt-int8"}


def test_a_converter_that_fails_ends_no_other(monkeypatch, tmp_path):
    """A converter that fails stops no other, and each absent format has a reason.

    The reason is its own, or that of the file that it is made from, or that it needs images or a
    program.
    """
    converted_files, bases = converted(monkeypatch, tmp_path / "m.pt2", failing=("litert-fp32",))
    assert converted_files.reasons["litert-fp32"] == "no converter for litert-fp32"
    assert converted_files.reasons["litert-fp16"].startswith("litert-fp32, ")
    assert "--calibration" in converted_files.reasons["onnx-int8"]
    assert "trtexec" in converted_files.reasons["tensorrt-fp16"]
    assert "onnx-fp16" in converted_files.written
    assert "litert-fp16" not in bases


def test_what_a_model_cannot_become_has_a_reason(monkeypatch, tmp_path):
    """An ONNX file gets the reason that LiteRT files are made from PyTorch only."""
    reasons = converted(monkeypatch, tmp_path / "m.onnx", calibration=tmp_path)[0].reasons
    reason = "made from a PyTorch model only (.pt2 or TorchScript): give that"
    assert (reasons["litert-int8"], reasons["litert-fp32"], "onnx-fp16" in reasons) == (
        reason,
        reason,
        False,
    )
    # One line for all of them, whatever a format is called.
    assert (
        len(
            [
                line
                for line in benchmark._not_converted(BoardFormats(reasons=reasons))
                if "PyTorch" in line
            ]
        )
        == 1
    )


def test_an_extra_that_is_not_installed_is_named_before_the_first_conversion(monkeypatch, tmp_path):
    """A missing extra is named with its install command before any of its conversions begins."""
    monkeypatch.setattr(board_formats, "which", lambda _: "compiler")
    monkeypatch.setattr(board_formats, "find_spec", lambda _: None)
    monkeypatch.setattr(board_formats, "_convert", lambda *_: tmp_path / "m_fp16.engine")
    lines = []
    converted_files = convert_all(
        FormatRequest(tmp_path / "m.onnx", tmp_path, None, 200), lines.append
    )
    assert [line.rpartition(" ")[2] for line in lines] == ["tensorrt-fp16", "tensorrt-int8"]
    for name in ("onnx-fp16", "onnx-int8"):
        assert converted_files.reasons[name].startswith(
            "needs the extra `convert`: pip install 'edgemeter[convert]'"
        )


def test_every_runtime_that_reads_a_file_is_measured(tmp_path):
    """Each file is measured by every runtime that reads it, so ONNX files by OpenVINO too.

    A LiteRT file is measured by an Edge TPU only if it was compiled for it.
    """
    converted_files = BoardFormats(
        {"litert-fp32": tmp_path / "m_fp32.tflite", "edgetpu": tmp_path / "m_int8_edgetpu.tflite"}
    )
    candidates = converted_files.candidates(tmp_path / "m.onnx")
    assert [(name, path.name, runtime) for name, (path, runtime) in candidates.items()] == [
        ("m.onnx", "m.onnx", "onnx"), ("m.onnx, openvino", "m.onnx", "openvino"),
        ("litert-fp32", "m_fp32.tflite", "litert"),
        ("edgetpu", "m_int8_edgetpu.tflite", "edgetpu"),
    ]  # fmt: skip


def test_wrong_usage_names_the_remedy(tmp_path):
    """Wrong usage is one line with the remedy, before anything is converted."""
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    replay_model(tmp_path)
    for words, message in (
        (("m.gguf",), "edgemeter compare A B"),
        (("m.replay.json",), "fp32"),
        (("none.onnx",), "'none.onnx'"),
        (("edgemeter-shapes_fp32.onnx", "--data", "nowhere"), "nowhere"),
    ):
        result = edgemeter("benchmark", *words, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, ""), words
        assert message in result.stderr, words


def test_a_converter_that_is_killed_or_ruins_the_model_has_a_reason(monkeypatch, tmp_path):
    """A killed converter and a ruined model give a reason, and no file to measure.

    The kernel ends a process that takes too much memory by a signal, so that there is no document
    and no message.
    """
    monkeypatch.setattr(board_formats, "model_files", lambda path: [path])
    monkeypatch.setattr(board_formats, "find_spec", lambda _: "installed")
    ruined = (
        b'{"conversions": [{"verdict": "ruined", "reason": "it gives one answer", "file": null}]}'
    )
    for status, document, reason in (
        (-9, b"", "signal 9"),
        (1, ruined, "ruined: it gives one answer"),
    ):
        process = Mock(status=status, **{"communicate.return_value": (document, b"")})
        monkeypatch.setattr(
            board_formats, "confined", lambda *_, process=process, **__: nullcontext(process)
        )
        converted_files = convert_all(
            FormatRequest(tmp_path / "m.onnx", tmp_path, None, 200), lambda _: None
        )
        assert reason in converted_files.reasons["onnx-fp16"]
        assert converted_files.written == {}


def test_the_formats_are_compared_and_one_is_recommended(monkeypatch, tmp_path):
    """The formats are compared, and the fastest one that kept its accuracy is recommended.

    B is twice as fast and kept its accuracy; C is faster and wrong; D does not run, so it is left
    out with its reason.
    """
    monkeypatch.chdir(tmp_path)
    for name in "abcd":
        (tmp_path / f"{name}.onnx").write_bytes(name.encode() * 1000)
    written = {f"onnx-{name}": tmp_path / f"{name}.onnx" for name in "bcd"}
    converted_files = BoardFormats(written, {"edgetpu": "needs the program edgetpu_compiler"})
    monkeypatch.setattr(board_formats, "convert_all", lambda *_: converted_files)
    rows = {"a.onnx": Path("a.onnx"), **written}
    monkeypatch.setattr(
        BoardFormats, "candidates", lambda *_: {name: (path, "onnx") for name, path in rows.items()}
    )
    monkeypatch.setattr(checks, "refusals", lambda *_: {})
    speeds, accuracies = {"a": 10.0, "b": 5.0, "c": 2.0}, {"a": 0.5, "b": 0.49, "c": 0.2}

    def outcome_of(letter, number):
        if letter == "d":
            return UnavailableError("no kernel for it")
        accuracy = make_accuracy(value=accuracies[letter], low=None, high=None, without_parts=())
        model = make_model(name="m", sha256=model_file.sha256(tmp_path / f"{letter}.onnx"))
        return run_of(letter, speeds[letter] + 0.001 * number, accuracy=accuracy, model=model)

    play(monkeypatch, outcome_of)
    words = ("benchmark", "a.onnx", "--repeats", 3)
    result = edgemeter(
        *words,
        "--format",
        "json",
        cwd=tmp_path,
        env=os.environ | {"EDGEMETER_HOME": str(tmp_path / "home")},
    )
    document = json.loads(result.stdout)
    assert (result.returncode, document["not_converted"], list(document["files"])) == (
        1,
        converted_files.reasons,
        list(written),
    )
    assert len(document["rows"]) == 3
    assert any("no kernel for it" in entry["reason"] for entry in document["left_out"])
    table = edgemeter(
        *words, cwd=tmp_path, env=os.environ | {"EDGEMETER_HOME": str(tmp_path / "home")}
    ).stdout.splitlines()
    assert table[-2:] == [
        "no edgetpu: needs the program edgetpu_compiler",
        f"the converted files are in {str(tmp_path / 'converted')!r}",
    ]
    assert [line.split()[0] for line in table[1:4]] == ["a.onnx", "onnx-b", "onnx-c"]
    assert table[0].split() == ["format", "MB", "AP", "p50", "ms"]
    (row,) = (line for line in table[1:4] if line.endswith("recommended"))
    assert (row.split()[:3], any(line.startswith("recommended: onnx-b, ") for line in table)) == (
        ["onnx-b", "0.001", "0.490"],
        True,
    )


@pytest.mark.convert
@pytest.mark.nightly
def test_a_shipped_model_is_converted_measured_and_one_is_picked(tmp_path):
    """A shipped model is converted, each file is measured by each runtime, and one is picked.

    Converters in their sandboxes and runtimes are real; the files are in the folder that was named.
    """
    command = [
        "-m",
        "edgemeter.agent.cli",
        "benchmark",
        "edgemeter-shapes_fp32.onnx",
        "--repeats",
        "2",
        "--output",
        "out",
        "--format",
        "json",
    ]
    environment = os.environ | {"EDGEMETER_HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert {"onnx-fp16", "onnx-int8"} == set(document["files"])
    assert all(
        (tmp_path / "out" / path.rpartition("/")[2]).is_file()
        for path in document["files"].values()
    )
    assert len(document["rows"]) > 2
    assert document["not_converted"]["tensorrt-fp16"]
