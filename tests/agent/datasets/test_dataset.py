"""Folders of photographs with and without ground truth."""

import hashlib
import json
import logging

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth


@pytest.fixture
def folder(tmp_path):
    """Return a folder with three files that are called photographs, and one text.

    A folder below it holds one more photograph.
    """
    images = tmp_path / "images"
    (images / "below").mkdir(parents=True)
    for name in ("photo_2.PNG", "photo_0.png", "photo_1.png", "notes.txt", "below/deep.png"):
        (images / name).write_bytes(name.encode())
    return images


def annotated(folder, truth):
    path = folder.parent / "truth.json"
    path.write_text(json.dumps(truth), encoding="utf-8")
    return path


def test_photographs_come_sorted_by_name(folder):
    """Only images directly in the folder count, those with upper-case endings too."""
    data = open_folder(folder)
    assert [item.path.name for item in data.items] == ["photo_0.png", "photo_1.png", "photo_2.PNG"]
    assert (data.name, data.truth, data.classes, data.image_ids) == ("images", None, None, None)


def test_ids_and_classes_stand_in_the_order_of_the_files(folder, caplog):
    """The order in the document or index does not matter.

    Photographs without ground truth are left out with a warning.
    """
    truth = make_truth(2)
    truth["images"].reverse()
    with caplog.at_level(logging.WARNING):
        data = open_folder(folder, annotated(folder, truth))
    assert [item.path.name for item in data.items] == ["photo_0.png", "photo_1.png"]
    assert data.image_ids == (100, 101)
    assert "1 photographs" in caplog.text
    assert "photo_2.PNG" in caplog.text
    data = open_folder(folder, annotated(folder, {"photo_1.png": 5, "photo_0.png": 9}))
    assert (
        [item.path.name for item in data.items]
        == list(data.classes)
        == ["photo_0.png", "photo_1.png"]
    )
    assert list(data.classes.values()) == [9, 5]


def test_copies_of_a_photograph_are_found_by_their_content(folder):
    """Each copy is assigned to the first with its content, and one note names them.

    Without ground truth nothing is said.
    """
    for name in ("photo_1.png", "photo_2.PNG"):
        (folder / name).write_bytes((folder / "photo_0.png").read_bytes())
    data = open_folder(
        folder, annotated(folder, {"photo_0.png": 1, "photo_1.png": 1, "photo_2.PNG": 1})
    )
    assert data.copies == {1: 0, 2: 0}
    (note,) = data.warnings
    assert note.startswith(
        "2 of 3 items are copies of others (first 'photo_1.png' of 'photo_0.png')"
    )
    assert open_folder(folder).warnings == ()


def test_annotations_that_name_absent_images_are_refused(folder):
    """The error says how many of the files are absent, and which is the first."""
    with pytest.raises(ConfigError, match=r"2 of the 4 files .* first 'photo_2\.png'"):
        open_folder(folder, annotated(folder, make_truth(4)))


def test_a_box_without_area_gets_its_own(folder):
    """COCO sorts objects into small and large by area, which many tools leave out."""
    truth = make_truth(1)
    del truth["annotations"][0]["area"]
    truth["annotations"][1]["area"] = 100.5
    areas = [
        annotation["area"]
        for annotation in open_folder(folder, annotated(folder, truth)).truth["annotations"]
    ]
    assert areas == [256, 100.5]


def test_the_hash_covers_files_and_annotations(folder):
    """One byte in either changes the hash, and reading again does not.

    Nor can a byte move from one file to the next unnoticed.
    """
    truth = annotated(folder, make_truth(2))
    first = open_folder(folder, truth).sha256
    assert open_folder(folder, truth).sha256 == first
    assert open_folder(folder).sha256 != first
    (folder / "photo_0.png").write_bytes(b"photo_0.pn")
    (folder / "photo_1.png").write_bytes(b"gphoto_1.png")
    moved = open_folder(folder, truth).sha256
    truth.write_text(truth.read_text() + " ")
    assert len({first, moved, open_folder(folder, truth).sha256}) == 3


def test_what_holds_no_photographs_is_refused(tmp_path):
    """A folder without any, one that is absent, and a single photograph end in one line."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.jpg").touch()
    for name, words in [
        ("empty", r"no photographs \(\.jpg.*no arrays \(\.npy"),
        ("absent", "cannot read"),
        ("file.jpg", "cannot read"),
    ]:
        with table_row(name), pytest.raises(ConfigError, match=words):
            open_folder(tmp_path / name)
    (tmp_path / "instances.json").write_text("{}")
    with pytest.raises(
        ConfigError, match=r"exchanged: write --data .*empty --annotations .*instances.json"
    ):
        open_folder(tmp_path / "instances.json", tmp_path / "empty")


def test_annotations_that_name_nothing_are_refused(folder):
    """An empty document is a mistake and not a data set of no photographs.

    An image without a file name is refused too.
    """
    nameless = make_truth(2)
    del nameless["images"][1]["file_name"]
    for truth, words in [
        ({}, "name no files"),
        ({"images": [], "annotations": [], "categories": []}, "name no files"),
        (nameless, "missing required field `file_name`"),
    ]:
        with pytest.raises(ConfigError, match=words):
            open_folder(folder, annotated(folder, truth))


def test_a_subset_is_the_same_on_every_machine(folder):
    """It is chosen by a hash of each name; the order of files and the path play no part.

    The expected choice is the one of sha256sum.
    """
    data = open_folder(folder, subset=2, seed=0)
    hashed = {
        name: hashlib.sha256(f"0:{name}".encode()).hexdigest()
        for name in ("photo_0.png", "photo_1.png", "photo_2.PNG")
    }
    assert [item.path.name for item in data.items] == sorted(sorted(hashed, key=hashed.get)[:2])
    assert data.drawn_from == 3
    assert {open_folder(folder, subset=1, seed=seed).items for seed in range(20)} == {
        (item,) for item in open_folder(folder).items
    }
    assert open_folder(folder).drawn_from is None
    # All are needed for the same subset where no annotations list them.
    assert len(open_folder(folder, subset=1).needed) == 3
    with pytest.raises(ConfigError, match="the subset has 1000 items, but the data set has 3"):
        open_folder(folder, subset=1000)


def test_of_photographs_that_annotations_name_only_the_subset_need_be_there(folder):
    """A device is sent only the subset, with its own ground truth and hash.

    A photograph of it that is missing is named.
    """
    truth = annotated(folder, make_truth(2))
    data = open_folder(folder, truth, subset=1)
    assert data.sha256 != open_folder(folder, truth).sha256
    (number,), (path,) = data.image_ids, data.needed
    assert (
        {a["image_id"] for a in data.truth["annotations"]}
        == {image["id"] for image in data.truth["images"]}
        == {number}
    )
    assert data.items[0].path == path
    gone = next(
        folder / f"photo_{number}.png" for number in range(2) if f"photo_{number}.png" != path.name
    )
    gone.unlink()
    assert open_folder(folder, truth, subset=1) == data
    path.unlink()
    with pytest.raises(ConfigError, match=f"1 of the 1 files .* first '{path.name}'"):
        open_folder(folder, truth, subset=1)


def test_values_of_12_bits_in_files_of_16_are_noted(tmp_path):
    """Files of 16 bits whose values need fewer are named, with their number and the factor.

    They may be grey or in colour. Nothing is noted of values of 16 bits or of files of 8 bits.
    """
    draw = np.random.default_rng(0)
    for highest, bits in [(4095, 12), (1023, 10), (65535, None)]:
        folder = tmp_path / str(highest)
        folder.mkdir()
        for name in ("a.png", "b.png"):
            values = draw.integers(0, highest + 1, (30, 40)).astype(np.uint16)
            values[0, 0] = highest
            Image.fromarray(values).save(folder / name)
        Image.new("RGB", (4, 4)).save(folder / "c.png")
        warnings = open_folder(folder).warnings
        assert len(warnings) == (bits is not None)
        start = (
            f"2 of the 3 photographs checked have 16 bits a channel and no value above {bits} "
            "bits (first 'a.png')"
        )
        assert all(warning.startswith(start) for warning in warnings)
