"""ImageNet-style class folders: which class a folder is, and when nobody knows."""

import pytest
from PIL import Image

from edgemeter.agent import task
from edgemeter.agent.dataset import open_folder
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.vision_factory import make_card, make_loaded


def made(folder, *names):
    """Return a folder of class folders, two photographs in each."""
    for name in names:
        (folder / "images" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (8, 8)).save(folder / "images" / name / f"{number}.png")
    return folder / "images"


def make_task(data, **output):
    """Return the task of a classifier of three classes."""
    info = TensorInfo("image", (1, 64, 64, 3), "uint8", 1 / 128, 128)
    card = make_card("classifier", "classification", **{"classes": 3, **output})
    return task.create(card, make_loaded([TensorInfo("scores", (1, 3), "uint8", 1 / 256, 0)], [info]), data)


def test_numbers_are_the_classes(tmp_path):
    """`2` is class 2, though it is the second folder."""
    data = open_folder(made(tmp_path, "2", "0"))
    assert data.classes == {"0/0.png": 0, "0/1.png": 0, "2/0.png": 2, "2/1.png": 2}
    assert data.class_names is None
    assert [path.name for path in data.files] == ["0.png", "1.png"] * 2


def test_a_list_says_the_class_of_a_folder(tmp_path):
    """The line's first word, as in synset_words.txt; the place of the line is the class."""
    (tmp_path / "words.txt").write_text("n01 tench, Tinca tinca\nn02 goldfish\nn03 shark\n")
    data = open_folder(made(tmp_path, "n03", "n01"), tmp_path / "words.txt")
    assert set(data.classes.items()) == {("n01/0.png", 0), ("n01/1.png", 0), ("n03/0.png", 2), ("n03/1.png", 2)}


def test_a_list_without_a_folder_is_refused(tmp_path):
    """It belongs to other data."""
    (tmp_path / "words.txt").write_text("n01 tench\n")
    with pytest.raises(ConfigError, match="does not name 1 of the 2 class folders, first 'n03'"):
        open_folder(made(tmp_path, "n03", "n01"), tmp_path / "words.txt")


def test_an_index_may_name_files_in_folders(tmp_path):
    """The first line ends in a number and begins with a photograph: it is no list of classes."""
    (tmp_path / "val.txt").write_text("n03/0.png 2\nn01/1.png 0\n")
    assert open_folder(made(tmp_path, "n03", "n01"), tmp_path / "val.txt").classes == {"n01/1.png": 0, "n03/0.png": 2}


def test_some_of_the_classes_are_not_the_first_ones(tmp_path):
    """Two synset folders for a model of three classes: which two, nobody knows."""
    with pytest.raises(ConfigError, match=r"2 class folders, model 'tested' has 3 classes.*give a list of all its classes"):
        make_task(open_folder(made(tmp_path, "n03", "n01")))


def test_the_models_labels_name_the_folders(tmp_path):
    """By name, whatever the order of the folders."""
    made_task = make_task(open_folder(made(tmp_path, "cat", "zebra")), labels=("Zebra", "emu", "cat"))
    assert made_task._truth == (2, 2, 0, 0)


def test_as_many_folders_as_classes_are_in_their_order(tmp_path):
    """As ImageNet's thousand synsets, sorted."""
    assert make_task(open_folder(made(tmp_path, "n01", "n02", "n03")))._truth == (0, 0, 1, 1, 2, 2)


def test_the_folders_are_part_of_the_identity(tmp_path):
    """The same photographs in other classes are other data."""
    first = open_folder(made(tmp_path / "a", "0", "1"))
    assert first.sha256 == open_folder(made(tmp_path / "b", "0", "1")).sha256
    assert first.sha256 != open_folder(made(tmp_path / "c", "0", "2")).sha256
