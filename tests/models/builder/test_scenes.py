"""The drawn scenes: the truth they come with, and the files that ship."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.progress import no_progress
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.builder.build import annotations, write_annotated
from edgemeter.models.builder.drawn_scenes import ANNOTATIONS, IMAGES, SIZE_PX, Stream, draw_scene, file_name
from edgemeter.models.builder.recipe import SHIPPED_COUNT, SHIPPED_SEED
from edgemeter.models.builder.scene_shapes import CLASSES
from edgemeter.models.catalogue.shipped_models import SCENES


@pytest.fixture(scope="module")
def shipped_scenes():
    """Return the scenes of the shipped seed."""
    return [draw_scene(SHIPPED_SEED, Stream.VALIDATION, index) for index in range(SHIPPED_COUNT)]


def test_the_shipped_scenes_are_drawn_again(shipped_scenes):
    """The annotations byte for byte, the images pixel for pixel; nothing else lies in the folder."""
    assert annotations(shipped_scenes) == (SCENES / ANNOTATIONS).read_bytes()
    assert sorted(path.name for path in (SCENES / IMAGES).iterdir()) == [file_name(index) for index in range(SHIPPED_COUNT)]
    for index in (0, 57, SHIPPED_COUNT - 1):
        np.testing.assert_array_equal(np.asarray(Image.open(SCENES / IMAGES / file_name(index))), shipped_scenes[index].image)
    assert sum(path.stat().st_size for path in SCENES.rglob("*") if path.is_file()) <= 5_000_000


def test_boxes_are_whole_pixels_within_the_picture_and_hold_their_object(shipped_scenes):
    """The area of an object holds at most every pixel of its box; every class appears, none rarely."""
    for scene in shipped_scenes:
        x1, y1, x2, y2 = scene.boxes.T
        assert ((x1 >= 0) & (y1 >= 0) & (x2 <= SIZE_PX) & (y2 <= SIZE_PX)).all()
        assert ((scene.areas_px > 0) & (scene.areas_px <= (x2 - x1) * (y2 - y1))).all()
    counts = np.bincount(np.concatenate([scene.classes for scene in shipped_scenes]), minlength=len(CLASSES))
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


def test_written_scenes_are_read_back_as_drawn(tmp_path):
    """Images without loss, boxes as x, y, width and height, areas as counted; a folder that cannot be written is named."""
    write_annotated(tmp_path, 5, 2, no_progress)
    data = open_folder(tmp_path / IMAGES, tmp_path / ANNOTATIONS)
    for index, (item, image_id) in enumerate(zip(data.items, data.image_ids, strict=True)):
        scene = draw_scene(5, Stream.VALIDATION, index)
        np.testing.assert_array_equal(np.asarray(Image.open(item.path)), scene.image)
        objects = [annotation for annotation in data.truth["annotations"] if annotation["image_id"] == image_id]
        corners = [(x, y, x + width, y + height) for x, y, width, height in (annotation["bbox"] for annotation in objects)]
        np.testing.assert_array_equal(corners, scene.boxes)
        assert [annotation["area"] for annotation in objects] == scene.areas_px.tolist()
        assert [annotation["category_id"] - 1 for annotation in objects] == scene.classes.tolist()
    with pytest.raises(ConfigError, match="--output"):
        write_annotated(data.items[0].path, 5, 1, no_progress)
