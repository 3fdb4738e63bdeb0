"""The scatter chart: one point per case, cost across, accuracy upward; up and to the left is better."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgemeter.collector.compare.pareto import front
from edgemeter.collector.show import drawing
from edgemeter.collector.show.axis import Axis, of_amounts, of_shares
from edgemeter.collector.show.drawing import Frame
from edgemeter.collector.show.label_places import places
from edgemeter.collector.show.looks import Look, outline
from edgemeter.collector.show.markup import Attributes, Markup, element

HEIGHT = 330.0
FRAME = Frame(left=44, top=30, right=drawing.WIDTH - 12, bottom=HEIGHT - 46)
RADIUS = 5.5
# With more points than this only those that matter most carry their name.
ALL_LABELLED = 10


@dataclass(frozen=True, slots=True)
class Point:
    """One case: what it costs, how accurate it is, and how it is drawn. `series` groups the points of one Pareto front."""

    cost: float
    accuracy: float
    series: str
    look: Look
    name: str
    tells: str
    link: str
    is_reference: bool
    is_hollow: bool
    is_suspect: bool
    is_ranked: bool = True
    # What a script may narrow the chart to: `data-...` attributes of the mark.
    facts: Attributes = field(default_factory=dict)


def scatter(points: Sequence[Point], title: str, cost_title: str, accuracy_title: str) -> Markup:
    """Return the chart; each series' Pareto front is drawn as a line, and a reference as lines to compare with."""
    across = of_amounts([point.cost for point in points], FRAME.left, FRAME.right)
    upward = of_shares([point.accuracy for point in points], FRAME.bottom, FRAME.top)
    fronts = _fronts(points)
    parts = [*drawing.upward(FRAME, upward, accuracy_title), *drawing.across(FRAME, across, cost_title)]
    parts += [_guides(point, across, upward) for point in points if point.is_reference]
    parts += [_front_line([points[index] for index in indices], across, upward) for indices in fronts]
    parts += [_mark(point, across, upward) for point in points]
    parts += _names(points, {index for indices in fronts for index in indices}, across, upward)
    return drawing.sheet(HEIGHT, title, *parts)


def _fronts(points: Sequence[Point]) -> list[list[int]]:
    fronts = []
    for series in dict.fromkeys(point.series for point in points if point.is_ranked and not point.is_reference):
        own = [index for index, point in enumerate(points) if point.series == series and point.is_ranked and not point.is_reference]
        fronts.append([own[index] for index in front([(points[one].cost, points[one].accuracy) for one in own])])
    return fronts


def _guides(point: Point, across: Axis, upward: Axis) -> Markup:
    x, y = across.place(point.cost), upward.place(point.accuracy)
    lines = (drawing.line(x, FRAME.top, x, FRAME.bottom, "guide"), drawing.line(FRAME.left, y, FRAME.right, y, "guide"))
    return element("g", None, *lines)


def _front_line(points: Sequence[Point], across: Axis, upward: Axis) -> Markup:
    """Return the steps of a front: at a given cost the best accuracy so far."""
    steps = [f"M{across.place(points[0].cost):.1f} {upward.place(points[0].accuracy):.1f}"]
    steps += [f"H{across.place(point.cost):.1f}V{upward.place(point.accuracy):.1f}" for point in points[1:]]
    return element("path", {"d": "".join(steps), "class": f"front {points[0].look.colour}", "data-series": points[0].series})


def _mark(point: Point, across: Axis, upward: Axis) -> Markup:
    x, y = across.place(point.cost), upward.place(point.accuracy)
    drawn = outline(point.look.shape, x, y, RADIUS)
    names = ["mark", point.look.colour, *(["hollow"] if point.is_hollow else []), *(["suspect"] if point.is_suspect else [])]
    path = element("path", {"d": drawn, "class": " ".join(names)}, element("title", None, point.tells))
    place: Attributes = {"data-series": point.series, "data-x": x, "data-y": y} if point.is_ranked and not point.is_reference else {}
    return element("a", {"href": point.link, **point.facts, **place}, path)


def _names(points: Sequence[Point], on_front: set[int], across: Axis, upward: Axis) -> list[Markup]:
    """Return the names of the points: reference and front first, all where they are few."""
    important = [index for index, point in enumerate(points) if point.is_reference or index in on_front]
    rest = [index for index in range(len(points)) if index not in important]
    order = important + rest
    texts = [_name(points[index]) if index in important or len(points) <= ALL_LABELLED else None for index in order]
    spots = [(across.place(points[index].cost), upward.place(points[index].accuracy)) for index in order]
    found = places(spots, texts, FRAME)
    return [
        element("g", points[index].facts, drawing.label(place.x, place.y, text, "name", place.anchor))
        for index, place, text in zip(order, found, texts, strict=True)
        if place and text
    ]


def _name(point: Point) -> str:
    return f"{point.name} ?" if point.is_suspect else point.name
