"""Looks: the colour and the shape that stand for a series in all drawings of a page, told apart without colour too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.collector.compare.comparison import Row

# The style sheet holds as many colours (after Okabe and Ito, and darker or lighter where the paper asks for it).
COLOURS = 7
# Corners of each shape as (angle in degrees from the top, radius ratio); an empty tuple is a circle.
_CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "circle": (),
    "square": tuple((45.0 + 90 * turn, 1.2) for turn in range(4)),
    "triangle": tuple((120.0 * turn, 1.35) for turn in range(3)),
    "diamond": tuple((90.0 * turn, 1.35) for turn in range(4)),
    "triangle-down": tuple((180 + 120.0 * turn, 1.35) for turn in range(3)),
    "pentagon": tuple((72.0 * turn, 1.2) for turn in range(5)),
    "star": tuple((36.0 * turn, 1.6 if turn % 2 == 0 else 0.65) for turn in range(10)),
}
SHAPES = tuple(name for name in _CORNERS if name != "star")


@dataclass(frozen=True, slots=True)
class Look:
    """How one series is drawn: the style sheet's colour class and a shape."""

    colour: str
    shape: str


REFERENCE = Look("reference", "star")


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks of all series. A series is a device where there are several (a board type where colours would not do), else a runtime.

    The reference is always the star.
    """

    by_device: bool
    names: tuple[str, ...]
    by_board: bool = False

    def series(self, row: Row) -> str:
        """Return the name of the series that `row` belongs to."""
        if self.by_board:
            return _board(row)
        return row.case.key.device if self.by_device else row.case.key.runtime

    def of(self, row: Row) -> Look:
        """Return the look of `row`."""
        return REFERENCE if row.is_reference else self.named(self.series(row))

    def named(self, series: str) -> Look:
        """Return the look of a series by name."""
        index = self.names.index(series)
        return Look(f"s{index % COLOURS}", SHAPES[index % len(SHAPES)])


def assign(rows: Sequence[Row], most_devices: int | None = None) -> Looks:
    """Return a look for each series of the page, the same in every drawing; of more devices than `most_devices` their board types."""
    others = [row.case.key for row in rows if not row.is_reference]
    devices = {(key.fleet, key.device) for key in others}
    boards = {_board(row) for row in rows if not row.is_reference}
    if most_devices is not None and len(devices) > most_devices and len(boards) < len(devices):
        return Looks(by_device=True, names=tuple(sorted(boards)), by_board=True)
    by_device = len({key.device for key in others}) > 1
    names = sorted({key.device if by_device else key.runtime for key in others})
    return Looks(by_device, tuple(names))


def _board(row: Row) -> str:
    return row.case.newest.environment.board or "unknown board"


def outline(shape: str, x: float, y: float, radius: float) -> str:
    """Return the SVG path data of a shape around (`x`, `y`)."""
    if shape == "circle":
        arc = f"a{radius:.1f} {radius:.1f} 0 1 0"
        return f"M{x - radius:.1f} {y:.1f}{arc} {2 * radius:.1f} 0{arc} {-2 * radius:.1f} 0Z"
    corners = [(math.radians(angle), radius * length) for angle, length in _CORNERS[shape]]
    return "M" + "L".join(f"{x + length * math.sin(angle):.1f} {y - length * math.cos(angle):.1f}" for angle, length in corners) + "Z"
