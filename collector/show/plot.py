"""A plot of one quantity over time or over the number of a query: points, lines, levels, marks across, shaded stretches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from edgemeter.collector.show import drawing
from edgemeter.collector.show.drawing import Axis, ChartFrame, linear_axis
from edgemeter.collector.show.markup import Attributes, Markup, element, number

HEIGHT = 210.0
FRAME = ChartFrame(left=50, top=30, right=drawing.WIDTH - 12, bottom=HEIGHT - 46)
NS_PER_S = 1_000_000_000
# Beyond this many a path of single dots is drawn, which links nowhere.
MOST_MARKS = 150
# Steps of the calendar, in days; the last ones stand for months.
DAY_STEPS = (1, 2, 7, 14, 30, 61, 91, 182, 365)
RADIUS = 3.0
# Runs at a single moment are drawn in the middle of this span.
SHORTEST_NS = 2 * 3600 * NS_PER_S


@dataclass(frozen=True, slots=True)
class PlotDot:
    """One value: where across, how much, its interval where it is known, and the run that it leads to."""

    at: float
    value: float
    low: float | None = None
    high: float | None = None
    explanation: str = ""
    link: str | None = None
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class PlotMark:
    """Something that happened: a change of the fingerprint, a step that was found, a remark. `kind` is its style."""

    at: float
    text: str
    kind: str = "change"


@dataclass(frozen=True, slots=True)
class PlotStretch:
    """A stretch across with a level, drawn as a line, or shaded where `level` is None."""

    start: float
    end: float
    level: float | None = None
    kind: str = "level"


def over_time(
    title: str,
    value_title: str,
    dots: Sequence[PlotDot],
    *,
    marks: Sequence[PlotMark] = (),
    levels: Sequence[PlotStretch] = (),
    span: tuple[float, float] | None = None,
    colour: str = "s0",
    zero: bool = False,
) -> Markup:
    """Return the chart over the calendar; `at` counts ns since 1970, `span` is what several charts have in common."""
    first, last = span or _ends([dot.at for dot in dots])
    if last - first < SHORTEST_NS:
        middle = (first + last) / 2
        first, last = middle - SHORTEST_NS / 2, middle + SHORTEST_NS / 2
    across = Axis("linear", first, last, FRAME.left, FRAME.right, ())
    ticks = [(across.place(at), text) for at, text in _days(first, last)]
    return _plot(
        title, value_title, across_title="", dots=dots, across=across, ticks=ticks, marks=marks, levels=levels, colour=colour, zero=zero,
        joined=False,
    )  # fmt: skip


def over_count(
    title: str,
    value_title: str,
    across_title: str,
    dots: Sequence[PlotDot],
    *,
    marks: Sequence[PlotMark] = (),
    levels: Sequence[PlotStretch] = (),
    colour: str = "s0",
    joined: bool = False,
) -> Markup:
    """Return the chart over a plain number: of a query, or of seconds."""
    first, last = _ends([dot.at for dot in dots])
    across = linear_axis(first, last, FRAME.left, FRAME.right)
    ticks = [(across.place(tick), across.label(tick)) for tick in across.ticks]
    return _plot(
        title, value_title, across_title=across_title, dots=dots, across=across, ticks=ticks, marks=marks, levels=levels, colour=colour,
        zero=False, joined=joined,
    )  # fmt: skip


def thinned(values: Sequence[float], most: int) -> list[tuple[int, float]]:
    """Return at most about `most` values with their places, of each stretch the smallest and the largest: no outlier is lost."""
    if len(values) <= most:
        return list(enumerate(values))
    step = math.ceil(2 * len(values) / most)
    kept: set[int] = set()
    for start in range(0, len(values), step):
        places = range(start, min(start + step, len(values)))
        kept |= {min(places, key=values.__getitem__), max(places, key=values.__getitem__)}
    return [(index, values[index]) for index in sorted(kept)]


def _plot(  # noqa: PLR0913 - the parts of one chart
    title: str,
    value_title: str,
    *,
    across_title: str,
    dots: Sequence[PlotDot],
    across: Axis,
    ticks: Sequence[tuple[float, str]],
    marks: Sequence[PlotMark],
    levels: Sequence[PlotStretch],
    colour: str,
    zero: bool,
    joined: bool,
) -> Markup:
    upward = _upward(dots, levels, zero=zero)
    parts = [*drawing.upward(FRAME, upward, value_title), drawing.line(FRAME.left, FRAME.bottom, FRAME.right, FRAME.bottom, "axis")]
    for x, text in ticks:
        parts.append(drawing.line(x, FRAME.bottom, x, FRAME.bottom + 4, "axis"))
        parts.append(drawing.label(x, FRAME.bottom + drawing.LINE_HEIGHT + 4, text, "tick", "middle"))
    if across_title:
        parts.append(
            drawing.label((FRAME.left + FRAME.right) / 2, FRAME.bottom + 2.6 * drawing.LINE_HEIGHT, across_title, "title", "middle")
        )
    parts += [_shade(stretch, across) for stretch in levels if stretch.level is None]
    parts += _marks(marks, across)
    if joined:
        path = "M" + "L".join(f"{across.place(dot.at):.1f} {upward.place(dot.value):.1f}" for dot in dots)
        parts.append(element("path", {"d": path, "class": f"wave {colour}"}))
    elif len(dots) > MOST_MARKS:
        bars = "".join(
            f"M{across.place(dot.at):.1f} {upward.place(dot.low):.1f}V{upward.place(dot.high):.1f}"
            for dot in dots
            if dot.low is not None and dot.high is not None
        )
        path = "".join(f"M{across.place(dot.at):.1f} {upward.place(dot.value):.1f}h0" for dot in dots)
        parts += [element("path", {"d": bars, "class": f"interval {colour}"})] if bars else []
        parts.append(element("path", {"d": path, "class": f"dots {colour}"}))
    else:
        parts += [_dot(dot, across, upward, colour) for dot in dots]
    parts += [_level(stretch, across, upward) for stretch in levels if stretch.level is not None]
    return drawing.sheet(HEIGHT, title, *parts)


def _upward(dots: Sequence[PlotDot], levels: Sequence[PlotStretch], *, zero: bool) -> Axis:
    values = [value for dot in dots for value in (dot.value, dot.low, dot.high) if value is not None]
    values += [stretch.level for stretch in levels if stretch.level is not None]
    low, high = _ends(values)
    room = (high - low) * 0.08
    return linear_axis(0.0 if zero else low - room, (high + room) or 1.0, FRAME.bottom, FRAME.top)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    present = [value for value in values if math.isfinite(value)]
    low, high = (min(present), max(present)) if present else (0.0, 1.0)
    if high <= low:
        pad = abs(low) * 0.02 or 0.5
        return low - pad, high + pad
    return low, high


def _days(first_ns: float, last_ns: float) -> list[tuple[float, str]]:
    """Return days in UTC with their names, as many as fit without overlapping."""
    start, end = (datetime.fromtimestamp(at / NS_PER_S, timezone.utc) for at in (first_ns, last_ns))
    days = max((end - start).total_seconds() / 86_400, 0.01)
    if days < 2:
        hours = max(1, math.ceil(days * 24 / 6))
        moment = start.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        found = [moment + timedelta(hours=hours * index) for index in range(8)]
        return [
            (at.timestamp() * NS_PER_S, f"{at:%d %b %H:%M}" if not index else f"{at:%H:%M}") for index, at in enumerate(found) if at <= end
        ]
    step = next((step for step in DAY_STEPS if days / step <= 6), DAY_STEPS[-1] * math.ceil(days / DAY_STEPS[-1] / 6))
    moment = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    found = [moment + timedelta(days=step * index) for index in range(8)]
    form = "%d %b" if step < DAY_STEPS[-2] else "%b %Y"
    return [(at.timestamp() * NS_PER_S, at.strftime(form)) for at in found if at <= end]


def _marks(marks: Sequence[PlotMark], across: Axis) -> list[Markup]:
    drawn = []
    for index, mark in enumerate(marks, start=1):
        x = across.place(mark.at)
        flag = drawing.label(x, FRAME.top - 3, str(index), f"flag {mark.kind}", "middle")
        drawn.append(
            element("g", None, element("title", None, mark.text), drawing.line(x, FRAME.top, x, FRAME.bottom, f"mark-{mark.kind}"), flag)
        )
    return drawn


def _shade(stretch: PlotStretch, across: Axis) -> Markup:
    left, right = across.place(stretch.start), across.place(stretch.end)
    box: Attributes = {
        "x": left,
        "y": FRAME.top,
        "width": right - left,
        "height": FRAME.bottom - FRAME.top,
        "class": f"shade-{stretch.kind}",
    }
    return element("rect", box)


def _level(stretch: PlotStretch, across: Axis, upward: Axis) -> Markup:
    y = upward.place(stretch.level or 0.0)
    return drawing.line(across.place(stretch.start), y, across.place(stretch.end), y, f"level {stretch.kind}")


def _dot(dot: PlotDot, across: Axis, upward: Axis, colour: str) -> Markup:
    x, y = across.place(dot.at), upward.place(dot.value)
    bar = []
    if dot.low is not None and dot.high is not None:
        bar = [drawing.line(x, upward.place(dot.low), x, upward.place(dot.high), f"interval {colour}")]
    style = f"mark {colour}{' hollow' if dot.is_suspect else ''}"
    radius = RADIUS
    circle = element(
        "path",
        {
            "d": f"M{number(x - radius)} {number(y)}a{radius} {radius} 0 1 0 {2 * radius} 0a{radius} {radius} 0 1 0 {-2 * radius} 0Z",
            "class": style,
        },
    )
    drawn = element("g", None, element("title", None, dot.explanation), *bar, circle)
    return element("a", {"href": dot.link, "tabindex": "-1"}, drawn) if dot.link else drawn
