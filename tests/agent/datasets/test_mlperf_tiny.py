"""Facts about MLPerf Tiny's ground truth, and about folders of arrays.

They concern names, classes, and garbled lists, which end in one line.
"""

import json

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth


def labelled(folder, *rows):
    (folder / "y_labels.csv").write_text("\n".join(rows) + "\n")
    return open_folder(folder, folder / "y_labels.csv")


def test_mlperf_tinys_list_names_classes(tmp_path):
    """The window and stride of a recording may follow the class."""
    for name in ("normal_id_01_00000003_hist.bin", "tst_000000_Stop_7.bin"):
        (tmp_path / name).write_bytes(name.encode())
    data = labelled(
        tmp_path, "normal_id_01_00000003_hist.bin,2,0,2560,512", "tst_000000_Stop_7.bin,12,7"
    )
    assert data.classes == {"normal_id_01_00000003_hist.bin": 0, "tst_000000_Stop_7.bin": 7}


def test_a_garbled_list_names_the_line(tmp_path):
    """A class beyond the classes, a file outside and a file listed twice are refused."""
    for line, words in [
        ("a.bin,12", "line 1 is 'a.bin,12'"),
        ("a.bin,12,12", "line 1 is 'a.bin,12,12'"),
        ("../a.bin,12,1", "leads out of the folder"),
        ("a.bin,12,1\na.bin,12,2", "line 2 names 'a.bin' a second time"),
        ("", "names no files"),
    ]:
        with table_row(line), pytest.raises(ConfigError, match=words):
            labelled(tmp_path, line)


def test_class_folders_hold_arrays_too(tmp_path):
    """Each folder is a class, as with photographs."""
    for name in ("down/a.npy", "up/b.npy"):
        (tmp_path / name).parent.mkdir()
        np.save(tmp_path / name, np.zeros(4))
    data = open_folder(tmp_path)
    assert (data.classes, data.class_names, {item.kind for item in data.items}) == (
        {"down/a.npy": 0, "up/b.npy": 1},
        ("down", "up"),
        {"tensor"},
    )


def test_a_folder_of_arrays_needs_no_ground_truth(tmp_path):
    """Without ground truth the data can be timed and not scored.

    Among photographs arrays do not count.
    """
    for name in ("b.npy", "a.npy"):
        np.save(tmp_path / name, np.zeros(4))
    data = open_folder(tmp_path)
    assert ([item.name for item in data.items], {item.kind for item in data.items}) == (
        ["a.npy", "b.npy"],
        {"tensor"},
    )
    assert (data.has_truth, len(open_folder(tmp_path, subset=1).items)) == (False, 1)
    (tmp_path / "photo.png").write_bytes(b"x")
    assert [item.name for item in open_folder(tmp_path).items] == ["photo.png"]


def test_a_person_counts_from_a_fortieth_of_the_photograph(tmp_path):
    """A person on more than 2.5% of the photograph makes class 1, a crowd or nobody class 0.

    A photograph that shows only a smaller person is left out.
    """
    truth = make_truth(4, ("person",), size_px=100)
    sizes = [(10, 25.1), (10, 25.0), (90, 90), (90, 90)]
    for number, (annotation, size) in enumerate(zip(truth["annotations"], sizes, strict=True)):
        annotation["bbox"], annotation["iscrowd"] = [0, 0, *size], int(number == 2)
    truth["annotations"] = truth["annotations"][:3]
    path = tmp_path / "vww.json"
    path.write_text(json.dumps(truth))
    for number in range(4):
        (tmp_path / f"photo_{number}.png").write_bytes(b"%d" % number)
    data = open_folder(tmp_path, path)
    assert data.classes == {"photo_0.png": 1, "photo_2.png": 0, "photo_3.png": 0}
    assert data.warnings == (
        "1 photographs show only persons of at most 2.5% of the photograph: left out",
    )
