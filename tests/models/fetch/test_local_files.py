"""Facts about models that are named instead of given as a path."""

import re
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.model_names import model_path
from edgemeter.models.catalogue.shipped_models import LANGUAGE_FOLDER, SHIPPED_FOLDER
from tests.fixtures.catalogue_factory import content, make_entry, write_catalogue
from tests.fixtures.rows import table_row

SHIPPED = "edgemeter-shapes_int8.tflite"


def test_a_fetched_model_is_its_file_in_the_cache(server, home, invoke):
    """After `edgemeter models fetch NAME`, `edgemeter run NAME` uses the file in the cache."""
    body = content(4_000)
    write_catalogue(
        home / "catalogue.toml", make_entry("mine", server.put("/mine.onnx", body), body)
    )
    invoke("fetch", "mine")
    assert model_path("mine") == home / "models" / "mine" / "mine.onnx"


@pytest.mark.usefixtures("inspected_here")
def test_an_added_model_is_its_file_where_it_lies(tmp_path, invoke):
    """An added model is found by its name where it lies, until its file goes."""
    path = tmp_path / "own.tflite"
    path.write_bytes((SHIPPED_FOLDER / SHIPPED).read_bytes())
    invoke("add", path, "--name", "mine")
    assert model_path("mine") == path
    path.unlink()
    with pytest.raises(ConfigError, match="models add"):
        model_path("mine")


def test_a_shipped_model_needs_no_folder(tmp_path, monkeypatch):
    """A shipped model is found by its name, unless the working directory has such a file.

    A text that can only be a path stays a path.
    """
    for path in ("models/none.onnx", "none.onnx"):
        assert str(model_path(path)) == str(Path(path)), f"{path!r}"
    monkeypatch.chdir(tmp_path)
    assert model_path(SHIPPED) == SHIPPED_FOLDER / SHIPPED
    assert model_path("edgemeter-notes_q4_0.gguf") == LANGUAGE_FOLDER / "edgemeter-notes_q4_0.gguf"
    Path(SHIPPED).touch()
    assert model_path(SHIPPED) == Path(SHIPPED)


def test_a_name_without_a_file_names_the_remedy(home):
    """A name without a file gives one line: fetch it, make it, spell it or look it up."""
    exported = make_entry("made", None, how="yolo export")
    write_catalogue(
        home / "catalogue.toml",
        make_entry("mine", "http://h/m", b"m"),
        make_entry("unsure", "http://h/u"),
        exported,
    )
    for name, says in (
        ("mine", "edgemeter models fetch mine"),
        ("unsure", "edgemeter models fetch --accept-unverified unsure"),
        ("made", "yolo export"),
        ("mien", "did you mean mine?"),
        ("zzzzzz", "edgemeter models list"),
    ):
        with table_row(name), pytest.raises(ConfigError, match=re.escape(says)):
            model_path(name)
