"""The scenes of the shipped detector: shapes to find among clutter, over a textured ground, under uneven light, through a noisy lens.

A scene is a function of (seed, stream, index) alone. The streams keep what a model is trained on, calibrated with and judged by
apart: no two of them share a random number.
"""

import math
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.base.progress import Tell
from edgemeter.models.builder.scene_shapes import CLASSES, CLUTTER, Distance, Floats

Rng = np.random.Generator
Window = tuple[slice, slice]

SIZE_PX = 160
RADIUS_PX = (8.5, 34.0)

# An object that is hidden further than this is not drawn at all: every annotated object can be found by looking.
VISIBLE_RATIO_MIN = 0.4

# A scene holds 64 levels per channel: noise in the lowest two bits would only swell the files.
LEVEL_STEP = 4


class Stream(IntEnum):
    """The purpose of a scene."""

    TRAIN = 0
    VALIDATION = 1
    CALIBRATION = 2


@dataclass(frozen=True, slots=True)
class Scene:
    """A drawn scene and its truth.

    image: uint8 [SIZE_PX, SIZE_PX, 3] RGB; boxes: float32 [n, 4], x1 y1 x2 y2 of the visible part in pixels; classes: int64 [n];
    areas_px: int64 [n], visible pixels.
    """

    image: NDArray[np.uint8]
    boxes: Floats
    classes: NDArray[np.int64]
    areas_px: NDArray[np.int64]


@dataclass(slots=True)
class _Canvas:
    """The picture so far, float32 [S, S, 3] in 0..1, with the pixels each object still shows."""

    pixels: Floats
    masks: list[NDArray[np.bool_]] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    drawn_px: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Pose:
    """Where a shape lies: centre and radius in pixels, turn in radians, squeeze of its two axes."""

    x: float
    y: float
    radius: float
    turn: float
    squeeze: float


def draw_scene(seed: int, stream: Stream, index: int) -> Scene:
    """Return the scene that belongs to these three numbers."""
    rng = np.random.default_rng([seed, int(stream), index])
    canvas = _Canvas(_ground(rng))
    for _ in range(int(rng.integers(0, 5))):
        _add(canvas, rng, None)
    object_count = int(rng.integers(3, 9))
    for _ in range(object_count):
        _add(canvas, rng, int(rng.integers(len(CLASSES))))
    for _ in range(int(rng.integers(0, 3))):
        _add(canvas, rng, None)
    visible = [i for i, mask in enumerate(canvas.masks) if canvas.classes[i] >= 0 and mask.any()]
    return Scene(
        image=_photograph(canvas.pixels, rng),
        boxes=np.array([_bounds(canvas.masks[i]) for i in visible], np.float32).reshape(-1, 4),
        classes=np.array([canvas.classes[i] for i in visible], np.int64),
        areas_px=np.array([int(canvas.masks[i].sum()) for i in visible], np.int64),
    )


def _add(canvas: _Canvas, rng: Rng, kind: int | None) -> None:
    """Draw an object of class `kind`, or a piece of clutter, unless it would hide an object too far."""
    pose = _pose(rng)
    shapes = list(CLUTTER.values() if kind is None else CLASSES.values())
    shape = shapes[int(rng.integers(len(shapes))) if kind is None else kind]
    window = _window(pose)
    alpha = _coverage(shape, pose, window)
    paint = _paint(canvas.pixels[window], pose, window, rng)
    has_shadow, shadow_down, shadow_right = rng.random() < 0.5, int(rng.integers(1, 4)), int(rng.integers(0, 4))
    mask = alpha > 0.5
    visible_px = [other.sum() - (other[window] & mask).sum() for other in canvas.masks]
    is_hidden = any(still_px < VISIBLE_RATIO_MIN * total_px for still_px, total_px in zip(visible_px, canvas.drawn_px, strict=True))
    if is_hidden or not mask.any():
        return
    under = canvas.pixels[window]
    if has_shadow:
        under[shadow_down:, shadow_right:] *= (1 - np.float32(0.45) * alpha[:-shadow_down, : alpha.shape[1] - shadow_right])[:, :, None]
    under += (paint - under) * alpha[:, :, None]
    for other in canvas.masks:
        other[window] &= ~mask
    if kind is not None:
        full_mask = np.zeros((SIZE_PX, SIZE_PX), np.bool_)
        full_mask[window] = mask
        canvas.masks.append(full_mask)
        canvas.classes.append(kind)
        canvas.drawn_px.append(int(mask.sum()))


def _pose(rng: Rng) -> _Pose:
    """Return a place for a shape: sizes evenly spread over the octaves, all of it within the picture."""
    low, high = RADIUS_PX
    radius = low * (high / low) ** float(rng.random() ** 1.25)
    margin = 0.8 * radius
    x, y = (margin + float(rng.random()) * (SIZE_PX - 2 * margin) for _ in range(2))
    return _Pose(x, y, radius, float(rng.random()) * 2 * math.pi, 0.8 + 0.45 * float(rng.random()))


def _window(pose: _Pose) -> Window:
    """Return the rows and columns of the picture that the shape and its shadow can reach."""
    reach = pose.radius * 1.3 + 4
    spans = [(max(0, int(centre - reach)), min(SIZE_PX, int(centre + reach) + 1)) for centre in (pose.y, pose.x)]
    return slice(*spans[0]), slice(*spans[1])


def _offsets(pose: _Pose, window: Window) -> tuple[Floats, Floats]:
    """Return how far the window's pixel centres lie right of and below the shape's centre: float32 [1, w] and [h, 1]."""
    rows, columns = _AXIS[window[0]] + np.float32(0.5 - pose.y), _AXIS[window[1]] + np.float32(0.5 - pose.x)
    return columns[None, :], rows[:, None]


def _coverage(shape: Distance, pose: _Pose, window: Window) -> Floats:
    """Return how much of each pixel of the window the shape covers, float32 [h, w], 0..1."""
    dx, dy = _offsets(pose, window)
    cos, sin = np.float32(math.cos(pose.turn)), np.float32(math.sin(pose.turn))
    across, down = np.float32(pose.radius * pose.squeeze), np.float32(pose.radius / pose.squeeze)
    distance_px = shape((dx * cos + dy * sin) / across, (dy * cos - dx * sin) / down) * np.float32(pose.radius)
    return np.asarray(np.clip(np.float32(0.5) - distance_px, 0, 1))


def _paint(ground: Floats, pose: _Pose, window: Window, rng: Rng) -> Floats:
    """Return the shape's surface, float32 [h, w, 3]: a colour, shaded to one side, now and then striped or see-through."""
    colour = rng.random(3, np.float32)
    angle, slope = float(rng.random()) * 2 * math.pi, 0.25 * float(rng.random())
    stripes, clear, period_px = float(rng.random()), float(rng.random()), 4 + 8 * float(rng.random())
    dx, dy = _offsets(pose, window)
    along_px = dx * np.float32(math.cos(angle)) + dy * np.float32(math.sin(angle))
    tone = along_px * np.float32(slope / pose.radius)
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
    levels = np.rint((lit + spread * noise) * np.float32(255 / LEVEL_STEP)) * LEVEL_STEP
    return np.asarray(np.clip(levels, 0, 255).astype(np.uint8))


def _bounds(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Return x1, y1, x2, y2 around the set pixels; the far edges lie behind the last pixel."""
    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _smooth(cells: int, rng: Rng) -> Floats:
    """Return noise that changes over 1/`cells` of the picture, float32 [S, S], 0..1."""
    position = (_AXIS + np.float32(0.5)) * np.float32(cells / SIZE_PX)
    first = position.astype(np.int64)
    part = position - first
    grid = rng.random((cells + 1, cells + 1), np.float32)
    # Interpolated by hand: a matrix product would round as the installed BLAS likes, and draw other pixels elsewhere.
    rows = grid[first] + (grid[first + 1] - grid[first]) * part[:, None]
    return np.asarray(rows[:, first] + (rows[:, first + 1] - rows[:, first]) * part)


_AXIS: Floats = np.arange(SIZE_PX, dtype=np.float32)

ANNOTATIONS = "annotations.json"
IMAGES = "images"


def file_name(index: int) -> str:
    """Return the file name of the image of scene `index`."""
    return f"scene_{index:03}.png"


def write_scenes(folder: Path, seed: int, count: int, report: Tell, stream: Stream) -> list[Scene]:
    """Draw scenes of `seed` into `folder` as `images/scene_NNN.png`, and return them.

    Raises:
        ConfigError: the folder cannot be written.
        UnavailableError: Pillow is not installed.
    """
    imaging = import_extra("PIL.Image", "vision", "drawing scenes needs Pillow")
    scenes = []
    try:
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            scenes.append(draw_scene(seed, stream, index))
            imaging.fromarray(scenes[-1].image).save(folder / IMAGES / file_name(index), "PNG", optimize=True)
            report(f"drawing {stream.name.lower()} scenes", index + 1, count)
    except OSError as error:
        raise ConfigError(f"cannot write scenes to {str(folder)!r}: {error.strerror}; choose another folder with --output") from error
    return scenes
