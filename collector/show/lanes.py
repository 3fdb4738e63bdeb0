"""Lanes: one below the other, a lane per case, over one common axis: latencies of every query, or a bar of parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.collector.show import drawing
from edgemeter.collector.show.axis import Axis, linear, of_amounts
from edgemeter.collector.show.distribution import Distribution
from edgemeter.collector.show.drawing import Frame
from edgemeter.collector.show.looks import Look, outline
from edgemeter.collector.show.markup import Attributes, Markup, element

LANE = 48.0
TOP = 6.0
LEFT, RIGHT = 10.0, drawing.WIDTH - 12.0
# Inside a lane: the base line of its name, and the middle of what is drawn.
NAME, MIDDLE = 14.0, 31.0


@dataclass(frozen=True, slots=True)
class Lane:
    """What stands above a lane: its name, the figure at its right end, how its series looks, and where its name leads."""

    name: str
    figure: str
    look: Look
    link: str


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar; `step` 0..3 is its shade."""

    name: str
    amount: float
    step: int


def distributions(lanes: Sequence[Lane], found: Sequence[Distribution], title: str, axis_title: str) -> Markup:
    """Return the latencies of each lane: a dot per query, a box over the middle half, whiskers from 5 % to 95 %, a stroke per run."""
    frame = _frame(len(lanes))
    axis = of_amounts([value for one in found for value in (one.dots[0], one.dots[-1])], LEFT, RIGHT)
    parts = drawing.across(frame, axis, axis_title)
    for index, (lane, one) in enumerate(zip(lanes, found, strict=True)):
        top = TOP + index * LANE
        parts += [_heading(lane, top), _dots(one, lane.look, axis, top), _box(one, lane.look, axis, top)]
    return drawing.sheet(frame.bottom + 44, title, *parts)


def bars(lanes: Sequence[Lane], parts: Sequence[Sequence[Part]], title: str, axis_title: str) -> Markup:
    """Return a bar per lane, its parts one after the other from 0."""
    frame = _frame(len(lanes))
    longest = max((sum(part.amount for part in row) for row in parts), default=0.0)
    axis = linear(0.0, longest * 1.02 or 1.0, LEFT, RIGHT)
    drawn = drawing.across(frame, axis, axis_title)
    for index, (lane, row) in enumerate(zip(lanes, parts, strict=True)):
        top = TOP + index * LANE
        drawn += [_heading(lane, top), *_bar(row, axis, top)]
    return drawing.sheet(frame.bottom + 44, title, *drawn)


def _frame(count: int) -> Frame:
    return Frame(LEFT, TOP, RIGHT, TOP + count * LANE + 4)


def _heading(lane: Lane, top: float) -> Markup:
    mark = element("path", {"d": outline(lane.look.shape, LEFT + 5, top + NAME - 4, 4.2), "class": f"mark {lane.look.colour}"})
    name = drawing.label(LEFT + 17, top + NAME, lane.name, "name")
    figure = drawing.label(RIGHT, top + NAME, lane.figure, "figure", "end")
    return element("a", {"href": lane.link}, mark, name, figure)


def _dots(found: Distribution, look: Look, axis: Axis, top: float) -> Markup:
    # The golden ratio scatters the dots evenly over the lane's height, and the same on every drawing.
    heights = ((index * 0.618034) % 1.0 for index in range(len(found.dots)))
    path = "".join(
        f"M{axis.place(dot):.1f} {top + MIDDLE - 9 + 18 * height:.1f}h0" for dot, height in zip(found.dots, heights, strict=True)
    )
    return element("path", {"d": path, "class": f"dots {look.colour}"})


def _box(found: Distribution, look: Look, axis: Axis, top: float) -> Markup:
    middle = top + MIDDLE
    low, quarter, half, three_quarters, high = (axis.place(value) for value in found.quantiles)
    box: Attributes = {"x": quarter, "y": middle - 7, "width": three_quarters - quarter, "height": 14.0, "class": f"box {look.colour}"}
    return element(
        "g",
        None,
        drawing.line(low, middle, quarter, middle, f"whisker {look.colour}"),
        drawing.line(three_quarters, middle, high, middle, f"whisker {look.colour}"),
        element("rect", box),
        drawing.line(half, middle - 8, half, middle + 8, f"median {look.colour}"),
        *(drawing.line(axis.place(run), middle + 10, axis.place(run), middle + 15, "run") for run in found.run_medians),
    )


def _bar(row: Sequence[Part], axis: Axis, top: float) -> list[Markup]:
    drawn: list[Markup] = []
    start = 0.0
    for part in row:
        left, right = axis.place(start), axis.place(start + part.amount)
        box: Attributes = {
            "x": left,
            "y": top + MIDDLE - 8,
            "width": max(right - left, 0.6),
            "height": 15.0,
            "class": f"part step{part.step}",
        }
        drawn.append(element("rect", box, element("title", None, part.name)))
        start += part.amount
    return drawn
