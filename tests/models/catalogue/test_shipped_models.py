"""The models that ship, and the folder of them that the pages of the documentation use."""

import errno
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import read_card
from edgemeter.models.catalogue.shipped_models import LANGUAGE_FOLDER, SHIPPED_BY_NAME, write_sample


def test_a_sample_has_what_the_pages_name(tmp_path):
    """A sample has models with their cards, photographs, and annotations of these."""
    folder = tmp_path / "new" / "trial"
    assert write_sample(folder) == sorted(
        [
            "instances.json",
            "photos/",
            *SHIPPED_BY_NAME,
            *(f"{name}.toml" for name in SHIPPED_BY_NAME),
        ]
    )
    assert all(
        read_card(folder / f"{name}.toml").name == "edgemeter-shapes" for name in SHIPPED_BY_NAME
    )
    images = {
        image["file_name"]
        for image in json.loads((folder / "instances.json").read_text())["images"]
    }
    assert images == {path.name for path in (folder / "photos").iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["trial"]


def test_a_sample_overwrites_nothing(tmp_path):
    """A folder with any file in it is left as it is; an empty one is filled."""
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="name a new folder"):
        write_sample(folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    with pytest.raises(ConfigError, match="/proc/self/sample"):
        write_sample(Path("/proc/self/sample"))
    (tmp_path / "empty").mkdir()
    assert "photos/" in write_sample(tmp_path / "empty")


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    """A full disk gives one line, and leaves neither the folder nor a draft of it."""

    def full(*_paths):
        raise OSError(errno.ENOSPC, "No space left on device", "b.jpg")

    monkeypatch.setattr(shutil, "copy", full)
    with pytest.raises(ConfigError, match=r"No space left on device.*free some space"):
        write_sample(tmp_path / "new" / "trial")
    assert not list((tmp_path / "new").iterdir())


def test_the_shipped_language_files_are_those_of_the_index_and_small():
    """The files have their hashes and less than 2 MB together, as they are part of the wheel."""
    index = msgspec.toml.decode((LANGUAGE_FOLDER / "language.toml").read_bytes())
    hashes = {entry["file"]: entry["sha256"] for entry in index["files"]}
    assert hashes == {path.name: model_file.sha256(path) for path in LANGUAGE_FOLDER.glob("*.gguf")}
    assert (
        sum(path.stat().st_size for path in LANGUAGE_FOLDER.rglob("*") if path.is_file())
        < 2_000_000
    )
