"""Series styles: the colour and the shape of a series in all drawings of a page, distinguishable without colour too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.collector.compare.comparison import ComparisonRow

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
class SeriesStyle:
    """How one series is drawn: the style sheet's colour class and a shape."""

    colour: str
    shape: str


REFERENCE = SeriesStyle("reference", "star")


@dataclass(frozen=True, slots=True)
class SeriesStyles:
    """The styles of all series. A series is a device where there are several (a board type where colours would not do), else a runtime.

    The reference is always the star.
    """

    by_device: bool
    names: tuple[str, ...]
    by_board: bool = False

    def series(self, row: ComparisonRow) -> str:
        """Return the name of the series that `row` belongs to."""
        if self.by_board:
            return _board(row)
        return row.case.key.device if self.by_device else row.case.key.runtime

    def of(self, row: ComparisonRow) -> SeriesStyle:
        """Return the style of `row`."""
        return REFERENCE if row.is_reference else self.named(self.series(row))

    def named(self, series: str) -> SeriesStyle:
        """Return the style of a series by name."""
        index = self.names.index(series)
        return SeriesStyle(f"s{index % COLOURS}", SHAPES[index % len(SHAPES)])


def assign_styles(rows: Sequence[ComparisonRow], most_devices: int | None = None) -> SeriesStyles:
    """Return a style for each series of the page, the same in every drawing; of more devices than `most_devices` their board types."""
    others = [row.case.key for row in rows if not row.is_reference]
    devices = {(key.fleet, key.device) for key in others}
    boards = {_board(row) for row in rows if not row.is_reference}
    if most_devices is not None and len(devices) > most_devices and len(boards) < len(devices):
        return SeriesStyles(by_device=True, names=tuple(sorted(boards)), by_board=True)
    by_device = len({key.device for key in others}) > 1
    names = sorted({key.device if by_device else key.runtime for key in others})
    return SeriesStyles(by_device, tuple(names))


def _board(row: ComparisonRow) -> str:
    return row.case.newest.environment.board or "unknown board"


def outline(shape: str, x: float, y: float, radius: float) -> str:
    """Return the SVG path data of a shape around (`x`, `y`)."""
    if shape == "circle":
        arc = f"a{radius:.1f} {radius:.1f} 0 1 0"
        return f"M{x - radius:.1f} {y:.1f}{arc} {2 * radius:.1f} 0{arc} {-2 * radius:.1f} 0Z"
    corners = [(math.radians(angle), radius * length) for angle, length in _CORNERS[shape]]
    return "M" + "L".join(f"{x + length * math.sin(angle):.1f} {y - length * math.cos(angle):.1f}" for angle, length in corners) + "Z"
