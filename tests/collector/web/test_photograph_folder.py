"""Facts about the folder of photographs: small upright copies of what is in it, and nothing from beside it."""

import os
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.kept_predictions import KeptPhotograph
from edgemeter.collector.web.photograph_folder import LONGEST_PX, MOST_PIXELS, PhotographFolder
from tests.fixtures.rows import table_row

SIDE = 8


def square(name):
    """Return the kept photograph of that name, as large as those in the folder."""
    return KeptPhotograph(name=name, width=SIDE, height=SIDE)


def save(path, width=SIDE, height=SIDE, **settings):
    """Write a grey photograph."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), "grey").save(path, **settings)


def test_a_name_that_leaves_the_folder_has_no_copy(tmp_path):
    """Neither upwards, nor absolute, nor through a link, nor what is no file; a folder within is entered."""
    for name in ("inside/ok.png", "inside/val/ok.png", "secret.png"):
        save(tmp_path / name)
    (tmp_path / "inside" / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "inside" / "out").symlink_to(tmp_path)
    (tmp_path / "inside-too").mkdir()
    save(tmp_path / "inside-too" / "near.png")
    folder = PhotographFolder(tmp_path / "inside")
    outside = (
        "../secret.png", str(tmp_path / "secret.png"), "link.png", "out/secret.png", "val/../../secret.png", "../inside-too/near.png",
        "a\0b", "", ".", "val", "x" * 5000, "../inside/../secret.png",
    )  # fmt: skip
    for name in outside:
        with table_row(name[:40]), pytest.raises(ConfigError, match="not in the folder"):
            folder.copy(square(name))
    assert folder.copy(square("ok.png")).startswith(b"\xff\xd8")
    assert folder.copy(square("val/ok.png")).startswith(b"\xff\xd8")


def test_a_copy_is_small_and_upright(tmp_path):
    """A photograph that its EXIF turns by a quarter: red on the left as it lies, so on top as it stands."""
    pixels = np.zeros((1000, 2000, 3), np.uint8)
    pixels[:, :1000, 0] = 255
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=turned)
    copy = Image.open(BytesIO(PhotographFolder(tmp_path).copy(KeptPhotograph(name="turned.jpg", width=1000, height=2000))))
    assert copy.size == (LONGEST_PX // 2, LONGEST_PX)
    top, bottom = (copy.getpixel((100, y)) for y in (50, LONGEST_PX - 50))
    assert top[0] > 200
    assert bottom[0] < 50


def test_a_photograph_that_is_missing_garbled_other_or_huge_has_a_reason(tmp_path):
    """Each in words for the caption, which name no path."""
    (tmp_path / "garbled.jpg").write_bytes(b"no photograph")
    save(tmp_path / "other.png", SIDE, SIDE + 1)
    save(tmp_path / "huge.png", 10_100, 10_000)
    sizes = {"garbled.jpg": (8, 8), "other.png": (8, 8), "huge.png": (10_100, 10_000), "missing.jpg": (8, 8)}
    reasons = {
        "garbled.jpg": "cannot be read",
        "other.png": "is another: 8 x 9",
        "huge.png": "cannot be read|too large",
        "missing.jpg": "not in",
    }
    assert MOST_PIXELS < 10_100 * 10_000
    for name, (width, height) in sizes.items():
        with table_row(name), pytest.raises(ConfigError, match=reasons[name]) as raised:
            PhotographFolder(tmp_path).address("run", KeptPhotograph(name=name, width=width, height=height))
        assert str(tmp_path) not in str(raised.value)


def test_a_changed_photograph_has_another_copy(tmp_path):
    """Copies are kept by the file and its time."""
    folder = PhotographFolder(tmp_path)
    save(tmp_path / "a.png")
    first = folder.copy(square("a.png"))
    Image.new("RGB", (SIDE, SIDE), "red").save(tmp_path / "a.png")
    os.utime(tmp_path / "a.png", ns=(1, 1))
    assert folder.copy(square("a.png")) != first
