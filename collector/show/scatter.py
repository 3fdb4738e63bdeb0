"""The scatter chart: one point per case, cost across, accuracy upward; labels are placed next to their points without overlapping."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from edgemeter.collector.compare.trade_off import pareto_front
from edgemeter.collector.show import drawing
from edgemeter.collector.show.drawing import Axis, ChartFrame, amounts_axis, shares_axis
from edgemeter.collector.show.markup import Attributes, Markup, element
from edgemeter.collector.show.series_style import SeriesStyle, outline

# Wide enough for the larger letters of a phone.
CHARACTER_WIDTH = 6.8
HEIGHT = 13.0
DISTANCE = 9.0


@dataclass(frozen=True, slots=True)
class LabelPlace:
    """The position of a label: its base line and its anchor (start, middle, end)."""

    x: float
    y: float
    anchor: str


@dataclass(frozen=True, slots=True)
class _LabelBox:
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "_LabelBox") -> bool:
        return self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom


def label_places(points: Sequence[tuple[float, float]], texts: Sequence[str | None], frame: ChartFrame) -> list[LabelPlace | None]:
    """Return a place for each text beside its point, in the order of the texts; None where there is no text or no room."""
    taken = [_LabelBox(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    found: list[LabelPlace | None] = []
    for (x, y), text in zip(points, texts, strict=True):
        free = (one for one in _around(x, y, text or "") if _is_inside(one[1], frame) and not any(one[1].overlaps(box) for box in taken))
        place, box = next(free, (None, None)) if text else (None, None)
        found.append(place)
        if box is not None:
            taken.append(box)
    return found


def _around(x: float, y: float, text: str) -> Iterator[tuple[LabelPlace, _LabelBox]]:
    width = len(text) * CHARACTER_WIDTH
    for across, down in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1)):
        middle = y + down * HEIGHT
        start = {1: x + DISTANCE, -1: x - DISTANCE - width, 0: x - width / 2}[across]
        anchor = {1: "start", -1: "end", 0: "middle"}[across]
        text_x = {1: start, -1: start + width, 0: x}[across]
        yield LabelPlace(text_x, middle + 4, anchor), _LabelBox(start, middle - HEIGHT / 2, start + width, middle + HEIGHT / 2)


def _is_inside(box: _LabelBox, frame: ChartFrame) -> bool:
    return frame.left <= box.left and box.right <= frame.right and frame.top - 4 <= box.top and box.bottom <= frame.bottom


SCATTER_HEIGHT = 330.0
FRAME = ChartFrame(left=44, top=30, right=drawing.WIDTH - 12, bottom=SCATTER_HEIGHT - 46)
RADIUS = 5.5

# With more points than this only those that matter most carry their name.
ALL_LABELLED = 10


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """One case: what it costs, how accurate it is, and how it is drawn. `series` groups the points of one Pareto front."""

    cost: float
    accuracy: float
    series: str
    style: SeriesStyle
    name: str
    explanation: str
    link: str
    is_reference: bool
    is_hollow: bool
    is_suspect: bool
    is_ranked: bool = True
    # What a script may narrow the chart to: `data-...` attributes of the mark.
    facts: Attributes = field(default_factory=dict)


def scatter(points: Sequence[ScatterPoint], title: str, cost_title: str, accuracy_title: str) -> Markup:
    """Return the chart; each series' Pareto front is drawn as a line, and a reference as lines to compare with."""
    across = amounts_axis([point.cost for point in points], FRAME.left, FRAME.right)
    upward = shares_axis([point.accuracy for point in points], FRAME.bottom, FRAME.top)
    fronts = _fronts(points)
    parts = [*drawing.upward(FRAME, upward, accuracy_title), *drawing.across(FRAME, across, cost_title)]
    parts += [_guides(point, across, upward) for point in points if point.is_reference]
    parts += [_front_line([points[index] for index in indices], across, upward) for indices in fronts]
    parts += [_mark(point, across, upward) for point in points]
    parts += _names(points, {index for indices in fronts for index in indices}, across, upward)
    return drawing.sheet(SCATTER_HEIGHT, title, *parts)


def _fronts(points: Sequence[ScatterPoint]) -> list[list[int]]:
    fronts = []
    for series in dict.fromkeys(point.series for point in points if point.is_ranked and not point.is_reference):
        own = [index for index, point in enumerate(points) if point.series == series and point.is_ranked and not point.is_reference]
        fronts.append([own[index] for index in pareto_front([(points[one].cost, points[one].accuracy) for one in own])])
    return fronts


def _guides(point: ScatterPoint, across: Axis, upward: Axis) -> Markup:
    x, y = across.place(point.cost), upward.place(point.accuracy)
    lines = (drawing.line(x, FRAME.top, x, FRAME.bottom, "guide"), drawing.line(FRAME.left, y, FRAME.right, y, "guide"))
    return element("g", None, *lines)


def _front_line(points: Sequence[ScatterPoint], across: Axis, upward: Axis) -> Markup:
    """Return the steps of a front: at a given cost the best accuracy so far."""
    steps = [f"M{across.place(points[0].cost):.1f} {upward.place(points[0].accuracy):.1f}"]
    steps += [f"H{across.place(point.cost):.1f}V{upward.place(point.accuracy):.1f}" for point in points[1:]]
    return element("path", {"d": "".join(steps), "class": f"front {points[0].style.colour}", "data-series": points[0].series})


def _mark(point: ScatterPoint, across: Axis, upward: Axis) -> Markup:
    x, y = across.place(point.cost), upward.place(point.accuracy)
    drawn = outline(point.style.shape, x, y, RADIUS)
    names = ["mark", point.style.colour, *(["hollow"] if point.is_hollow else []), *(["suspect"] if point.is_suspect else [])]
    path = element("path", {"d": drawn, "class": " ".join(names)}, element("title", None, point.explanation))
    place: Attributes = {"data-series": point.series, "data-x": x, "data-y": y} if point.is_ranked and not point.is_reference else {}
    return element("a", {"href": point.link, **point.facts, **place}, path)


def _names(points: Sequence[ScatterPoint], on_front: set[int], across: Axis, upward: Axis) -> list[Markup]:
    """Return the names of the points: reference and front first, all where they are few."""
    important = [index for index, point in enumerate(points) if point.is_reference or index in on_front]
    rest = [index for index in range(len(points)) if index not in important]
    order = important + rest
    texts = [
        f"{points[index].name}{' ?' * points[index].is_suspect}" if index in important or len(points) <= ALL_LABELLED else None
        for index in order
    ]
    spots = [(across.place(points[index].cost), upward.place(points[index].accuracy)) for index in order]
    found = label_places(spots, texts, FRAME)
    return [
        element("g", points[index].facts, drawing.label(place.x, place.y, text, "name", place.anchor))
        for index, place, text in zip(order, found, texts, strict=True)
        if place and text
    ]
