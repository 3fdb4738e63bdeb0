"""A photograph with the boxes of several panels side by side, drawn as SVG: what is there, and what each run found of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from edgemeter.collector.predictions.differences import SAME, Kind, ObjectMark, PhotographDifferences, Side
from edgemeter.collector.web.markup import Markup, part

# The signs of the kinds of differences; each has a colour and a line of its own in the style sheet too: one of the three is enough.
SIGNS: Mapping[Kind, str] = {
    "missed": "\N{MINUS SIGN}",
    "other-class": "\N{NOT EQUAL TO}",
    "false": "+",
    "moved": "\N{LEFT RIGHT ARROW}",
    "gained": "\N{CHECK MARK}",
    "false-gone": "+",
}
# The panel of a wide page, px, in which a plate's letters are as large as the page's small ones.
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
    contents = [(panel.heading, _quiet_first(panel.marks), _plates(panel.marks, (width, height), unit * LETTER_PX)) for panel in panels]
    return part("photograph", contents, (width, height), source, identity, caption, unit * LETTER_PX)


def panels_of(photograph: PhotographDifferences, headings: Mapping[Side, str], names: Mapping[Kind, str]) -> list[PhotographPanel]:
    """Return a panel for each side in `headings`; `names` are the kinds of differences in words.

    With a reference, what the device misses is marked in its panel too; without one, a box is not exactly there and has not moved.
    """
    has_reference = "reference" in headings
    marks: dict[Side, list[Mark]] = {side: [] for side in headings}
    for _, of_thing in groupby(photograph.marks, key=lambda mark: mark.thing):
        sides = {mark.side: mark for mark in of_thing}
        if has_reference and "device" not in sides and sides["truth" if "truth" in sides else "reference"].kind == "missed":
            sides["device"] = replace(sides["truth"], side="device")
        for side, mark in sides.items():
            if side in marks and mark.box:
                kind = "both" if mark.kind == "moved" and not has_reference else mark.kind
                at: Side = {"missed": "device" if has_reference else "truth", "false-gone": "reference"}.get(kind, "device")
                marks[side].append(_mark(replace(mark, kind=kind), names.get(kind, ""), is_there=side == at))
    return [PhotographPanel(heading, tuple(marks[side])) for side, heading in headings.items()]


def _mark(mark: ObjectMark, name: str, *, is_there: bool) -> Mark:
    words = mark.label if mark.score is None else f"{mark.label} {mark.score:.2f}".replace(" 0.", " .")
    # The sign stands where the difference is; a box that moved has no need of a name where it was.
    is_quiet = mark.kind in SAME or (mark.kind == "moved" and not is_there)
    text = "" if is_quiet else f"{SIGNS[mark.kind]} {words}" if is_there else words
    return Mark(mark.kind, mark.box or (0, 0, 0, 0), text, f"{words}: {name}")


def legend(headings: Sequence[str], names: Mapping[Kind, str], counts: Mapping[Kind, Sequence[int]], *, has_lines: bool) -> Markup:
    """Return the kinds of marks in a table, each with its line, sign and name, and how often there are such objects."""
    rows = [(kind, f"{SIGNS.get(kind, '')} {names[kind]}".strip(), numbers) for kind, numbers in counts.items()]
    return part("mark_table", headings, rows, has_lines)


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
        x, top, _, down = mark.box
        x = min(max(x, 0.0), max(size[0] - width, 0.0))
        heights = (top - height, top, top + down, top + down - height, top - 2 * height, top + height, top + down + height)
        tops = [y for y in heights if 0 <= y <= size[1] - height] or [0.0]
        places = [_Plate(mark.kind, text, x, y, width, height) for y in tops]
        plates.append(next((plate for plate in places if not any(map(plate.covers, plates))), places[0]))
    return plates
