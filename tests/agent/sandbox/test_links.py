"""Runs over links see each link's target, and nothing that lies beside it.

The tests use a real sandbox.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.rows import table_row

FIXTURES = Path(__file__).parents[2] / "fixtures" / "runtimes"
SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"
# Code of a model: it says in its output what it can read of the listed paths.
SPY = """
import os
from pathlib import Path

def reached(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes()
    except OSError:
        return None

def make(paths):
    paths = [path for path in paths.split(":") if reached(path) is not None]
    if paths:
        raise RuntimeError(f"read {paths}")
    return (lambda x: x), {"x": ("float32", (1, 4))}
"""
CARD = """
name = "spy"
task = "classification"
family = "classifier"
precision = "fp32"
[input]
kind = "tensor"
[output]
classes = 4
"""


def run(folder, *words, **variables):
    """Return what `edgemeter run` ends with, over a home with a key beside the arrays of others."""
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.cli",
        "run",
        *words,
        "--mode",
        "rapid",
        "--repeats",
        "1",
        "--format",
        "json",
    ]
    return subprocess.run(
        [*command, "--no-save", "-q"], capture_output=True, text=True, check=False, cwd=folder,
        timeout=300,
        env={
            **os.environ, "HOME": str(folder / "home"), "EDGEMETER_HOME": str(folder / "state"),
            **variables,
        },
    )  # fmt: skip


@pytest.fixture
def arrays(tmp_path):
    """Return a folder with a key and 210 arrays to which a selection links.

    The folder is in a home; the model that spies lies elsewhere.
    """
    private = tmp_path / "home" / "private"
    private.mkdir(parents=True)
    (private / "id_rsa").write_text(SECRET)
    (tmp_path / "selection").mkdir()
    for number in range(210):
        name = f"{number:03}.npy"
        np.save(private / name, np.full((1, 4), number, np.float32))
        (tmp_path / "selection" / name).symlink_to(private / name)
    np.save(private / "of nobody.npy", np.zeros((1, 4), np.float32))
    (tmp_path / "spy.py").write_text(SPY)
    (tmp_path / "spy.py.toml").write_text(CARD)
    return private


@pytest.mark.bwrap
def test_a_model_cannot_read_beside_the_targets_of_many_links(tmp_path, arrays):
    """The run sees all 210 arrays and reports how many links it followed.

    Its code finds neither the key nor an array without a link.
    """
    hidden = [str(arrays / "id_rsa"), str(arrays / "of nobody.npy")]
    ended = run(
        tmp_path, "spy.py:make", "--data", "selection", "--option", f"paths={':'.join(hidden)}"
    )
    assert ended.returncode == 0, ended.stderr
    (measured,) = (document := json.loads(ended.stdout)).get("runs", [document])
    assert measured["dataset"]["images"] == 210
    assert measured["runtime"]["facts"]["links"] == "210 followed out of their folders"
    assert (
        ended.stderr.count("210 links followed out of the folders of model and data (first ") == 1
    )
    by_link = run(
        tmp_path, "spy.py:make", "--data", "selection", "--option", f"paths={arrays / '007.npy'}"
    )
    assert "007.npy" in by_link.stderr


@pytest.mark.services
@pytest.mark.needs(module="onnxruntime")
@pytest.mark.parametrize("has_sandbox", [pytest.param(True, marks=pytest.mark.bwrap), False])
def test_a_link_to_a_key_ends_in_one_line_with_and_without_a_sandbox(tmp_path, arrays, has_sandbox):
    """The line names the link and holds nothing of the key.

    The link is in the data, or is the model's card or weights.
    """
    (models := tmp_path / "models").mkdir()
    (models / "net.onnx").write_bytes((FIXTURES / "onnx_external.onnx").read_bytes())
    variables = {} if has_sandbox else {"PATH": str(tmp_path / "no programs")}
    for link, words in (
        (
            tmp_path / "selection" / "photo.npy",
            ("spy.py:make", "--data", "selection", "--option", "paths=x"),
        ),
        (models / "onnx_external.bin", ("models/net.onnx",)),
        (models / "net.onnx.toml", ("models/net.onnx",)),
    ):
        with table_row(link.name):
            link.symlink_to(arrays / "id_rsa")
            ended = run(tmp_path, *words, **variables)
            lines = [line for line in ended.stderr.splitlines() if line.startswith("edgemeter: ")]
            assert (ended.returncode, len(lines)) == (2, 1), ended.stderr
            assert f"the link {str(link)!r} leads to " in lines[0]
            assert SECRET not in ended.stdout + ended.stderr
            link.unlink()


@pytest.mark.bwrap
@pytest.mark.needs(module="onnxruntime")
def test_models_in_a_cache_of_hugging_face_run(tmp_path):
    """Model, external data and card are links to files named by their hash.

    The files are in a folder beside that of the links.
    """
    (snapshot := tmp_path / "models--x" / "snapshots" / "1").mkdir(parents=True)
    (blobs := tmp_path / "models--x" / "blobs").mkdir()
    (blobs / "secret").write_text(SECRET)
    contents = {
        "onnx_external.onnx": (FIXTURES / "onnx_external.onnx").read_bytes(),
        "onnx_external.bin": bytes(4096),
    }
    for number, (name, content) in enumerate(contents.items()):
        blob = blobs / (f"{number}a" * 20)
        blob.write_bytes(content)
        (snapshot / name).symlink_to(f"../../blobs/{blob.name}")
    ended = run(tmp_path, str(snapshot / "onnx_external.onnx"))
    assert ended.returncode == 0, ended.stderr
    assert "1 link followed out of the folders of model and data" in ended.stderr


@pytest.mark.bwrap
def test_more_links_than_the_sandbox_can_show_end_in_one_line_whose_remedy_works(tmp_path, arrays):
    """Bubblewrap's time grows with the square of the number of links.

    The remedy, a copy made of hard links, takes no space.
    """
    for number in range(210, 1100):
        (tmp_path / "selection" / f"{number}.npy").symlink_to(arrays / "000.npy")
    words = ("spy.py:make", "--option", "paths=x", "--data")
    ended = run(tmp_path, *words, "selection")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert "the sandbox shows at most 1000" in ended.stderr
    command = ended.stderr.partition("takes no space")[0].split("`")[-2]
    assert command == "cp -rlL"
    subprocess.run([*command.split(), "selection", "copy"], check=True, cwd=tmp_path)
    assert run(tmp_path, *words, "copy").returncode == 0
