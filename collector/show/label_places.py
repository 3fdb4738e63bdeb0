"""Where labels go beside their points without covering each other; a label that finds no place is left away."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgemeter.collector.show.drawing import Frame

# Wide enough for the larger letters of a phone.
CHARACTER_WIDTH = 6.8
HEIGHT = 13.0
DISTANCE = 9.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a label stands: its base line and its anchor (start, middle, end)."""

    x: float
    y: float
    anchor: str


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "_Box") -> bool:
        return self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom


def places(points: Sequence[tuple[float, float]], texts: Sequence[str | None], frame: Frame) -> list[Place | None]:
    """Return a place for each text beside its point, those that come first served first; None where there is no text or no room."""
    taken = [_Box(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    found: list[Place | None] = []
    for (x, y), text in zip(points, texts, strict=True):
        free = (one for one in _around(x, y, text or "") if _is_inside(one[1], frame) and not any(one[1].overlaps(box) for box in taken))
        place, box = next(free, (None, None)) if text else (None, None)
        found.append(place)
        if box is not None:
            taken.append(box)
    return found


def _around(x: float, y: float, text: str) -> Iterator[tuple[Place, _Box]]:
    width = len(text) * CHARACTER_WIDTH
    for across, down in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1)):
        middle = y + down * HEIGHT
        start = {1: x + DISTANCE, -1: x - DISTANCE - width, 0: x - width / 2}[across]
        anchor = {1: "start", -1: "end", 0: "middle"}[across]
        text_x = {1: start, -1: start + width, 0: x}[across]
        yield Place(text_x, middle + 4, anchor), _Box(start, middle - HEIGHT / 2, start + width, middle + HEIGHT / 2)


def _is_inside(box: _Box, frame: Frame) -> bool:
    return frame.left <= box.left and box.right <= frame.right and frame.top - 4 <= box.top and box.bottom <= frame.bottom
