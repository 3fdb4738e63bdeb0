"""The contract of `edgemeter.agent.datasets.Reader`, over every name in the table."""

import json

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import datasets
from edgemeter.agent.conformance.readers import CHECKS, ReaderCase
from tests.fixtures.cifar_factory import batch
from tests.fixtures.vision_factory import make_truth

FLAT = ("photo_0.png", "photo_1.png")
# By reader: where its photographs lie, and its annotations by name (None: it needs none).
CASES = {
    "mlperf-tiny": (("a.bin", "b.wav"), "y_labels.csv", "a.bin,2,0,2560,512\nb.wav,2,1,2560,512\n"),
    "cifar-10": (("00000", "00001"), "test_batch.bin", batch(np.arange(6144, dtype=np.uint8).reshape(2, 32, 32, 3), (4, 9))),
    "visual-wake-words": (FLAT, "vww.json", json.dumps(make_truth(2, ("person",)))),
    "maps": (FLAT, "maps", ""),
    "dota": (FLAT, "corners", ""),
    "yolo": (FLAT, "labels/classes.txt", "cat\ndog\n"),
    "class-folders": (("cat/a.png", "dog/b.png"), None, ""),
    "class-list": (FLAT, "index.csv", "file,class\nphoto_0.png,0\nphoto_1.png,2\n"),
    "coco": (FLAT, "truth.json", json.dumps(make_truth(2))),
}


def test_every_reader_stands_here():
    """A new reader is held to the same."""
    assert set(CASES) == set(datasets.READERS)


def write_beside(name, images, files):
    """Write what some formats have for each item, or beside the items."""
    root = images.parent
    for file in files:
        if name == "maps":
            Image.new("L", (64, 64)).save(root / "maps" / file)
        elif name == "dota":
            (root / "corners" / file).with_suffix(".txt").write_text("gsd:0.2\n1 2 9 2 9 8 1 8 small-vehicle 1\n")
        elif name == "yolo":
            (root / "labels" / file).with_suffix(".txt").write_text("1 0.5 0.5 0.25 0.25\n")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_reader_keeps_the_contract(check, name, tmp_path):
    """The checks that ship, over every reader with two items."""
    files, where, text = CASES[name]
    if name == "cifar-10":
        (tmp_path / where).write_bytes(text if isinstance(text, bytes) else text.encode())
        (tmp_path / "empty").mkdir()
        check(ReaderCase(name, tmp_path / where, None, files), tmp_path / "empty")
        return
    images = tmp_path / "images"
    for file in files:
        (images / file).parent.mkdir(parents=True, exist_ok=True)
        if file.endswith(".png"):
            Image.new("RGB", (64, 64)).save(images / file)
        else:
            (images / file).write_bytes(file.encode())
    annotations = None if where is None else tmp_path / where
    if name in ("maps", "dota"):
        annotations.mkdir()
    elif annotations is not None:
        annotations.parent.mkdir(exist_ok=True)
        annotations.write_text(text)
    write_beside(name, images, files)
    (tmp_path / "empty").mkdir()
    check(ReaderCase(name, images, annotations, files), tmp_path / "empty")
