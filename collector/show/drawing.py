"""Drawings: the sheet that every chart is drawn on, its grid and its axes. One unit is one pixel at the chart's own width."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.collector.show.axis import Axis
from edgemeter.collector.show.markup import Markup, element

# Narrow on purpose: on a phone the sheet shrinks little, so that 12 units of type stay readable.
WIDTH = 440.0
LINE_HEIGHT = 14.0


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of the sheet that data is drawn in."""

    left: float
    top: float
    right: float
    bottom: float


def sheet(height: float, title: str, *parts: str) -> Markup:
    """Return a drawing of `height`; `title` is what a screen reader says."""
    attributes = {"class": "drawing", "viewBox": f"0 0 {WIDTH:.0f} {height:.0f}", "role": "img", "aria-label": title}
    return element("svg", attributes, *parts)


def line(x1: float, y1: float, x2: float, y2: float, name: str) -> Markup:
    """Return a line of the style sheet's class `name`."""
    return element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": name})


def label(x: float, y: float, text: str, name: str, anchor: str = "start") -> Markup:
    """Return text at its base line; `anchor` is start, middle or end."""
    return element("text", {"x": x, "y": y, "class": name, "text-anchor": None if anchor == "start" else anchor}, text)


def across(frame: Frame, axis: Axis, title: str) -> list[Markup]:
    """Return the horizontal axis below `frame`: grid, ticks and title."""
    parts = [line(frame.left, frame.bottom, frame.right, frame.bottom, "axis")]
    for tick in _readable(axis):
        x = axis.place(tick)
        parts.append(line(x, frame.top, x, frame.bottom, "grid"))
        parts.append(label(x, frame.bottom + LINE_HEIGHT + 2, axis.label(tick), "tick", "middle"))
    parts.append(label((frame.left + frame.right) / 2, frame.bottom + 2.5 * LINE_HEIGHT, _titled(axis, title), "title", "middle"))
    return parts


def upward(frame: Frame, axis: Axis, title: str) -> list[Markup]:
    """Return the vertical axis left of `frame`: grid, ticks, and its title above."""
    parts = [label(2, frame.top - 9, _titled(axis, title), "title")]
    for tick in axis.ticks:
        y = axis.place(tick)
        parts.append(line(frame.left, y, frame.right, y, "grid"))
        parts.append(label(frame.left - 6, y + 4, axis.label(tick), "tick", "end"))
    return parts


def _titled(axis: Axis, title: str) -> str:
    return f"{title}, logarithmic" if axis.kind == "log" else title


def _readable(axis: Axis) -> Sequence[float]:
    """Return the ticks whose labels do not run into each other, from the first."""
    kept: list[float] = []
    free_from = -WIDTH
    for tick in axis.ticks:
        half = len(axis.label(tick)) * 3.6 + 4
        if axis.place(tick) - half >= free_from:
            kept.append(tick)
            free_from = axis.place(tick) + half
    return kept
