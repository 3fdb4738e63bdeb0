"""The contract of `edgemeter.agent.datasets.Reader`, over every name in the table."""

import json

import pytest
from PIL import Image

from edgemeter.agent import datasets
from edgemeter.agent.conformance.readers import CHECKS, ReaderCase
from tests.fixtures.vision_factory import make_truth

FLAT = ("photo_0.png", "photo_1.png")
# By reader: where its photographs lie, and its annotations by name (None: it needs none).
CASES = {
    "yolo": (FLAT, "labels/classes.txt", "cat\ndog\n"),
    "class-folders": (("cat/a.png", "dog/b.png"), None, ""),
    "class-list": (FLAT, "index.csv", "file,class\nphoto_0.png,0\nphoto_1.png,2\n"),
    "coco": (FLAT, "truth.json", json.dumps(make_truth(2))),
}


def test_every_reader_stands_here():
    """A new reader is held to the same."""
    assert set(CASES) == set(datasets.READERS)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_reader_keeps_the_contract(check, name, tmp_path):
    """The checks that ship, over every reader with two photographs."""
    files, where, text = CASES[name]
    images = tmp_path / "images"
    for file in files:
        (images / file).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64)).save(images / file)
    annotations = None if where is None else tmp_path / where
    if annotations is not None:
        annotations.parent.mkdir(exist_ok=True)
        annotations.write_text(text)
    if name == "yolo":
        for file in files:
            (tmp_path / "labels" / file).with_suffix(".txt").write_text("1 0.5 0.5 0.25 0.25\n")
    (tmp_path / "empty").mkdir()
    check(ReaderCase(name, images, annotations, files), tmp_path / "empty")
