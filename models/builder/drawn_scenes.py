"""The scenes of the shipped detector: shapes to find among clutter, over a textured ground, under uneven light, through a noisy lens.

A scene is a function of (seed, stream, index) alone. The streams keep what a model is trained on, calibrated with and judged by
apart: no two of them share a random number. The shipped scenes are those of the seed 1 in `VALIDATION`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

Rng = np.random.Generator
Floats = NDArray[np.float32]
# The signed distance of points to a shape's edge; the unit is its radius, the origin its centre.
Distance = Callable[[Floats, Floats], Floats]
SIZE_PX = 160
_AXIS: Floats = np.arange(SIZE_PX, dtype=np.float32)
# An object that is hidden further than this is not drawn at all: every annotated object can be found by looking.
_VISIBLE_RATIO_MIN = 0.4
# A scene holds 64 levels per channel: noise in the lowest two bits would only swell the files.
_LEVEL_STEP = 4


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


class Stream(IntEnum):
    """The purpose of a scene."""

    TRAIN = 0
    VALIDATION = 1
    CALIBRATION = 2


@dataclass(frozen=True, slots=True)
class Scene:
    """A drawn scene and its truth.

    image: uint8 [SIZE_PX, SIZE_PX, 3] RGB; boxes: float32 [n, 4], x1 y1 x2 y2 of the visible part in pixels; classes: int64 [n].
    """

    image: NDArray[np.uint8]
    boxes: Floats
    classes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _DrawnObject:
    """An object of a class: the pixels that it still shows, bool [S, S], and how many it had."""

    label: int
    mask: NDArray[np.bool_]
    drawn_px: int


def draw_scene(seed: int, stream: Stream, index: int) -> Scene:
    """Return the scene that belongs to these three numbers."""
    rng = np.random.default_rng([seed, int(stream), index])
    pixels = _ground(rng)
    objects: list[_DrawnObject] = []
    for _ in range(int(rng.integers(0, 5))):
        _add(pixels, objects, rng, None)
    for _ in range(int(rng.integers(3, 9))):
        _add(pixels, objects, rng, int(rng.integers(len(CLASSES))))
    for _ in range(int(rng.integers(0, 3))):
        _add(pixels, objects, rng, None)
    visible = [drawing for drawing in objects if drawing.mask.any()]
    boxes = []
    for drawing in visible:
        columns, rows = np.flatnonzero(drawing.mask.any(0)), np.flatnonzero(drawing.mask.any(1))
        # The far edges lie behind the last pixel.
        boxes.append((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    return Scene(
        image=_photograph(pixels, rng),
        boxes=np.array(boxes, np.float32).reshape(-1, 4),
        classes=np.array([drawing.label for drawing in visible], np.int64),
    )


def _add(pixels: Floats, objects: list[_DrawnObject], rng: Rng, label: int | None) -> None:
    """Draw an object of class `label`, or a piece of clutter, unless it would hide an object too far."""
    # Sizes are evenly spread over the octaves.
    radius = 8.5 * 4 ** float(rng.random() ** 1.25)
    margin = 0.8 * radius
    x, y = (margin + float(rng.random()) * (SIZE_PX - 2 * margin) for _ in range(2))
    turn, squeeze = float(rng.random()) * 2 * math.pi, 0.8 + 0.45 * float(rng.random())
    shapes = list(CLUTTER.values() if label is None else CLASSES.values())
    shape = shapes[int(rng.integers(len(shapes))) if label is None else label]
    # The rows and columns of the picture that the shape and its shadow can reach, and how far they lie below and right of its centre.
    reach = radius * 1.3 + 4
    window = tuple(slice(max(0, int(centre - reach)), min(SIZE_PX, int(centre + reach) + 1)) for centre in (y, x))
    dx, dy = (_AXIS[window[1]] + np.float32(0.5 - x))[None, :], (_AXIS[window[0]] + np.float32(0.5 - y))[:, None]
    alpha = _coverage(shape, (dx, dy), radius, turn, squeeze)
    under = pixels[window]
    paint = _paint(under, (dx, dy), radius, rng)
    has_shadow, shadow_down, shadow_right = rng.random() < 0.5, int(rng.integers(1, 4)), int(rng.integers(0, 4))
    mask = alpha > 0.5
    is_hiding = any(drawing.mask.sum() - drawing.mask[window][mask].sum() < _VISIBLE_RATIO_MIN * drawing.drawn_px for drawing in objects)
    if is_hiding or not mask.any():
        return
    if has_shadow:
        under[shadow_down:, shadow_right:] *= (1 - np.float32(0.45) * alpha[:-shadow_down, : alpha.shape[1] - shadow_right])[:, :, None]
    under += (paint - under) * alpha[:, :, None]
    for drawing in objects:
        drawing.mask[window] &= ~mask
    if label is not None:
        full_mask = np.zeros((SIZE_PX, SIZE_PX), np.bool_)
        full_mask[window] = mask
        objects.append(_DrawnObject(label, full_mask, int(mask.sum())))


def _coverage(shape: Distance, offsets: tuple[Floats, Floats], radius: float, turn: float, squeeze: float) -> Floats:
    """Return how much of each pixel the shape covers, float32 [h, w], 0..1, at offsets float32 [1, w] and [h, 1] from its centre."""
    dx, dy = offsets
    cos, sin = np.float32(math.cos(turn)), np.float32(math.sin(turn))
    across, down = np.float32(radius * squeeze), np.float32(radius / squeeze)
    distance_px = shape((dx * cos + dy * sin) / across, (dy * cos - dx * sin) / down) * np.float32(radius)
    return np.asarray(np.clip(np.float32(0.5) - distance_px, 0, 1))


def _paint(ground: Floats, offsets: tuple[Floats, Floats], radius: float, rng: Rng) -> Floats:
    """Return the shape's surface, float32 [h, w, 3]: a colour, shaded to one side, now and then striped or see-through."""
    dx, dy = offsets
    colour = rng.random(3, np.float32)
    angle, slope = float(rng.random()) * 2 * math.pi, 0.25 * float(rng.random())
    stripes, clear, period_px = float(rng.random()), float(rng.random()), 4 + 8 * float(rng.random())
    along_px = dx * np.float32(math.cos(angle)) + dy * np.float32(math.sin(angle))
    tone = along_px * np.float32(slope / radius)
    if stripes < 0.25:
        tone = tone + np.float32(0.18) * np.sign(np.sin(along_px * np.float32(2 * math.pi / period_px)))
    surface = colour + tone[:, :, None]
    if clear < 0.2:
        surface = surface + (ground - surface) * np.float32(2 * clear)
    return np.asarray(np.clip(surface, 0, 1))


def _ground(rng: Rng) -> Floats:
    """Return the background, float32 [S, S, 3]: smooth noise of several sizes between two colours, perhaps a checked cloth."""
    first, second = rng.random(3, np.float32), rng.random(3, np.float32)
    mix = np.zeros((SIZE_PX, SIZE_PX), np.float32)
    for cells in (3, 6, 13, 27):
        mix += (_smooth(cells, rng) - np.float32(0.5)) * np.float32(1.6 * (3 / cells) ** (0.3 + 0.7 * float(rng.random())))
    ground = first + (second - first) * np.clip(mix + np.float32(0.5), 0, 1)[:, :, None]
    period = 3 + int(rng.integers(0, 18))
    phases = [(_AXIS.astype(np.int64) + int(rng.integers(period))) // period % 2 for _ in range(2)]
    depth = np.float32(0.3 * max(0.0, float(rng.random()) - 0.4))
    checks = (phases[0][:, None] ^ phases[1][None, :]).astype(np.float32)
    return np.asarray(np.clip(ground + (checks - np.float32(0.5))[:, :, None] * depth, 0, 1))


def _smooth(cells: int, rng: Rng) -> Floats:
    """Return noise that changes over 1/`cells` of the picture, float32 [S, S], 0..1."""
    position = (_AXIS + np.float32(0.5)) * np.float32(cells / SIZE_PX)
    first = position.astype(np.int64)
    part = position - first
    grid = rng.random((cells + 1, cells + 1), np.float32)
    # Interpolated by hand: a matrix product would round as the installed BLAS likes, and draw other pixels elsewhere.
    rows = grid[first] + (grid[first + 1] - grid[first]) * part[:, None]
    return np.asarray(rows[:, first] + (rows[:, first + 1] - rows[:, first]) * part)


def _photograph(pixels: Floats, rng: Rng) -> NDArray[np.uint8]:
    """Return what a camera makes of the canvas: uneven light, a colour cast, a soft lens, noise, few levels."""
    angle, depth = float(rng.random()) * 2 * math.pi, 0.7 * float(rng.random())
    across = (_AXIS[None, :] / SIZE_PX - np.float32(0.5)) * np.float32(math.cos(angle))
    down = (_AXIS[:, None] / SIZE_PX - np.float32(0.5)) * np.float32(math.sin(angle))
    light = (np.float32(0.55 + 0.5 * float(rng.random())) * (1 + np.float32(depth) * (across + down)))[:, :, None]
    lit = pixels * light * (np.float32(0.85) + np.float32(0.3) * rng.random(3, np.float32))
    for _ in range(int(rng.integers(0, 3))):
        lit[1:-1] = (lit[:-2] + 2 * lit[1:-1] + lit[2:]) / 4
        lit[:, 1:-1] = (lit[:, :-2] + 2 * lit[:, 1:-1] + lit[:, 2:]) / 4
    spread = np.float32(0.12 * float(rng.random()) ** 2)
    noise = rng.random(lit.shape, np.float32) + rng.random(lit.shape, np.float32) - 1
    levels = np.rint((lit + spread * noise) * np.float32(255 / _LEVEL_STEP)) * _LEVEL_STEP
    return np.asarray(np.clip(levels, 0, 255).astype(np.uint8))
