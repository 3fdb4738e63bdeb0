"""What chooses an int8 recipe is not what judges it: the parts of the photographs, and their sizes."""

import shutil
from dataclasses import replace

import numpy as np
from PIL import Image

from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.convert.photo_split import split
from edgemeter.models.convert.source import CalibrationImages


def photographs(folder, count, seed=0):
    """Return a folder of photographs that are noise."""
    draw = np.random.default_rng(seed)
    folder.mkdir()
    for number in range(count):
        Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{number:03}.png")
    return open_folder(folder)


def parts_of(measured, pictures, *, has_choice=True):
    """Return the names in each part."""
    photos = split(CalibrationImages(measured, None), pictures, has_choice=has_choice)
    return [{item.name for item in part.items} if part else None for part in (photos.ranges.data, photos.choice, photos.judgement)]


def test_too_few_to_keep_apart_are_not_judged(tmp_path):
    """One folder of 15: all are measured on; of 16 a half is judged, of 32 there is a choice, too; two folders share what both hold."""
    sizes = {}
    for count in (1, 15, 16, 32):
        data = photographs(tmp_path / str(count), count)
        sizes[count] = [part and len(part) for part in parts_of(data, None)]
    assert sizes == {1: [1, None, None], 15: [15, None, None], 16: [8, None, 8], 32: [16, 8, 8]}
    few, many = photographs(tmp_path / "few", 5), photographs(tmp_path / "many", 40, 3)
    assert [part and len(part) for part in parts_of(many, few)] == [40, None, 5]
    assert [part and len(part) for part in parts_of(many, few, has_choice=False)] == [40, None, 5]
    assert [part and len(part) for part in parts_of(few, many, has_choice=False)] == [5, None, 40]


def test_the_parts_are_the_same_whatever_the_photographs_are_called(tmp_path):
    """They follow from the contents: renamed, or in another order, none changes its part."""
    data = photographs(tmp_path / "d", 40)
    first = parts_of(data, None)
    assert len(set.union(*first)) == sum(len(part) for part in first) == 40
    renamed = {item.name: f"{39 - number}-{item.name}" for number, item in enumerate(data.items)}
    for item in data.items:
        item.path.rename(item.path.with_name(renamed[item.name]))
    assert parts_of(open_folder(tmp_path / "d"), None) == [{renamed[name] for name in part} for part in first]
    # A copy under another name goes where the photograph is.
    copied = renamed[data.items[0].name]
    shutil.copyfile(tmp_path / "d" / copied, tmp_path / "d" / "copy.png")
    assert [{copied, "copy.png"} & part for part in parts_of(open_folder(tmp_path / "d"), None)].count({copied, "copy.png"}) == 1


def test_ground_truth_goes_with_its_photographs(tmp_path):
    """Each part has the classes of its photographs, and a hash of its own."""
    data = photographs(tmp_path / "d", 60)
    truth = {item.name: number for number, item in enumerate(data.items)}
    data = replace(data, classes=truth)
    photos = split(CalibrationImages(data, None), data, has_choice=True)
    parts = [photos.ranges.data, photos.choice, photos.judgement]
    for part in parts:
        assert list(part.classes.items()) == [(item.name, truth[item.name]) for item in part.items]
    assert len({part.sha256 for part in (*parts, data)}) == 4
