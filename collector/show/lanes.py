"""Lanes: one below the other, a lane per case, over one common axis: latencies of every query, or a bar of parts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.samples import unpack
from edgemeter.collector.show import drawing
from edgemeter.collector.show.drawing import Axis, ChartFrame, amounts_axis, linear_axis
from edgemeter.collector.show.markup import Attributes, Markup, element
from edgemeter.collector.show.series_style import SeriesStyle, outline

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MS_PER_NS = 1e-6


@dataclass(frozen=True, slots=True)
class LatencyDistribution:
    """Latencies in ms: the quantiles 5, 25, 50, 75, 95 % over all queries of all runs, the median of each run, and dots to draw.

    `dots` are sorted; where there are more queries than dots, they are at even ranks, the fastest and the slowest among them.
    """

    count: int
    quantiles: tuple[float, float, float, float, float]
    run_medians: tuple[float, ...]
    dots: tuple[float, ...]


def latency_distribution(runs: Sequence[RunRecord], dots: int) -> LatencyDistribution | None:
    """Return the distribution of the inference latencies of `runs`, None where no run kept its samples (or they are damaged)."""
    series = [values for run in runs if (values := _latencies_ms(run)) is not None]
    if not series:
        return None
    every = np.sort(np.concatenate(series))
    low, quarter, half, three_quarters, high = (float(value) for value in np.quantile(every, QUANTILES))
    ranks = np.unique(np.linspace(0, every.size - 1, min(dots, every.size)).round().astype(np.int64))
    return LatencyDistribution(
        count=int(every.size),
        quantiles=(low, quarter, half, three_quarters, high),
        run_medians=tuple(float(np.median(values)) for values in series),
        dots=tuple(float(value) for value in every[ranks]),
    )


def _latencies_ms(run: RunRecord) -> NDArray[np.float64] | None:
    found = next((series for series in run.samples if series.name == "latency" and series.unit == "ns"), None)
    if found is None:
        return None
    try:
        values = unpack(found).astype(np.float64) * MS_PER_NS
    except ConfigError:
        return None
    present: NDArray[np.float64] = values[np.isfinite(values) & (values > 0)]
    return present if present.size else None


LANE = 48.0
TOP = 6.0
LEFT, RIGHT = 10.0, drawing.WIDTH - 12.0

# Inside a lane: the base line of its name, and the middle of what is drawn.
NAME, MIDDLE = 14.0, 31.0


@dataclass(frozen=True, slots=True)
class Lane:
    """The heading of a lane: its name, the figure at its right end, the style of its series, and the link of its name."""

    name: str
    figure: str
    style: SeriesStyle
    link: str


@dataclass(frozen=True, slots=True)
class BarPart:
    """One part of a bar; `step` 0..3 is its shade."""

    name: str
    amount: float
    step: int


def distribution_lanes(lanes: Sequence[Lane], found: Sequence[LatencyDistribution], title: str, axis_title: str) -> Markup:
    """Return the latencies of each lane: a dot per query, a box over the middle half, whiskers from 5 % to 95 %, a stroke per run."""
    frame = _frame(len(lanes))
    axis = amounts_axis([value for one in found for value in (one.dots[0], one.dots[-1])], LEFT, RIGHT)
    parts = drawing.across(frame, axis, axis_title)
    for index, (lane, one) in enumerate(zip(lanes, found, strict=True)):
        top = TOP + index * LANE
        parts += [_heading(lane, top), _dots(one, lane.style, axis, top), _box(one, lane.style, axis, top)]
    return drawing.sheet(frame.bottom + 44, title, *parts)


def bar_lanes(lanes: Sequence[Lane], parts: Sequence[Sequence[BarPart]], title: str, axis_title: str) -> Markup:
    """Return a bar per lane, its parts one after the other from 0."""
    frame = _frame(len(lanes))
    longest = max((sum(part.amount for part in row) for row in parts), default=0.0)
    axis = linear_axis(0.0, longest * 1.02 or 1.0, LEFT, RIGHT)
    drawn = drawing.across(frame, axis, axis_title)
    for index, (lane, row) in enumerate(zip(lanes, parts, strict=True)):
        top = TOP + index * LANE
        drawn += [_heading(lane, top), *_bar(row, axis, top)]
    return drawing.sheet(frame.bottom + 44, title, *drawn)


def _frame(count: int) -> ChartFrame:
    return ChartFrame(LEFT, TOP, RIGHT, TOP + count * LANE + 4)


def _heading(lane: Lane, top: float) -> Markup:
    mark = element("path", {"d": outline(lane.style.shape, LEFT + 5, top + NAME - 4, 4.2), "class": f"mark {lane.style.colour}"})
    name = drawing.label(LEFT + 17, top + NAME, lane.name, "name")
    figure = drawing.label(RIGHT, top + NAME, lane.figure, "figure", "end")
    return element("a", {"href": lane.link}, mark, name, figure)


def _dots(found: LatencyDistribution, style: SeriesStyle, axis: Axis, top: float) -> Markup:
    # The golden ratio scatters the dots evenly over the lane's height, and the same on every drawing.
    heights = ((index * 0.618034) % 1.0 for index in range(len(found.dots)))
    path = "".join(
        f"M{axis.place(dot):.1f} {top + MIDDLE - 9 + 18 * height:.1f}h0" for dot, height in zip(found.dots, heights, strict=True)
    )
    return element("path", {"d": path, "class": f"dots {style.colour}"})


def _box(found: LatencyDistribution, style: SeriesStyle, axis: Axis, top: float) -> Markup:
    middle = top + MIDDLE
    low, quarter, half, three_quarters, high = (axis.place(value) for value in found.quantiles)
    box: Attributes = {"x": quarter, "y": middle - 7, "width": three_quarters - quarter, "height": 14.0, "class": f"box {style.colour}"}
    return element(
        "g",
        None,
        drawing.line(low, middle, quarter, middle, f"whisker {style.colour}"),
        drawing.line(three_quarters, middle, high, middle, f"whisker {style.colour}"),
        element("rect", box),
        drawing.line(half, middle - 8, half, middle + 8, f"median {style.colour}"),
        *(drawing.line(axis.place(run), middle + 10, axis.place(run), middle + 15, "run") for run in found.run_medians),
    )


def _bar(row: Sequence[BarPart], axis: Axis, top: float) -> list[Markup]:
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
