"""The sheet that every chart is drawn on, its grid, and its axes. One unit is one pixel at the chart's own width."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.collector.show.markup import Markup, element

# From this ratio of largest to smallest on, a linear axis presses the small values together.
LOG_FROM_RATIO = 12.0

# A log axis over less than this many decades needs more ticks than 1, 10, 100.
FEW_DECADES = 3.2
MARGIN_RATIO = 0.06

# Values outside cannot be a latency or an energy of an inference; they are drawn at the end of the axis and do not stretch it.
SMALLEST, LARGEST = 1e-6, 1e12


@dataclass(frozen=True, slots=True)
class Axis:
    """Values `low`..`high` laid out from `start` to `end`; `ticks` lie within them. Every number is finite and low < high."""

    kind: Literal["linear", "log"]
    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Return the position of `value`; a value outside is at the nearer end."""
        value = min(max(value, self.low), self.high)
        if self.kind == "log":
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def label(self, tick: float) -> str:
        """Return a tick as text, with as many decimals as its step needs."""
        if self.kind == "log":
            return f"{tick:,.{max(0, -math.floor(math.log10(tick)))}f}"
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else abs(tick) or 1.0
        return f"{tick:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def linear_axis(low: float, high: float, start: float, end: float, count: int = 5) -> Axis:
    """Return an axis over `low`..`high` with about `count` round ticks; equal ends are spread apart."""
    if high <= low:
        pad = abs(low) * 0.5 or 0.5
        low, high = low - pad, high + pad
    step = _round_step((high - low) / count)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis("linear", low, high, start, end, tuple(index * step for index in range(first, last + 1)))


def log_axis(low: float, high: float, start: float, end: float) -> Axis:
    """Return a logarithmic axis over `low`..`high`, both above 0."""
    if high <= low:
        low, high = low / 2, high * 2
    mantissas = (1.0, 2.0, 5.0) if math.log10(high / low) < FEW_DECADES else (1.0,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]
    return Axis("log", low, high, start, end, tuple(tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)))


def amounts_axis(values: Iterable[float], start: float, end: float) -> Axis:
    """Return an axis for amounts above 0 (milliseconds, millijoules): linear from 0, logarithmic where the range asks for it."""
    present = [value for value in values if SMALLEST <= value <= LARGEST]
    low, high = (min(present), max(present)) if present else (0.0, 1.0)
    if present and high / low >= LOG_FROM_RATIO:
        return log_axis(low / 1.25, high * 1.25, start, end)
    return linear_axis(0.0, high * (1 + MARGIN_RATIO), start, end)


def shares_axis(values: Iterable[float], start: float, end: float) -> Axis:
    """Return an axis for accuracies, within 0..1, with room around the values so that none sticks to the frame."""
    present = [value for value in values if 0 <= value <= 1]
    low, high = (min(present), max(present)) if present else (0.0, 1.0)
    room = max((high - low) * 0.15, 0.01)
    return linear_axis(max(0.0, low - room), min(1.0, high + room), start, end)


def _round_step(rough: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the nearest at or above `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))


# Narrow on purpose: on a phone the sheet shrinks little, so that 12 units of type stay readable.
WIDTH = 440.0
LINE_HEIGHT = 14.0


@dataclass(frozen=True, slots=True)
class ChartFrame:
    """The part of the sheet that data is drawn in."""

    left: float
    top: float
    right: float
    bottom: float


def sheet(height: float, title: str, *parts: str) -> Markup:
    """Return a drawing of `height`; `title` is for screen readers."""
    attributes = {"class": "drawing", "viewBox": f"0 0 {WIDTH:.0f} {height:.0f}", "role": "img", "aria-label": title}
    return element("svg", attributes, *parts)


def line(x1: float, y1: float, x2: float, y2: float, name: str) -> Markup:
    """Return a line of the style sheet's class `name`."""
    return element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": name})


def label(x: float, y: float, text: str, name: str, anchor: str = "start") -> Markup:
    """Return text at its base line; `anchor` is start, middle or end."""
    return element("text", {"x": x, "y": y, "class": name, "text-anchor": None if anchor == "start" else anchor}, text)


def across(frame: ChartFrame, axis: Axis, title: str) -> list[Markup]:
    """Return the horizontal axis below `frame`: grid, ticks and title."""
    parts = [line(frame.left, frame.bottom, frame.right, frame.bottom, "axis")]
    for tick in _readable(axis):
        x = axis.place(tick)
        parts.append(line(x, frame.top, x, frame.bottom, "grid"))
        parts.append(label(x, frame.bottom + LINE_HEIGHT + 2, axis.label(tick), "tick", "middle"))
    parts.append(label((frame.left + frame.right) / 2, frame.bottom + 2.5 * LINE_HEIGHT, _titled(axis, title), "title", "middle"))
    return parts


def upward(frame: ChartFrame, axis: Axis, title: str) -> list[Markup]:
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
