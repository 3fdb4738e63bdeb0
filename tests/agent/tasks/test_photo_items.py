"""Photographs may be prepared pixels, or pixels inside a file of many photographs."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.items import Item, item_of_file
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.tasks.photo_items import load_item
from edgemeter.agent.vision.preprocess import Preprocessor
from tests.fixtures.vision_factory import make_input

FLOAT = TensorInfo("x", (), "float32")


def test_pixels_that_lie_ready_are_taken_as_they_are(tmp_path):
    """A .bin of the model's size equals the photograph; an error names both sizes."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    (tmp_path / "photo.bin").write_bytes(pixels.tobytes())
    (tmp_path / "short.bin").write_bytes(pixels.tobytes()[:-3])
    preprocessor = Preprocessor(make_input(), FLOAT)
    ready = load_item(preprocessor, item_of_file(tmp_path, "photo.bin"))
    for item in (
        item_of_file(tmp_path, "photo.png"),
        Item("7", tmp_path / "many.bin", "image", array=pixels),
    ):
        assert np.array_equal(load_item(preprocessor, item)[0], ready[0])
    with pytest.raises(
        ConfigError,
        match=r"short\.bin' has 12285 bytes, .*have 12288 \(height x width x 3: 64 x 64 x 3\)",
    ):
        load_item(preprocessor, item_of_file(tmp_path, "short.bin"))
    with pytest.raises(ConfigError, match=r"cannot read the pixels .*gone\.bin"):
        load_item(preprocessor, item_of_file(tmp_path, "gone.bin"))
