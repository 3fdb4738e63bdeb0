"""`edgemeter models add`: an entry and a card of what the file itself says."""

import importlib
import json
import shutil
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_card, model_file
from edgemeter.models.catalogue import add, catalogue, shipped_models
from tests.fixtures.catalogue_factory import card_beside
from tests.fixtures.ordinary_user import ordinary_user
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.usefixtures("inspected_here")
SHIPPED = shipped_models.SHIPPED_FOLDER
ROOT = Path(__file__).resolve().parents[3]


def scale_of(path):
    """Return the scale of a .tflite file's input, as the interpreter itself tells."""
    interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter(str(path))
    return interpreter.get_input_details()[0]["quantization"][0]


@pytest.fixture
def own_copy(tmp_path):
    """Return what copies a file, without its card, to a folder of the user's."""

    def copy(source: Path, name: str | None = None) -> Path:
        (tmp_path / "own").mkdir(exist_ok=True)
        return Path(shutil.copyfile(source, tmp_path / "own" / (name or source.name)))

    return copy


def test_a_model_with_a_card_is_added_as_the_card_states(own_copy, invoke):
    """Shapes, types and scales come from the file, here the int8 input of the shipped detector."""
    source = SHIPPED / "edgemeter-shapes_int8.tflite"
    path = own_copy(source)
    shutil.copyfile(model_card.card_path(source), model_card.card_path(path))
    document = json.loads(invoke("add", path, "--name", "shapes", "--format", "json").stdout)
    entry = document["entry"]
    expected = {"family": "edgemeter", "precision": "int8", "licence": "Apache-2.0"}
    assert {key: entry[key] for key in expected} == expected
    (tensor_in,) = document["inputs"]
    assert (tensor_in["shape"], tensor_in["dtype"], tensor_in["zero_point"]) == (
        [1, 160, 160, 3],
        "int8",
        -128,
    )
    assert tensor_in["scale"] == pytest.approx(scale_of(path))
    assert entry["sha256"] == model_file.sha256(path)
    assert catalogue.find_entry("shapes").path == str(path)
    assert "(here)" in invoke("list").stdout


def test_a_model_that_cannot_be_recognised_names_what_to_write(own_copy, invoke, home):
    """A model whose input is no picture gives a message with what to write, and no file."""
    path = own_copy(ROOT / "tests" / "fixtures" / "runtimes" / "onnx.onnx")
    with pytest.raises(ConfigError, match="card"):
        invoke("add", path)
    assert not model_card.card_path(path).exists()
    assert not (home / "catalogue.toml").exists()


@pytest.mark.realdata
def test_an_export_that_the_catalogue_waits_for_takes_its_place(realdata, own_copy, invoke):
    """An added file is found under the catalogue's name that waits for it.

    `yolov8n` says how it is made; the file of that name takes its place, and its guesses are
    reported.
    """
    path = own_copy(realdata / "models" / "yolov8n.onnx")
    result = invoke("add", path)
    assert "yolov8n: detection, yolov8, fp32, 80 labels" in result.stdout
    assert "guessed: family yolov8" in result.stderr
    entry = catalogue.find_entry("yolov8n")
    assert (entry.path, entry.sha256) == (str(path), model_file.sha256(path))
    assert "family yolov8" in entry.note
    assert "family yolov8" in card_beside(path).made["guesses"]
    assert invoke("verify", "yolov8n").exit_code == 0
    assert invoke("fetch", "yolov8n").stdout == f"{path}\n"


@pytest.fixture
def shapes(own_copy):
    source = SHIPPED / "edgemeter-shapes_fp32.onnx"
    path = own_copy(source)
    shutil.copyfile(model_card.card_path(source), model_card.card_path(path))
    return path


def test_a_taken_name_is_refused(shapes, own_copy, invoke):
    """A name that another file of the user's or ours has is refused; the same file again is not."""
    invoke("add", shapes, "--name", "mine")
    assert invoke("add", shapes, "--name", "mine").exit_code == 0
    other = own_copy(shapes, "other.onnx")
    shutil.copyfile(model_card.card_path(shapes), model_card.card_path(other))
    with pytest.raises(ConfigError, match="--replace"):
        invoke("add", other, "--name", "mine")
    with pytest.raises(ConfigError, match="'yolox-nano'"):
        invoke("add", other, "--name", "yolox-nano")
    invoke("add", other, "--name", "mine", "--replace")
    assert catalogue.find_entry("mine").path == str(other)


def test_a_card_of_another_file_is_refused(shapes, invoke):
    """A card whose model file was changed is refused.

    A file that changes later, or goes, is found by `verify`, which says which.
    """
    invoke("add", shapes, "--name", "mine")
    with shapes.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ConfigError, match=shapes.name):
        invoke("add", shapes)
    result = invoke("verify")
    assert (result.exit_code, "mine" in result.stderr) == (1, True)
    shapes.unlink()
    result = invoke("verify", "mine")
    assert (result.exit_code, "is missing" in result.stderr) == (1, True)


@pytest.mark.services
def test_a_folder_that_is_not_ours_is_reported(shapes, invoke, tmp_path, monkeypatch):
    """A model in a folder that is not ours has to be copied first, as its card lies beside it.

    The catalogue names no half-added model.
    """
    model_card.card_path(shapes).unlink()
    shapes.parent.chmod(0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if not parent.stat().st_mode & 0o001:
            parent.chmod(0o755)
    loaded = add.inspect(shapes, "onnx")
    monkeypatch.setattr(add, "inspect", lambda *_: loaded)
    monkeypatch.setenv("EDGEMETER_CATALOGUE", str(tmp_path / "catalogue.toml"))
    with ordinary_user(), pytest.raises(ConfigError, match="folder"):
        invoke("add", shapes, "--name", "mine")
    assert not (tmp_path / "catalogue.toml").exists()


def test_what_is_no_model_is_reported(own_copy, invoke, home, tmp_path):
    """An empty, garbled or unknown file is refused in one line, and nothing is written."""
    for name, body in (
        ("m.onnx", b""),
        ("m.onnx", b"garbled"),
        ("m.xyz", b"x"),
        ("m.tflite", b"TFL3"),
    ):
        with table_row(name, body):
            (tmp_path / "body").write_bytes(body)
            with pytest.raises(ConfigError, match="m"):
                invoke("add", own_copy(tmp_path / "body", name))
            assert not (home / "catalogue.toml").exists()
    with pytest.raises(ConfigError, match="absent"):
        invoke("add", tmp_path / "absent.onnx")
