"""Ground truth of a classifier: lists and folders."""

import pytest
from PIL import Image

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import class_lists
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_loaded


def read(folder, name, text):
    """Return the index in a file of this name and content."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return class_lists.read_class_list(path)


def test_a_text_has_file_and_class_on_a_line_and_a_table_may_have_a_heading_and_more(tmp_path):
    """The text has the form of ImageNet's val.txt.

    Blank lines are passed over, and file names may hold folders and spaces.
    """
    index = read(tmp_path, "val.txt", "a.JPEG 65\n\nn01/b c.jpg\t0\n")
    assert (index.classes, index.names) == ({"a.JPEG": 65, "n01/b c.jpg": 0}, None)
    index = read(tmp_path, "val.csv", '\ufefffile,class,taken\n"a, b.jpg",3,night\nc.jpg,4,\n')
    assert index.classes == {"a, b.jpg": 3, "c.jpg": 4}
    assert read(tmp_path, "val.tsv", "a.jpg\t3\n").classes == {"a.jpg": 3}


def test_a_wrong_line_is_named(tmp_path):
    """The error states the line's number, its text and what it should be."""
    for name, text, words in [
        ("i.txt", "a.jpg 1\nb.jpg cat\n", r"line 2 is 'b\.jpg cat': each line is"),
        ("i.txt", "a.jpg -1\n", "line 1"),
        ("i.csv", "file,class\na.jpg,1,x,y\n", "line 2"),
        ("i.txt", "a.jpg 1\na.jpg 2\n", r"line 2 names 'a\.jpg' a second time"),
        ("i.csv", f"{'a' * 200_000},1\n", r"is no table \(field larger than field limit"),
        ("i.txt", "../a.jpg 1\n", "leads out of the image folder"),
    ]:
        with table_row(name, text), pytest.raises(ConfigError, match=words):
            read(tmp_path, name, text)


def make_folders(folder, *names):
    for name in names:
        (folder / "images" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (8, 8)).save(folder / "images" / name / f"{number}.png")
    return folder / "images"


def make_task(data, **output):
    info = TensorInfo("image", (1, 64, 64, 3), "uint8", 1 / 128, 128)
    card = make_card("classifier", "classification", **{"classes": 3, **output})
    return tasks.create(
        card, make_loaded([TensorInfo("scores", (1, 3), "uint8", 1 / 256, 0)], [info]), data
    )


def test_numbers_are_the_classes(tmp_path):
    """Folder `2` is class 2 although it is the second folder."""
    data = open_folder(make_folders(tmp_path, "2", "0"))
    assert data.classes == {"0/0.png": 0, "0/1.png": 0, "2/0.png": 2, "2/1.png": 2}
    assert data.class_names is None
    assert [item.path.name for item in data.items] == ["0.png", "1.png"] * 2


def test_a_list_gives_the_class_of_a_folder(tmp_path):
    """A line's first word names the folder, as in synset_words.txt, and its place the class."""
    (tmp_path / "words.txt").write_text("n01 tench, Tinca tinca\nn02 goldfish\nn03 shark\n")
    data = open_folder(make_folders(tmp_path, "n03", "n01"), tmp_path / "words.txt")
    assert set(data.classes.items()) == {
        ("n01/0.png", 0),
        ("n01/1.png", 0),
        ("n03/0.png", 2),
        ("n03/1.png", 2),
    }
    (tmp_path / "words.txt").write_text("n01 tench\n")
    with pytest.raises(ConfigError, match="does not name 1 of the 2 class folders, first 'n03'"):
        open_folder(tmp_path / "images", tmp_path / "words.txt")
    # The first line ends in a number and begins with a photograph: it is no list of classes.
    (tmp_path / "val.txt").write_text("n03/0.png 2\nn01/1.png 0\n")
    assert open_folder(tmp_path / "images", tmp_path / "val.txt").classes == {
        "n01/1.png": 0,
        "n03/0.png": 2,
    }


def test_the_models_labels_name_the_folders(tmp_path):
    """Folders are matched with the labels by name, whatever their order.

    As many folders as classes are taken in their order; with fewer, nobody knows which they are.
    """
    with pytest.raises(
        ConfigError,
        match=r"2 class folders, model 'tested' has 3 classes.*give a list of all.*classes = 3, "
        r"label_offset = 0",
    ):
        make_task(open_folder(make_folders(tmp_path / "fewer", "n03", "n01")))
    assert make_task(open_folder(make_folders(tmp_path / "other", "n01", "n02", "n03")))._truth == (
        0,
        0,
        1,
        1,
        2,
        2,
    )
    made_task = make_task(
        open_folder(make_folders(tmp_path, "cat", "zebra")), labels=("Zebra", "emu", "cat")
    )
    assert made_task._truth == (2, 2, 0, 0)


def test_the_folders_are_part_of_the_identity(tmp_path):
    """The same photographs in other classes are other data."""
    first = open_folder(make_folders(tmp_path / "a", "0", "1"))
    assert first.sha256 == open_folder(make_folders(tmp_path / "b", "0", "1")).sha256
    assert first.sha256 != open_folder(make_folders(tmp_path / "c", "0", "2")).sha256
