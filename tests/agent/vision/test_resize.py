"""The bit-exact bilinear resize, ours and OpenCV's."""

import hashlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from edgemeter.agent.vision import resize as vision_resize

# By old (h, w) and new (w, h): sha256 of cv2.resize(..., INTER_LINEAR), recorded with
# opencv-python-headless 5.0.0 and 4.11.0.
OPENCV = {
    ((47, 61), (30, 20)): "4db6c46dd81c3c3c02f2eeefb826a8df473a28ee37a196a254a36245c8a58072",
    ((47, 61), (100, 90)): "98066f39a73f3dcb158d6409fa457b82f28fa31649275b5bed162a128f29c7d0",
    ((47, 61), (7, 200)): "c1978a0aa988c55768a0d6d90338ca1371322d659caa4ca6fd994f7896da107d",
    ((47, 61), (122, 94)): "02d43be3e2acbcbc9164c7ff2cc2af98f6b5e1bf3d10911a94b376c2ca6122de",
    ((47, 61), (61, 1)): "14331f1dfe19145e2ba3ada31681a2f23335c30a4383f1224f9663513c37f2d6",
    ((47, 61), (300, 2)): "2fb4d447e5eb2edc2a1056ac74c5725b15d36e7d8d0ea4aae55325124b0a0ea9",
    ((96, 120), (60, 48)): "b04e969e9a5b7d296711aa7c1136ac458296d662509ff0b018c1c35577060c2b",
    ((1, 5), (9, 4)): "d532112c3085b99276498293bd94ae2f4c044cf624433bd131c0c062e7a4fca8",
}


def picture(height, width):
    """Return a picture that looks like noise and needs no random generator: uint8 [h, w, 3]."""
    y, x, channel = np.mgrid[:height, :width, :3].astype(np.uint64)
    return (((y * width + x) * 3 + channel) * np.uint64(2654435761) >> np.uint64(13)).astype(
        np.uint8
    )


def test_every_pixel_is_opencvs():
    """Shrinking, growing, one side only, halving, and pictures of one row give OpenCV's bytes."""
    for (old, new), sha256 in OPENCV.items():
        assert (
            hashlib.sha256(vision_resize.resize_bilinear(picture(*old), *new).tobytes()).hexdigest()
            == sha256
        ), f"{old!r}, {new!r}"


def test_a_fourth_channel_changes_no_pixel():
    """Pillow's four bytes a pixel give the same three colours."""
    for new in [(30, 20), (100, 90), (7, 200), (61, 1), (20, 12)]:
        pixels = picture(47, 61)
        padded = np.concatenate([pixels, np.zeros((47, 61, 1), np.uint8)], axis=2)
        assert np.array_equal(
            vision_resize.resize_bilinear(padded, *new)[..., :3],
            vision_resize.resize_bilinear(pixels, *new),
        ), f"{new!r}"


@pytest.fixture(autouse=True)
def fresh_opencv_lookup():
    """Let each test look for OpenCV anew, which is otherwise done once a process."""
    vision_resize.fastest_resize.cache_clear()
    yield
    vision_resize.fastest_resize.cache_clear()


def test_without_opencv_ours_is_taken(monkeypatch):
    """OpenCV is no dependency."""
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert vision_resize.fastest_resize() is vision_resize.resize_bilinear


def test_an_opencv_that_rounds_otherwise_is_not_used(monkeypatch):
    """One grey level in one pixel makes a difference for an 8-bit model.

    Its AP would depend on what happens to be installed.
    """

    def off_by_one(pixels, size, interpolation):
        assert interpolation == 1
        new = vision_resize.resize_bilinear(pixels, *size)
        new[0, 0, 0] ^= 1
        return new

    opencv = SimpleNamespace(
        INTER_LINEAR=1, __version__="0", setNumThreads=lambda _: None, resize=off_by_one
    )
    monkeypatch.setitem(sys.modules, "cv2", opencv)
    assert vision_resize.fastest_resize() is vision_resize.resize_bilinear


def test_the_picture_is_the_same_with_opencv():
    """The test uses the real OpenCV."""
    resize = vision_resize.fastest_resize()
    assert resize is not vision_resize.resize_bilinear
    for old, new in [
        ((640, 427), (640, 427)),
        ((1280, 720), (640, 360)),
        ((500, 375), (416, 312)),
        ((99, 7), (300, 300)),
    ]:
        pixels = np.random.RandomState(1).randint(0, 256, (old[1], old[0], 4)).astype(np.uint8)
        assert np.array_equal(resize(pixels, *new), vision_resize.resize_bilinear(pixels, *new)), (
            f"{old!r}, {new!r}"
        )
