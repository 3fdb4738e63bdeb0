"""Drawn scenes: the truth they come with, and what keeps training and judging apart."""

import numpy as np
import pytest

from tests.fixtures.rows import table_row
from tests.shipped_models.drawn_scenes import CLASSES, CLUTTER, SIZE_PX, VISIBLE_RATIO_MIN, Stream, draw_scene


@pytest.fixture(scope="module")
def scenes():
    """Return sixty scenes."""
    return [draw_scene(7, Stream.VALIDATION, index) for index in range(60)]


def test_a_scene_is_a_function_of_its_three_numbers(scenes):
    """The same numbers draw the same pixels and the same truth; any other number draws another scene."""
    redrawn = draw_scene(7, Stream.VALIDATION, 3)
    np.testing.assert_array_equal(redrawn.image, scenes[3].image)
    np.testing.assert_array_equal(redrawn.boxes, scenes[3].boxes)
    other_scenes = [
        draw_scene(7, Stream.VALIDATION, 4),
        draw_scene(8, Stream.VALIDATION, 3),
        draw_scene(7, Stream.TRAIN, 3),
        draw_scene(7, Stream.CALIBRATION, 3),
    ]
    assert all(not np.array_equal(other.image, redrawn.image) for other in other_scenes)


def test_no_scene_of_one_stream_is_drawn_in_another():
    """Among the first scenes of each stream no picture comes twice."""
    pictures = {draw_scene(7, stream, index).image.tobytes() for stream in Stream for index in range(20)}
    assert len(pictures) == 20 * len(Stream)


def test_boxes_are_whole_pixels_within_the_picture_and_hold_their_object(scenes):
    """Each box has an inside, lies in the picture, and its area holds at most every pixel of it."""
    for scene in scenes:
        x1, y1, x2, y2 = scene.boxes.T
        assert np.array_equal(scene.boxes, np.round(scene.boxes))
        assert ((x1 >= 0) & (y1 >= 0) & (x2 <= SIZE_PX) & (y2 <= SIZE_PX)).all()
        assert ((x2 > x1) & (y2 > y1)).all()
        assert ((scene.areas_px > 0) & (scene.areas_px <= (x2 - x1) * (y2 - y1))).all()
        assert len(scene.boxes) == len(scene.classes) == len(scene.areas_px)


def test_every_class_appears_in_many_sizes(scenes):
    """No class is missing or rare, and the large are three times the small."""
    labels = np.concatenate([scene.classes for scene in scenes])
    counts = np.bincount(labels, minlength=len(CLASSES))
    assert len(counts) == len(CLASSES)
    assert counts.min() > counts.mean() / 2
    boxes = np.concatenate([scene.boxes for scene in scenes])
    sides = np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    assert np.percentile(sides, 95) > 3 * np.percentile(sides, 5)


def test_scenes_hide_parts_but_never_most_of_an_object(scenes):
    """Some objects show much less than their whole shape; none less than the promised part of the area it was drawn with."""
    # A whole disc covers pi / 4 of its box; a part of one, seldom.
    discs = [
        area / ((x2 - x1) * (y2 - y1))
        for scene in scenes
        for (x1, y1, x2, y2), label, area in zip(scene.boxes, scene.classes, scene.areas_px, strict=True)
        if label == list(CLASSES).index("disc")
    ]
    assert min(discs) < 0.7
    assert min(discs) > VISIBLE_RATIO_MIN * 0.7
    assert max(discs) < 0.95


def test_the_picture_shows_what_the_truth_holds(scenes):
    """Where an object lies the picture has edges: more contrast within the boxes than in as large boxes elsewhere, on average."""
    inside, outside = [], []
    rng = np.random.default_rng(0)
    for scene in scenes:
        for x1, y1, x2, y2 in scene.boxes.astype(int):
            inside.append(scene.image[y1:y2, x1:x2].std((0, 1)).mean())
            left_px, top = rng.integers(0, SIZE_PX - (x2 - x1) + 1), rng.integers(0, SIZE_PX - (y2 - y1) + 1)
            outside.append(scene.image[top : top + y2 - y1, left_px : left_px + x2 - x1].std((0, 1)).mean())
    assert np.mean(inside) > 1.2 * np.mean(outside)


def test_a_shape_is_solid_where_its_distance_is_negative():
    """Each shape has an inside and an outside, reaches the unit circle, and stays within it."""
    for name in (*CLASSES, *CLUTTER):
        with table_row(name):
            y, x = np.mgrid[-1.5:1.5:151j, -1.5:1.5:151j].astype(np.float32)
            distance = {**CLASSES, **CLUTTER}[name](x, y)
            radius = np.hypot(x, y)[distance < 0]
            assert distance.dtype == np.float32
            assert 0.9 < radius.max() <= 1.02
            assert (distance[np.hypot(x, y) > 1.05] > 0).all()


def test_shapes_have_the_areas_of_geometry():
    """Counted pixels agree with the formulas: a disc's pi, a ring's pi (1 - hole^2), a square's 2, a triangle's 3/4 sqrt 3."""
    y, x = (np.mgrid[-1.2:1.2:961j, -1.2:1.2:961j]).astype(np.float32)
    area = {name: float((shape(x, y) < 0).sum()) * 0.0025**2 for name, shape in CLASSES.items()}
    expected = {"disc": np.pi, "ring": np.pi * (1 - 0.52**2), "square": 2.0, "triangle": 0.75 * np.sqrt(3)}
    arm, tip = 0.34, np.sqrt(1 - 0.34**2)
    expected["cross"] = 8 * arm * tip - 4 * arm**2
    expected["star"] = 5 * 0.46 * np.sin(np.pi / 5)
    for name, value in expected.items():
        assert area[name] == pytest.approx(value, rel=0.01), name
