"""OpenCV's resize stands in for ours only where it gives the same bits."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from edgemeter.agent.vision import bilinear, opencv


@pytest.fixture(autouse=True)
def looked_for_again():
    """Whether OpenCV is here is found out once a process; here in every test."""
    opencv.resize.cache_clear()
    yield
    opencv.resize.cache_clear()


def stand_in(resize):
    """Return a module with what is called of OpenCV."""
    return SimpleNamespace(INTER_LINEAR=1, __version__="0", setNumThreads=lambda _: None, resize=resize)


def test_without_opencv_ours_is_taken(monkeypatch):
    """It is no dependency."""
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert opencv.resize() is bilinear.resize


def test_an_opencv_that_rounds_otherwise_is_not_taken(monkeypatch):
    """One grey level in one pixel: the AP of an 8-bit model would depend on what happens to be installed."""

    def off_by_one(pixels, size, interpolation):
        assert interpolation == 1
        new = bilinear.resize(pixels, *size)
        new[0, 0, 0] ^= 1
        return new

    monkeypatch.setitem(sys.modules, "cv2", stand_in(off_by_one))
    assert opencv.resize() is bilinear.resize


@pytest.mark.parametrize(
    ("old", "new"), [((640, 427), (640, 427)), ((1280, 720), (640, 360)), ((500, 375), (416, 312)), ((99, 7), (300, 300))]
)
def test_the_picture_is_the_same_with_opencv(old, new):
    """The real OpenCV, where it is installed."""
    pytest.importorskip("cv2")
    resize = opencv.resize()
    assert resize is not bilinear.resize
    pixels = np.random.RandomState(1).randint(0, 256, (old[1], old[0], 4)).astype(np.uint8)
    assert np.array_equal(resize(pixels, *new), bilinear.resize(pixels, *new))
