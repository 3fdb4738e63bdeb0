"""The drawn scenes: the truth they come with, and the files that ship."""

import json

import numpy as np
import pytest
from PIL import Image

from edgemeter.models.builder.drawn_scenes import CLASSES, SIZE_PX, Stream, draw_scene
from edgemeter.models.catalogue.shipped_models import SCENES

COUNT = 112


@pytest.fixture(scope="module")
def scenes():
    """Return the scenes of which the files ship."""
    return [draw_scene(1, Stream.VALIDATION, index) for index in range(COUNT)]


def test_the_shipped_scenes_are_those_of_their_seed(scenes):
    """Boxes and classes of the annotations, images pixel for pixel; nothing else lies in the folder."""
    document = json.loads((SCENES / "annotations.json").read_bytes())
    names = [image["file_name"] for image in document["images"]]
    assert sorted(path.name for path in (SCENES / "images").iterdir()) == names
    assert [category["name"] for category in document["categories"]] == list(CLASSES)
    for index, (scene, image) in enumerate(zip(scenes, document["images"], strict=True)):
        objects = [annotation for annotation in document["annotations"] if annotation["image_id"] == image["id"]]
        corners = [(x, y, x + width, y + height) for x, y, width, height in (annotation["bbox"] for annotation in objects)]
        np.testing.assert_array_equal(corners, scene.boxes)
        assert [annotation["category_id"] - 1 for annotation in objects] == scene.classes.tolist()
        if index in (0, 57, COUNT - 1):
            np.testing.assert_array_equal(np.asarray(Image.open(SCENES / "images" / image["file_name"])), scene.image)
    assert sum(path.stat().st_size for path in SCENES.rglob("*") if path.is_file()) <= 5_000_000


def test_boxes_are_whole_pixels_within_the_picture(scenes):
    """Every class appears, none rarely."""
    for scene in scenes:
        x1, y1, x2, y2 = scene.boxes.T
        assert ((x1 >= 0) & (y1 >= 0) & (x2 <= SIZE_PX) & (y2 <= SIZE_PX) & (x1 < x2) & (y1 < y2)).all()
    counts = np.bincount(np.concatenate([scene.classes for scene in scenes]), minlength=len(CLASSES))
    assert counts.min() > counts.mean() / 2


def test_no_scene_of_one_seed_or_stream_is_drawn_in_another():
    """What a model is trained on is not what judges it."""
    pictures = {draw_scene(seed, stream, index).image.tobytes() for seed in (7, 8) for stream in Stream for index in range(4)}
    assert len(pictures) == 24


def test_shapes_have_the_areas_of_geometry():
    """Counted pixels agree with the formulas: a disc's pi, a ring's pi (1 - hole^2), a square's 2, a triangle's 3/4 sqrt 3."""
    y, x = (np.mgrid[-1.2:1.2:481j, -1.2:1.2:481j]).astype(np.float32)
    area = {name: float((shape(x, y) < 0).sum()) * 0.005**2 for name, shape in CLASSES.items()}
    expected = {"disc": np.pi, "ring": np.pi * (1 - 0.52**2), "square": 2.0, "triangle": 0.75 * np.sqrt(3)}
    arm, tip = 0.34, np.sqrt(1 - 0.34**2)
    expected |= {"cross": 8 * arm * tip - 4 * arm**2, "star": 5 * 0.46 * np.sin(np.pi / 5)}
    assert area == pytest.approx(expected, rel=0.02)
