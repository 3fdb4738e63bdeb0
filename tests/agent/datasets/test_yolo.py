"""YOLO labels and class names."""

import shutil

import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import yolo
from edgemeter.agent.datasets.dataset import open_folder
from tests.fixtures.rows import table_row


def read(folder, text, name="data.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return yolo.read_class_names(path)


def test_the_usual_forms_are_read(tmp_path):
    """The names are lists or mappings, on one line or several, with quotes and comments."""
    for text in [
        "names: [cat, hot dog, 'baker''s']",
        'names: ["cat", hot dog, "baker\'s"]  # three',
        "names:\n  - cat\n  - hot dog\n  - baker's\nval: x",
        "names:\n- cat\n- 'hot dog' # two\n- baker's\n",
        (
            "train: a\nnc: 3\n\nnames:\n  0: cat\n  1: hot dog\n  # a comment\n  "
            '2: "baker\'s"\n\ntest:\n'
        ),
        "names: {0: cat, 1: 'hot dog', 2: baker's}",
        "names: [cat,\n  hot dog,\n  baker's,\n]\n",
        "names:\n  1: hot dog\n  2: baker's\n  0: cat\n",
    ]:
        assert read(tmp_path, text) == ("cat", "hot dog", "baker's"), f"{text!r}"


def test_other_forms_are_refused(tmp_path):
    """The refusal is one line that says what to write."""
    for text in [
        "", "train: a\n", "names:\n", "names: []", "names: &a [b]", "names: cat",
        "names: [cat,\n dog\n",
        "names:\n  0: cat\n  2: dog\n", "names:\n  - cat\n  1: dog\n", "names:\n  cat: 0\n",
        "nc: 3\nnames: [cat, dog]",
    ]:  # fmt: skip
        with table_row(text), pytest.raises(ConfigError, match=r"data\.yaml"):
            read(tmp_path, text)


@pytest.fixture
def folder(tmp_path):
    """Return images/val with two photographs, and empty labels beside it.

    One has 64 x 32 pixels, and the other is turned upright by EXIF.
    """
    (tmp_path / "images" / "val").mkdir(parents=True)
    (tmp_path / "labels" / "val").mkdir(parents=True)
    Image.new("RGB", (64, 32)).save(tmp_path / "images" / "val" / "a.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (64, 32)).save(tmp_path / "images" / "val" / "b.jpg", exif=exif)
    (tmp_path / "data.yaml").write_text("path: .\nnames: [cat, dog]\n")
    return tmp_path


def label(folder, name, text):
    (folder / "labels" / "val" / f"{name}.txt").write_text(text)


def opened(folder, annotations="data.yaml"):
    return open_folder(folder / "images" / "val", folder / annotations)


def test_shares_become_pixels(folder):
    """Centre and size become x, y, width and height in pixels of the upright photograph.

    The categories are the class numbers.
    """
    label(folder, "a", "1 0.5 0.5 0.25 0.5\n0 0.125 0.25 0.25 0.5\n")
    label(folder, "b", "0 0.5 0.5 1 1\n")
    data = opened(folder)
    assert [
        (image["file_name"], image["width"], image["height"]) for image in data.truth["images"]
    ] == [
        ("a.png", 64, 32),
        ("b.jpg", 32, 64),
    ]
    boxes = [
        (annotation["image_id"], annotation["category_id"], annotation["bbox"], annotation["area"])
        for annotation in data.truth["annotations"]
    ]
    assert boxes == [
        (1, 1, [24, 8, 16, 16], 256),
        (1, 0, [0, 0, 16, 16], 256),
        (2, 0, [0, 0, 32, 64], 2048),
    ]
    assert data.truth["categories"] == [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]
    assert data.warnings == ()


def test_a_photograph_without_labels_counts_and_is_reported(folder):
    """A photograph without a file of labels is reported, and so is a repeated line."""
    label(folder, "a", "0 0.5 0.5 0.5 0.5\n0 0.5 0.5 0.5 0.5\n\n")
    data = opened(folder)
    assert len(data.items) == 2
    assert len(data.truth["annotations"]) == 1
    assert data.warnings == (
        "1 of 2 photographs have no label file: they count as showing no objects",
        "1 label lines are repeated: each object counts once",
    )


def test_the_folder_of_labels_may_be_named(folder):
    """The names of its classes are looked for in it and above it."""
    label(folder, "a", "0 0.5 0.5 0.5 0.5\n")
    assert opened(folder, "labels/val").truth["categories"][1]["name"] == "dog"
    (folder / "labels" / "val" / "classes.txt").write_text("emu\nfox\n")
    assert opened(folder, "labels/val").truth["categories"][1]["name"] == "fox"
    assert opened(folder, "labels/val/classes.txt").truth["categories"][0]["name"] == "emu"


def test_labels_are_part_of_the_identity(folder):
    """A box that was moved makes other data."""
    label(folder, "a", "0 0.5 0.5 0.5 0.5\n")
    first = opened(folder).sha256
    label(folder, "a", "0 0.5 0.5 0.5 0.25\n")
    assert opened(folder).sha256 != first


def test_a_wrong_line_is_named(folder):
    """The error names the file of labels, the number of the line and what is wrong with it."""
    for line, words in [
        ("0 0.5 0.5 0.5", "each line is `class cx cy width height`"),
        ("0 0.5 0.5 -0.5 0.5", "each line is"),
        ("0 32 16 20 20", "ratios between 0 and 1"),
        ("0 nan 0.5 0.5 0.5", "each line is"),
        ("0.5 0.5 0.5 0.5 0.5", "each line is"),
        ("2 0.5 0.5 0.5 0.5", "is of class 2, there are 2 names"),
    ]:
        label(folder, "a", f"0 0.5 0.5 0.5 0.5\n{line}\n")
        with table_row(line), pytest.raises(ConfigError, match=rf"a\.txt.*line 2.*{words}"):
            opened(folder)


def test_labels_that_are_not_there_are_refused(folder):
    """Labels must exist for a photograph, in one of two places, and with names of classes."""
    with pytest.raises(ConfigError, match="none of the 2 photographs"):
        opened(folder)
    label(folder, "a", "0 0.5 0.5 0.5 0.5\n")
    (folder / "data.yaml").rename(folder / "elsewhere.yaml")
    with pytest.raises(ConfigError, match=r"have no names: put classes\.txt"):
        opened(folder, "labels/val")
    (folder / "other").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "other" / "a.png")
    shutil.rmtree(folder / "labels")
    with pytest.raises(ConfigError, match=r"no labels for .*neither .*labels"):
        open_folder(folder / "other", folder / "elsewhere.yaml")
