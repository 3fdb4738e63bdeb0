"""Tests of how photographs are divided between calibration and comparison, and of the parts' sizes.

Ranges are not measured on the photographs that judge the file.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
from PIL import Image

from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.convert.photo_split import split


def photographs(folder, count, seed=0):
    draw = np.random.default_rng(seed)
    folder.mkdir()
    for number in range(count):
        Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(
            folder / f"{number:03}.png"
        )
    return open_folder(folder)


def parts_of(measured, pictures):
    photos = split(measured, pictures)
    return [{item.name for item in part.items} for part in (photos.ranges, photos.compared)]


def test_of_what_both_hold_each_gets_a_half_unless_that_leaves_too_few(tmp_path):
    """Photographs that both sets hold are halved between them unless that leaves too few.

    One folder of 14 serves whole for both, which gives no judgement; two folders without a
    photograph in common serve whole.
    """
    sizes = {}
    for count in (1, 14, 15, 32):
        data = photographs(tmp_path / str(count), count)
        sizes[count] = [*map(len, parts_of(data, None)), split(data, None).is_apart]
    assert sizes == {1: [1, 1, False], 14: [14, 14, False], 15: [7, 8, True], 32: [16, 16, True]}
    few, many = photographs(tmp_path / "few", 5), photographs(tmp_path / "many", 40, 3)
    for measured, pictures in ((many, few), (few, many)):
        photos = split(measured, pictures)
        assert (photos.ranges, photos.compared, photos.is_apart) == (measured, pictures, True)
    assert split(None, few).compared is few


def test_the_parts_are_the_same_whatever_the_photographs_are_called(tmp_path):
    """The parts follow from the contents, so that names and order of photographs do not count."""
    data = photographs(tmp_path / "d", 40)
    first = parts_of(data, None)
    assert len(set.union(*first)) == sum(len(part) for part in first) == 40
    renamed = {item.name: f"{39 - number}-{item.name}" for number, item in enumerate(data.items)}
    for item in data.items:
        item.path.rename(item.path.with_name(renamed[item.name]))
    assert parts_of(open_folder(tmp_path / "d"), None) == [
        {renamed[name] for name in part} for part in first
    ]
    # A copy under another name goes where the photograph is.
    copied = renamed[data.items[0].name]
    shutil.copyfile(tmp_path / "d" / copied, tmp_path / "d" / "copy.png")
    assert [
        {copied, "copy.png"} & part for part in parts_of(open_folder(tmp_path / "d"), None)
    ].count({copied, "copy.png"}) == 1


def test_ground_truth_goes_with_its_photographs(tmp_path):
    """Each part has the classes of its photographs, and a hash of its own."""
    data = photographs(tmp_path / "d", 60)
    truth = {item.name: number for number, item in enumerate(data.items)}
    data = replace(data, classes=truth)
    photos = split(data, data)
    parts = [photos.ranges, photos.compared]
    for part in parts:
        assert list(part.classes.items()) == [(item.name, truth[item.name]) for item in part.items]
    assert len({part.sha256 for part in (*parts, data)}) == 3


def test_a_photograph_that_is_there_twice_stays_a_copy_of_itself(tmp_path):
    """Copies of a photograph are marked by their places in the part, not in the whole.

    A score that looks a copy up finds the same photograph.
    """
    data = photographs(tmp_path / "d", 20)
    for number in (2, 5, 11, 17):
        shutil.copyfile(data.items[number].path, tmp_path / "d" / f"z{number}.png")
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({path.name: 0 for path in sorted((tmp_path / "d").iterdir())}))
    data = open_folder(tmp_path / "d", truth)
    assert len(data.copies) == 4
    photos = split(data, data)
    copies = [
        (part.items[index], part.items[first])
        for part in (photos.ranges, photos.compared)
        for index, first in part.copies.items()
    ]
    assert len(copies) == 4
    assert all(
        copy.name != first.name and copy.sha256() == first.sha256() for copy, first in copies
    )
