"""A photograph with the boxes of several panels side by side, drawn as SVG: what is there, and what each run found of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgemeter.collector.predictions.differences import SAME, Kind
from edgemeter.collector.web.markup import Markup, part

# The signs of the kinds of differences; each has a colour and a line of its own in the style sheet too: one of the three is enough.
SIGNS: Mapping[Kind, str] = {
    "missed": "\N{MINUS SIGN}",
    "other-class": "\N{NOT EQUAL TO}",
    "false": "+",
    "moved": "\N{LEFT RIGHT ARROW}",
    "gained": "\N{CHECK MARK}",
    "false-gone": "\N{CHECK MARK}",
}
# The panel of a desk's page, px, in which a plate's letters are as large as the page's small ones.
PANEL_PX, LETTER_PX = 400.0, 11.5
LONGEST_TEXT = 26
# Of letters of that size; a plate's text is stretched to its plate.
LETTER_WIDTH, PLATE_HEIGHT = 0.56, 1.4


@dataclass(frozen=True, slots=True)
class Mark:
    """An object in a panel: its box (x, y, width, height in pixels), the `text` beside it, if any, and a `title` for the pointer."""

    kind: Kind
    box: tuple[float, float, float, float]
    text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class PhotographPanel:
    """One of the panels of a photograph."""

    heading: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class _Plate:
    """A mark's text on its ground, in pixels of the photograph."""

    kind: Kind
    text: str
    x: float
    y: float
    width: float
    height: float

    def covers(self, other: "_Plate") -> bool:
        return abs(self.x - other.x) < (self.width + other.width) / 2 and abs(self.y - other.y) < (self.height + other.height) / 2


def marked_photograph(
    panels: Sequence[PhotographPanel], size: tuple[int, int], source: str | None, identity: str, caption: Markup | str
) -> Markup:
    """Return the panels of a photograph of that `size` (pixels); without a `source`, the address of a copy, its boxes on a plain ground.

    `identity` is one among those of the view: the copy is in the first panel, and the others refer to it.
    """
    width, height = (max(side, 1) for side in size)
    unit = max(width, height * 0.75) / PANEL_PX
    drawn = [(panel.heading, _quiet_first(panel.marks), _plates(panel.marks, (width, height), unit * LETTER_PX)) for panel in panels]
    return part("photograph", drawn, (width, height), source, identity, caption, unit * LETTER_PX)


def legend(names: Mapping[Kind, str]) -> Markup:
    """Return the lines of these kinds of marks with their signs and names."""
    return part("mark_legend", [(kind, SIGNS.get(kind, ""), name) for kind, name in names.items()])


def _quiet_first(marks: Sequence[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda mark: mark.kind not in SAME)


def _plates(marks: Sequence[Mark], size: tuple[int, int], letter: float) -> list[_Plate]:
    """Return the plates, each above its box, within it or below it, where it covers no other: the first of these places otherwise."""
    plates: list[_Plate] = []
    for mark in marks:
        if not mark.text:
            continue
        text = mark.text if len(mark.text) <= LONGEST_TEXT else f"{mark.text[: LONGEST_TEXT - 1]}…"
        width, height = (len(text) * LETTER_WIDTH + 0.7) * letter, PLATE_HEIGHT * letter
        left, top, _, down = mark.box
        x = min(max(left, 0.0), max(size[0] - width, 0.0))
        heights = (top - height, top, top + down, top + down - height, top - 2 * height, top + height, top + down + height)
        tops = [y for y in heights if 0 <= y <= size[1] - height] or [0.0]
        places = [_Plate(mark.kind, text, x, y, width, height) for y in tops]
        plates.append(next((plate for plate in places if not any(map(plate.covers, plates))), places[0]))
    return plates
