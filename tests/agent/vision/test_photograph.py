"""Photographs: upright, sized from the head of the file, written without loss."""

import struct
import zlib
from itertools import product

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import photograph
from tests.fixtures.rows import table_row


def test_the_size_is_that_of_the_photograph_read(tmp_path):
    """All eight orientations of EXIF are tested."""
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.new("RGB", (6, 4)).save(tmp_path / "a.jpg", exif=exif)
        assert photograph.size(tmp_path / "a.jpg") == photograph.read(tmp_path / "a.jpg").size, (
            f"{orientation!r}"
        )


def test_what_is_no_image_is_named(tmp_path):
    """The file is empty, truncated or something else."""
    for look, content in product(
        [photograph.read, photograph.size, photograph.is_wide], [b"", b"\xff\xd8\xff", b"text"]
    ):
        (tmp_path / "a.jpg").write_bytes(content)
        with (
            table_row(look, content),
            pytest.raises(ConfigError, match=r"cannot read the photograph .*a\.jpg"),
        ):
            look(tmp_path / "a.jpg")


def test_greys_of_16_bits_keep_their_brightness(tmp_path):
    """The upper 8 bits count, while Pillow's conversion makes all above 255 white.

    Pillow holds a PGM in 32 bits.
    """
    ramp = np.tile(np.arange(256, dtype=np.uint16) * 257, (4, 1))
    (tmp_path / "a.pgm").write_bytes(b"P5 256 4 65535\n" + ramp.astype(">u2").tobytes())
    for name in ("a.png", "a.tif", "a.pgm"):
        if name != "a.pgm":
            Image.fromarray(ramp).save(tmp_path / name)
        assert np.array_equal(
            np.asarray(photograph.read(tmp_path / name))[0, :, 0], np.arange(256)
        ), name
    assert photograph.is_wide(tmp_path / "a.tif")


def wide_colour_png():
    """Return a PNG of 16 bits a channel, 2 x 1: Pillow writes none."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    row = b"\0" + struct.pack(">6H", 0, 257 * 7, 65535, 256, 255, 257)
    head = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(row))
        + chunk(b"IEND", b"")
    )


def test_colour_of_16_bits_is_reduced_as_grey_is(tmp_path):
    """The upper byte of each channel counts."""
    (tmp_path / "a.png").write_bytes(wide_colour_png())
    assert np.asarray(photograph.read(tmp_path / "a.png")).tolist() == [[[0, 7, 255], [1, 0, 1]]]
    assert photograph.is_wide(tmp_path / "a.png")


def test_values_without_a_known_white_are_refused_by_name(tmp_path):
    """32-bit integers and floats may mean anything."""
    for dtype, words in [(np.int32, "32-bit integers"), (np.float32, "floating-point numbers")]:
        Image.fromarray(np.ones((4, 4), dtype)).save(tmp_path / "a.tif")
        with (
            table_row(dtype),
            pytest.raises(
                ConfigError,
                match=rf"photograph '.*a\.tif' holds {words}, .*: save it with 8 or 16 bits",
            ),
        ):
            photograph.read(tmp_path / "a.tif")


def test_photographs_of_8_bits_are_not_wide(tmp_path):
    """They may also have alpha, a palette, CMYK or grey."""
    for mode, name in (
        ("RGBA", "a.png"),
        ("P", "b.png"),
        ("CMYK", "c.jpg"),
        ("RGB", "d.jpg"),
        ("L", "e.png"),
    ):
        Image.new(mode, (6, 4)).save(tmp_path / name)
        assert not photograph.is_wide(tmp_path / name), name


@pytest.mark.services
def test_a_photograph_of_196_megapixels_is_read(tmp_path):
    """Pillow alone takes a picture of more than 179 million pixels for an attack.

    This one has 14,000 x 14,000. Our own limit is named; Pillow's stays as it was.
    """
    Image.new("1", (14_000, 14_000), 1).save(tmp_path / "large.png")
    limit = Image.MAX_IMAGE_PIXELS
    assert photograph.size(tmp_path / "large.png") == (14_000, 14_000)
    photo = photograph.read(tmp_path / "large.png")
    assert (photo.mode, photo.size, photo.getpixel((13_999, 13_999))) == (
        "RGB",
        (14_000, 14_000),
        (255, 255, 255),
    )
    del photo
    Image.new("1", (20_000, 14_000)).save(tmp_path / "larger.png")
    with pytest.raises(
        ConfigError,
        match=r"larger\.png' has more than 268,435,456 pixels, the limit .*: save it "
        r"with fewer pixels",
    ) as refusal:
        photograph.size(tmp_path / "larger.png")
    assert "\n" not in str(refusal.value)
    assert limit == Image.MAX_IMAGE_PIXELS
