"""The scenes that ship: the files are what the generator draws."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.progress import no_progress
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.catalogue.shipped_models import SCENES
from tests.shipped_models import build, drawn_scenes
from tests.shipped_models.drawn_scenes import CLASSES, Stream, draw_scene


def test_the_shipped_annotations_are_drawn_again_byte_for_byte():
    """Seed and count give the very document that ships."""
    scenes = [draw_scene(drawn_scenes.SHIPPED_SEED, Stream.VALIDATION, index) for index in range(build.SHIPPED_COUNT)]
    assert build.annotations(scenes) == (SCENES / drawn_scenes.ANNOTATIONS).read_bytes()


def test_the_shipped_images_are_drawn_again_pixel_for_pixel():
    """A scene and its file agree in every pixel."""
    for index in (0, 1, 57, build.SHIPPED_COUNT - 1):
        shipped = np.asarray(Image.open(SCENES / drawn_scenes.IMAGES / drawn_scenes.file_name(index)))
        pixels = draw_scene(drawn_scenes.SHIPPED_SEED, Stream.VALIDATION, index).image
        np.testing.assert_array_equal(shipped, pixels, err_msg=f"scene {index}")


def test_the_shipped_scenes_are_a_data_set_of_all_classes_and_at_most_5_mb():
    """`edgemeter run` reads the folder; nothing else lies in it."""
    images = SCENES / drawn_scenes.IMAGES
    data = open_folder(images, SCENES / drawn_scenes.ANNOTATIONS)
    assert len(data.items) == build.SHIPPED_COUNT == len(list(images.iterdir()))
    assert [category["name"] for category in data.truth["categories"]] == list(CLASSES)
    assert {annotation["category_id"] for annotation in data.truth["annotations"]} == set(range(1, len(CLASSES) + 1))
    assert sum(path.stat().st_size for path in SCENES.rglob("*") if path.is_file()) <= 5_000_000


def test_written_scenes_are_read_back_as_drawn(tmp_path):
    """Images without loss, boxes as x, y, width and height, areas as counted."""
    build.write_annotated(tmp_path, 5, 3, no_progress)
    data = open_folder(tmp_path / drawn_scenes.IMAGES, tmp_path / drawn_scenes.ANNOTATIONS)
    for index, (item, image_id) in enumerate(zip(data.items, data.image_ids, strict=True)):
        scene = draw_scene(5, Stream.VALIDATION, index)
        np.testing.assert_array_equal(np.asarray(Image.open(item.path)), scene.image)
        annotations = [annotation for annotation in data.truth["annotations"] if annotation["image_id"] == image_id]
        corners = [[a["bbox"][0], a["bbox"][1], a["bbox"][0] + a["bbox"][2], a["bbox"][1] + a["bbox"][3]] for a in annotations]
        np.testing.assert_array_equal(corners, scene.boxes)
        assert [a["area"] for a in annotations] == scene.areas_px.tolist()
        assert [a["category_id"] - 1 for a in annotations] == scene.classes.tolist()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=r"taken.*--output"):
        build.write_annotated(tmp_path / "taken", 5, 1, no_progress)
