"""Facts about file names that are not UTF-8, as on other systems and old disks.

Every command answers them with one line that states the remedy.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.contract.record import encode
from tests.fixtures.command import edgemeter
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes"
ODD = os.fsdecode(b"od\xffd")


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """Return a folder with a model, data, annotations and records, each also under such a name."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "state"))
    for name in ("m", ODD):
        shutil.copy(FIXTURES / "onnx.onnx", tmp_path / f"{name}.onnx")
        (tmp_path / f"{name}.replay.json").write_bytes(
            (FIXTURES / "replay.replay.json").read_bytes()
        )
        (tmp_path / f"{name}.json").write_bytes(encode(make_record()))
        (tmp_path / f"{name}.txt").write_text("a.npy 0\n")
        (tmp_path / f"{name}.toml").write_text('name = "s"\n[[case]]\nmodel = "m.replay.json"\n')
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", np.zeros((1, 4), np.float32))
    (tmp_path / "within").mkdir()
    np.save(tmp_path / "within" / f"{ODD}.npy", np.zeros((1, 4), np.float32))
    return tmp_path


def test_every_command_works_with_such_a_name_or_ends_in_one_line(odd):
    """The line names the file as Python prints it, and says that it must be renamed."""
    rapid = ("--mode", "rapid", "--repeats", "1", "--no-save")
    for words in (
        ("run", f"{ODD}.replay.json", *rapid), ("run", f"{ODD}.toml", *rapid),
        ("run", f"{ODD}.onnx", *rapid),
        ("run", "m.onnx", "--data", ODD, *rapid),
        ("run", "m.onnx", "--data", "m", "--annotations", f"{ODD}.txt", *rapid),
        ("run", "m.replay.json", "--bundle", ODD, *rapid), ("run", f"{ODD}.py:make", *rapid),
        ("accuracy", f"{ODD}.onnx", "--data", "m"), ("accuracy", "m.onnx", "--data", ODD),
        ("accuracy", "--predictions", f"{ODD}.json", "--data", "m", "--annotations", "m.json"),
        ("benchmark", f"{ODD}.onnx"), ("energy", "--", "cat", f"{ODD}.onnx"),
        ("compare", "m.replay.json", f"{ODD}.replay.json", "--repeats", "3"),
        ("compare", "m.json", f"{ODD}.json"),
        ("models", "convert", f"{ODD}.onnx", "--to", "onnx-int8"),
        ("models", "convert", "m.onnx", "--to", "onnx-int8", "--output", ODD),
        ("models", "convert", "m.onnx", "--to", "onnx-int8", "--calibration", ODD),
        ("models", "add", f"{ODD}.onnx"),
        ("runs", "show", ODD), ("runs", "note", "m", ODD), ("report", f"{ODD}.json"),
        ("report", "-o", f"{ODD}.html"),
        ("trend", "note", ODD), ("config", "check", f"{ODD}.toml"),
        ("agent", "up", "--config", f"{ODD}.toml"),
        ("fleet", "run", f"{ODD}.toml"),
    ):  # fmt: skip
        with table_row(*words):
            ended = edgemeter(*words, cwd=odd)
            assert ended.returncode == 2, ended.stdout + ended.stderr
            assert ended.stderr.startswith("edgemeter: ")
            assert ended.stderr.endswith(
                " is not UTF-8, as names in records are: rename the file or folder with `mv`\n"
            )
            assert r"od\udcffd" in ended.stderr
            assert ended.stderr.count("\n") == 1


@pytest.mark.services
@pytest.mark.needs(module="onnxruntime")
def test_such_a_name_in_a_folder_of_data_or_above_the_model_ends_in_one_line(odd):
    """An item, a folder of a class or the working directory is named on no command line."""
    (odd / "classes" / ODD).mkdir(parents=True)
    shutil.copy(odd / "m" / "a.npy", odd / "classes" / ODD)
    shutil.copy(odd / "m.onnx", odd / ODD)
    for folder, words in (
        (odd, ("m.onnx", "--data", "within")),
        (odd, ("m.onnx", "--data", "classes")),
        (odd / ODD, ("m.onnx",)),
    ):
        with table_row(*words):
            ended = edgemeter(
                "run", *words, "--mode", "rapid", "--repeats", "1", "--no-save", "-q", cwd=folder
            )
            assert ended.returncode == 2, ended.stdout + ended.stderr
            assert r"od\udcffd" in ended.stderr
            assert ended.stderr.endswith(
                " is not UTF-8, as names in records are: rename the file or folder with `mv`\n"
            )
            assert ended.stderr.count("\n") == 1
