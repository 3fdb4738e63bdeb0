"""Photographs: upright, sized from the head of the file, written without loss."""

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import photograph


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_is_that_of_the_photograph_read(tmp_path, orientation):
    """All eight orientations of EXIF."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (6, 4)).save(tmp_path / "a.jpg", exif=exif)
    assert photograph.size(tmp_path / "a.jpg") == photograph.read(tmp_path / "a.jpg").size


def test_what_is_written_is_what_is_read(tmp_path):
    """Every pixel, in colour and order."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    photograph.write(pixels, tmp_path / "a.bmp")
    assert np.array_equal(np.asarray(photograph.read(tmp_path / "a.bmp")), pixels)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"text"])
@pytest.mark.parametrize("look", [photograph.read, photograph.size])
def test_what_is_no_image_is_named(tmp_path, content, look):
    """Empty, truncated or something else."""
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot read the photograph .*a\.jpg"):
        look(tmp_path / "a.jpg")
