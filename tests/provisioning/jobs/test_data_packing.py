"""Tests of data sets that are packed for devices.

Unpacked there, they are equal to the originals, whatever form their ground truth has.
"""

import dataclasses
import json
import os
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import data_archive
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.datasets import dataset
from edgemeter.agent.jobs import measure_order
from edgemeter.provisioning.jobs import packing
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.serve.content_store import ContentStore
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth

MODEL = "edgemeter-shapes_int8.tflite"
PI = Device("a", "lab", "a", "pi5", (), "accepted", 1)


def photographs(folder, *names):
    for index, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8 + index, 6), (index, 0, 0)).save(folder / name)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def coco(folder):
    """Write COCO's document beside the folder, and return both paths.

    It names a photograph below the folder, and leaves one photograph out.
    """
    photographs(folder / "val 2017", "a.png", "b c.png", "deep/d.png", "unnamed.png")
    truth = make_truth(3)
    for image, name in zip(truth["images"], ("deep/d.png", "./b c.png", "a.png"), strict=True):
        image["file_name"] = name
    write(folder / "annotations" / "instances.json", json.dumps(truth))
    return "val 2017", "annotations/instances.json"


def table(folder):
    photographs(folder / "p", "a.png", "b.png", "c.png")
    write(folder / "t.csv", "file,class,group\nb.png,1,night\na.png,2,day\n")
    return "p", "t.csv"


def class_list(folder):
    photographs(folder / "val", "n01/a.png", "n02/b.png")
    write(folder / "synsets.txt", "n00 fish\nn02 dog\nn01 cat\n")
    return "val", "synsets.txt"


def yolo_yaml(folder):
    """Write data.yaml, and labels in the place of images."""
    photographs(folder / "images" / "val", "a.png", "b.png")
    write(folder / "labels" / "val" / "a.txt", "1 0.5 0.5 0.25 0.5\n")
    write(folder / "labels" / "classes.txt", "not\nthese\n")
    write(folder / "data.yaml", "names: [cat, dog]\n")
    return "images/val", "data.yaml"


def yolo_classes(folder):
    """Write classes.txt, and labels beside the photographs' folder."""
    photographs(folder / "set" / "photos", "a.png")
    write(folder / "set" / "labels" / "a.txt", "0 0.5 0.5 1 1\n")
    write(folder / "classes.txt", "cat\n")
    return "set/photos", "classes.txt"


def maps(folder):
    """A map of every photograph in a folder of its own."""
    photographs(folder / "set", "a.png", "b.png")
    photographs(folder / "truth", "a.png", "b.png")
    return "set", "truth"


FORMS = (maps, coco, table, class_list, yolo_yaml, yolo_classes)


def packed(store, folder, images, annotations, **settings):
    return packing.pack_data(
        store, [Settings(data=images, annotations=annotations, **settings)], folder
    )[images, annotations]


def identity(data, images):
    fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
    targets = {
        name: target.name if isinstance(target, Path) else target
        for name, target in (data.targets or {}).items()
    }
    return fields | {
        "targets": targets,
        "items": [(item.name, item.kind, item.path.relative_to(images)) for item in data.items],
        "needed": [path.relative_to(images) for path in data.needed],
    }


def test_a_device_opens_the_same_data_set(store, tmp_path):
    """The unpacked data set has the same name, hash, items, annotations, warnings and subset.

    Items are photographs; annotations are boxes, classes and groups.
    """
    for form in FORMS:
        folder = tmp_path / form.__name__
        images, annotations = form(folder / "here")
        source = folder / "here" / images
        for subset in (None, 1):
            with table_row(form.__name__, subset):
                expected = dataset.open_folder(
                    source, folder / "here" / annotations if annotations else None, subset, 7
                )
                content = packed(store, folder / "here", images, annotations, subset=subset, seed=7)
                path = folder / f"device-{subset}" / content.sha256
                path.parent.mkdir()
                path.write_bytes(store.path(content.sha256).read_bytes())
                received = measure_order.open_data(path)
                opened = dataset.open_folder(received.images, received.annotations, subset, 7)
                assert identity(opened, received.images) == identity(expected, source)


def test_of_a_subset_only_its_photographs_travel(store, tmp_path):
    """Only the photographs of a subset travel.

    Those of each case that wants another part of the same data set travel once; the other
    photographs need not exist here.
    """
    names = [f"{number}.png" for number in range(20)]
    photographs(tmp_path / "p", *names)
    write(tmp_path / "t.json", json.dumps(dict.fromkeys(names, 1)))
    subsets = [(5, 0), (3, 0), (2, 9), (5, None)]
    cases = [
        Settings(data="p", annotations="t.json", subset=subset, seed=seed)
        for subset, seed in subsets
    ]
    (content,) = packing.pack_data(store, cases, tmp_path).values()
    opened = [
        dataset.open_folder(tmp_path / "p", tmp_path / "t.json", subset, seed or 0)
        for subset, seed in subsets
    ]
    expected = {f"images/p/{path.name}" for part in opened for path in part.needed}
    with zipfile.ZipFile(store.path(content.sha256)) as archive:
        assert {*archive.namelist()} == {*expected, "annotations/t.json"}
    assert 5 <= len(expected) <= 7
    for name in names:
        if f"images/p/{name}" not in expected:
            (tmp_path / "p" / name).unlink()
    assert packing.pack_data(store, cases, tmp_path)["p", "t.json"] == content


def test_the_same_photographs_are_the_same_content(store, tmp_path):
    """The same photographs are one file in the store, however they were touched or copied.

    Packing again adds nothing, and a rehearsal stores nothing.
    """
    for folder in ("x", "y"):
        coco(tmp_path / folder)
    first = packed(store, tmp_path / "x", "val 2017", "annotations/instances.json")
    for path in (tmp_path / "y").rglob("*.png"):
        os.utime(path, (1, 1))
    assert packed(store, tmp_path / "y", "val 2017", "annotations/instances.json") == first
    assert (
        packed(
            ContentStore(tmp_path / "other"),
            tmp_path / "y",
            "val 2017",
            "annotations/instances.json",
        )
        == first
    )
    assert [path.name for path in (tmp_path / "content").iterdir()] == [first.sha256]
    assert first.name == f"{first.sha256[:8]}-val_2017.zip"
    photographs(tmp_path / "y" / "val 2017", "b c.png", "a.png")
    assert packed(store, tmp_path / "y", "val 2017", "annotations/instances.json") != first


def test_what_is_missing_is_named_before_anything_is_kept(store, tmp_path):
    """A missing photograph, ground truth or folder is named before anything is stored."""
    images, annotations = coco(tmp_path)
    (tmp_path / images / "deep" / "d.png").unlink()
    with pytest.raises(ConfigError, match=r"1 of the 3 files .* first 'deep/d\.png'") as error:
        packed(store, tmp_path, images, annotations)
    assert "\n" not in str(error.value)
    for gone in ((images, "gone.json"), ("gone", annotations)):
        with pytest.raises(ConfigError, match=r"no (annotations|folder of images) at .*gone"):
            packed(store, tmp_path, *gone)
    assert not (tmp_path / "content").exists()


def test_more_than_an_order_carries_is_refused(store, tmp_path, monkeypatch):
    """Too many files or bytes are refused before packing, with the remedy."""
    images, annotations = coco(tmp_path)
    for room, limit in ((packing, "LARGEST_DATA_BYTES"), (data_archive, "MOST_FILES")):
        with monkeypatch.context() as patched, table_row(limit):
            patched.setattr(room, limit, 3)
            with pytest.raises(ConfigError, match=r"has 4 files of .*subset = N"):
                packed(store, tmp_path, images, annotations)
    assert not (tmp_path / "content").exists()
