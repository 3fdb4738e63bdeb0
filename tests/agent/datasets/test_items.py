"""Facts about items that lie inside one file.

They are named, hashed and drawn from, and refused where a file of its own is needed.
"""

from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent import datasets
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import GroundTruth, Targets
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.datasets.items import Item, item_of_file


class Lines:
    """A reader of `target text` lines from a file in the place of the folder."""

    def recognises(self, folder, annotations):
        return annotations is None and folder.suffix == ".lines"

    def read(self, folder, _annotations):
        lines = [line.split(" ", 1) for line in folder.read_text().splitlines()]
        items = tuple(
            Item(f"{number:03}", folder, "tensor", array=np.array(text))
            for number, (_, text) in enumerate(lines)
        )
        return GroundTruth(
            Targets({item.name: line[0] for item, line in zip(items, lines, strict=True)}),
            b"v1",
            items=items,
        )


@pytest.fixture(autouse=True)
def _lines(monkeypatch):
    monkeypatch.setattr(datasets, "READERS", {"lines": f"{__name__}:Lines", **datasets.READERS})


@pytest.fixture
def file(tmp_path):
    (tmp_path / "talk.lines").write_text("good it works\nbad it hangs\ngood it is fast\n")
    return tmp_path / "talk.lines"


def test_a_file_in_place_of_the_folder_holds_the_items(file):
    """The items come in order with their targets, and only this file is needed to open them."""
    data = open_folder(file)
    assert [(item.name, item.array) for item in data.items] == [
        ("000", "it works"),
        ("001", "it hangs"),
        ("002", "it is fast"),
    ]
    assert (data.name, data.targets, data.needed) == (
        "talk.lines",
        {"000": "good", "001": "bad", "002": "good"},
        (file,),
    )


def test_the_hash_covers_the_items_that_were_drawn_and_no_other(file):
    """Another text within the subset makes another data set, and one outside of it does not."""
    subset, data = open_folder(file, subset=1, seed=3), open_folder(file)
    (item_drawn,) = subset.items
    assert subset.targets == {item_drawn.name: data.targets[item_drawn.name]}
    other = next(item for item in data.items if item.name != item_drawn.name)
    file.write_text(file.read_text().replace(str(other.array), "something else"))
    assert (
        open_folder(file, subset=1, seed=3).sha256,
        open_folder(file).sha256 != data.sha256,
    ) == (subset.sha256, True)
    file.write_text(file.read_text().replace(str(item_drawn.array), "something else"))
    assert open_folder(file, subset=1, seed=3).sha256 != subset.sha256


def test_an_array_is_hashed_with_its_form():
    """The same bytes with another shape or type are another item."""
    arrays = [
        np.zeros((2, 3), np.float32),
        np.zeros((3, 2), np.float32),
        np.zeros((2, 3), np.int32),
        np.zeros((2, 6), np.float32)[:, ::2],
    ]
    hashes = [Item("x", Path("x.npy"), "tensor", array=array).sha256() for array in arrays]
    assert (len(set(hashes[:3])), hashes[3] == hashes[0]) == (3, True)


def test_an_item_inside_a_file_is_no_file(file):
    """A task that opens files refuses the item by name; a file's suffix tells its kind."""
    with pytest.raises(
        ConfigError, match=r"item '001' lies inside 'talk.lines', and a file of its own is needed"
    ):
        _ = open_folder(file).items[1].file
    kinds = [item_of_file(Path(), name).kind for name in ("a.JPG", "b.npy", "c.BIN", "d")]
    assert kinds == ["image", "tensor", "tensor", "image"]


def test_a_file_that_no_reader_knows_ends_in_one_line(tmp_path):
    """A user may give a model in the place of the data."""
    (tmp_path / "model.tflite").write_bytes(b"\x00")
    with pytest.raises(ConfigError, match=r"cannot read the data in .*model.tflite"):
        open_folder(tmp_path / "model.tflite")
