"""The shapes of the drawn scenes, each as the signed distance of points to its edge; the unit is its radius, the origin its centre."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Distance = Callable[[Floats, Floats], Floats]


def disc(x: Floats, y: Floats) -> Floats:
    """Return the distance to a disc's edge."""
    return np.asarray(np.hypot(x, y) - np.float32(1))


def ring(x: Floats, y: Floats) -> Floats:
    """Return the distance to a ring's nearer edge."""
    radius = np.hypot(x, y)
    return np.asarray(np.maximum(radius - np.float32(1), np.float32(0.52) - radius))


def polygon(corners: tuple[tuple[float, float], ...], x: Floats, y: Floats) -> Floats:
    """Return the signed distance to a closed polygon of `corners`, convex or not."""
    nearest = np.full(x.shape, np.inf, np.float32)
    sign = np.ones(x.shape, np.float32)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        ex, ey = np.float32(bx - ax), np.float32(by - ay)
        wx, wy = x - np.float32(ax), y - np.float32(ay)
        along = np.clip((wx * ex + wy * ey) / (ex * ex + ey * ey), 0, 1)
        nearest = np.minimum(nearest, (wx - ex * along) ** 2 + (wy - ey * along) ** 2)
        # Crossing number: an edge that passes from below to above the point, seen from its left or right.
        starts_below, ends_above, is_left = wy >= 0, y < np.float32(by), ex * wy > ey * wx
        sign = np.where((starts_below & ends_above & is_left) | ~(starts_below | ends_above | is_left), -sign, sign)
    return sign * np.sqrt(nearest)


def _regular(corners: int, *radii: float) -> tuple[tuple[float, float], ...]:
    """Return the corners of a regular polygon, at these radii in turn: 1 on the unit circle, another of the inner corners of a star."""
    count = corners * len(radii)
    angles = [2 * math.pi * i / count - math.pi / 2 for i in range(count)]
    return tuple((radii[i % len(radii)] * math.cos(a), radii[i % len(radii)] * math.sin(a)) for i, a in enumerate(angles))


def _cross() -> tuple[tuple[float, float], ...]:
    """Return the twelve corners of an upright cross."""
    arm, tip = 0.34, math.sqrt(1 - 0.34**2)
    quarter = [(arm, -tip), (arm, -arm), (tip, -arm)]
    turned = [(-y, x) for x, y in quarter]
    return (*quarter, *turned, *((-x, -y) for x, y in quarter), *((-x, -y) for x, y in turned))


# The classes, in the order of their index; what is in `CLUTTER` is drawn too and is not to be found.
CLASSES: Mapping[str, Distance] = {
    "disc": disc,
    "ring": ring,
    "square": partial(polygon, _regular(4, 1.0)),
    "triangle": partial(polygon, _regular(3, 1.0)),
    "cross": partial(polygon, _cross()),
    "star": partial(polygon, _regular(5, 1.0, 0.46)),
}
CLUTTER: Mapping[str, Distance] = {
    # Seven times as long as wide.
    "bar": lambda x, y: np.maximum(np.abs(x) - np.float32(1), np.abs(y) - np.float32(0.14)),
    "crescent": lambda x, y: np.maximum(disc(x, y), np.float32(0.85) - np.hypot(x - np.float32(0.55), y)),
    "half-disc": lambda x, y: np.maximum(disc(x, y), y),
    "hexagon": partial(polygon, _regular(6, 1.0)),
    "spike": partial(polygon, _regular(4, 1.0, 0.3)),
}
