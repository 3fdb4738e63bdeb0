"""OpenCV's bilinear resize, taken where OpenCV is installed and gives the bits of `bilinear`: several times as fast.

Nothing depends on it: `pip install opencv-python-headless` brings it, and a picture is the same with and without. What is checked is
the build that is here: some (with the maker's own kernels) round otherwise, and are not used.
"""

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.vision import bilinear

logger = logging.getLogger(__name__)

Pixels = NDArray[np.uint8]
Resize = Callable[[Pixels, int, int], Pixels]

# Old (w, h) and new: shrinking by much, by little and to the half, growing, and both.
_TRIALS = (((610, 470), (300, 201)), ((331, 257), (317, 240)), ((256, 192), (128, 96)), ((61, 47), (100, 90)), ((90, 33), (45, 70)))


@cache
def resize() -> Resize:
    """Return OpenCV's resize, or ours where OpenCV is not installed or rounds otherwise; both as `bilinear.resize`."""
    try:
        cv2 = import_module("cv2")
    except ImportError:
        return bilinear.resize
    # A query's surroundings take one core, as everything of ours.
    cv2.setNumThreads(1)

    def resized(pixels: Pixels, width: int, height: int) -> Pixels:
        new: Pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
        return new

    if all(np.array_equal(resized(one, *new), bilinear.resize(one, *new)) for one, new in map(_trial, _TRIALS)):
        return resized
    logger.info("OpenCV %s rounds otherwise than most builds when it resizes, and is not used", cv2.__version__)
    return bilinear.resize


def _trial(sizes: tuple[tuple[int, int], tuple[int, int]]) -> tuple[Pixels, tuple[int, int]]:
    (width, height), new = sizes
    return np.random.RandomState(width).randint(0, 256, (height, width, 4)).astype(np.uint8), new
