"""The chart of what cases cost against how accurate they are, with both intervals.

Marks that would cover each other are drawn as one: with their number, one interval, and their names on demand. The page's script
(`recount` in `web/page.js`) does the same with the pixels that it has, again after each zoom.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from edgemeter.collector.charts import parts
from edgemeter.collector.charts.chart import WIDTH_PX, Spec, short, spread_ratio

HEIGHT_PX = 320
Row = Mapping[str, Any]
Place = tuple[float, float]
# The series of a mark that stands for several of them.
SEVERAL = "several series"
# Pixels: a mark with its outline, a number beside one, what keeps marks off the edges of an axis.
MARK_PX, COUNT_PX, PADDING_PX = (12, 12), (26, 13), 12
NAMED = 6
_OF_A_MARK = (
    "case", "series", "cost", "cost_low", "cost_high", "accuracy", "accuracy_low", "accuracy_high", "standing", "verdict", "label",
    "anchor", "boards",
)  # fmt: skip


def against_accuracy(
    cost_title: str,
    accuracy_title: str,
    styles: Sequence[parts.Style],
    rows: Sequence[Mapping[str, Any]],
) -> Spec:
    """Return cost against accuracy with both intervals: `rows` of `case`, `series`, `cost`.., `accuracy`.., `standing`, `verdict`, `label`.

    Rows that would cover each other are one mark (`merged`); the page merges them again after each zoom.
    """
    x = parts.amount("cost", cost_title, [row["cost"] for row in rows])
    y = parts.channel("accuracy", title=accuracy_title, scale={"zero": False, "padding": PADDING_PX})
    ends = "95%, of several cases from lowest to highest"
    tips = [
        parts.tip("case"), parts.tip("cost", cost_title, parts.NUMBER), parts.tip("cost_interval", ends),
        parts.tip("accuracy", accuracy_title, ".4~f"),
        parts.tip("accuracy_interval", ends), parts.tip("standing", "against the reference"), parts.tip("verdict"),
    ]  # fmt: skip
    legend = {**parts.LEGEND, "values": [style[0] for style in styles]}
    styles = [*styles, (SEVERAL, "var(--ink)", "circle")]
    colour = {**parts.colour(styles), "legend": legend}
    at = {"x": parts.channel("cost"), "y": parts.channel("accuracy")}
    across = parts.rule({"x": parts.channel("cost_low"), "x2": {"field": "cost_high"}, "y": at["y"], "color": colour}, "cost")
    upward = parts.rule({"x": at["x"], "y": parts.channel("accuracy_low"), "y2": {"field": "accuracy_high"}, "color": colour}, "accuracy")
    shape = parts.channel(
        "series", "nominal", legend=legend, scale={"domain": [style[0] for style in styles], "range": [style[2] for style in styles]}
    )
    dots = {
        "transform": [
            {"calculate": re.sub(r"datum\.(low|high)", rf"datum.{name}_\1", parts.INTERVAL), "as": f"{name}_interval"}
            for name in ("cost", "accuracy")
        ],
        "mark": {"type": "point", "size": 90, "strokeWidth": 1.6},
        "encoding": {"x": x, "y": y, **parts.painted(colour), "shape": shape, "fillOpacity": parts.HOLLOW, "tooltip": tips},
        "params": [parts.zoom(["x", "y"])],
    }  # fmt: skip
    names = {
        "transform": [{"calculate": "datum.label || ''", "as": "name"}],
        "mark": {"type": "text", "align": "left", "dx": 9, "dy": -1, "stroke": "var(--sheet)", "strokeWidth": 0},
        "encoding": {**at, "text": {"field": "name"}},
    }
    numbers = {
        "mark": {"type": "text", "dy": -14, "fontWeight": 600},
        "encoding": {**at, "text": {"field": "count"}, "color": colour, "tooltip": [parts.tip("case", "marks here")]},
    }
    marks = merged([{name: short(row[name]) for name in _OF_A_MARK if name in row} for row in rows], places(rows))
    of_marks = [
        *([across] if parts.has(rows, "cost_low") else []),
        *([upward] if parts.has(rows, "accuracy_low") else []),
        dots,
        *([names] if parts.has(marks, "label") else []),
        numbers,
    ]
    return {
        **parts.sized(HEIGHT_PX),
        "datasets": {"marks": marks},
        "params": [parts.HIDDEN],
        "layer": [{"data": {"name": "marks"}, **layer} for layer in of_marks],
    }


def places(rows: Sequence[Mapping[str, Any]]) -> Callable[[float, float], Place]:
    """Return where a drawing of `against_accuracy` has a cost and an accuracy, in pixels from the left and from below."""
    costs, accuracies = (
        [row[name] for row in rows for name in (of, f"{of}_low", f"{of}_high") if row[name] is not None] for of in ("cost", "accuracy")
    )
    is_log = spread_ratio(row["cost"] for row in rows) >= parts.LOG_FROM_RATIO
    across = axis(costs, WIDTH_PX, is_log=is_log, from_zero=True)
    upward = axis(accuracies, HEIGHT_PX, is_log=False, from_zero=False)
    return lambda cost, accuracy: (across(cost), upward(accuracy))


def merged(rows: Sequence[Row], position: Callable[[float, float], Place]) -> list[dict[str, Any]]:
    """Return the marks of `rows` of `case`, `series`, `cost`.., `accuracy`.., `standing`, `verdict`, `label`, none of which covers another.

    `position` returns where a cost and an accuracy are drawn, in pixels. A mark of one row is that row with an empty `count`. A mark of
    several is at their medians; its interval reaches from the lowest to the highest end of theirs.
    """
    groups = [[row] for row in rows]
    while True:
        clusters: list[tuple[Place, list[Row]]] = []
        for group in groups:
            at = position(median(row["cost"] for row in group), median(row["accuracy"] for row in group))
            other = next((members for centre, members in clusters if _cover(at, centre, len(group) > 1 < len(members))), None)
            if other is None:
                clusters.append((at, [*group]))
            else:
                other.extend(group)
        if len(clusters) == len(groups):
            return [_mark(group) for group in groups]
        groups = [group for _, group in clusters]


def axis(values: Sequence[float], reach_px: float, *, is_log: bool, from_zero: bool) -> Callable[[float], float]:
    """Return the pixel at which Vega draws an amount on an axis that holds `values`, with its padding and its rounded ends."""
    least = min((value for value in values if value > 0), default=1.0)
    to = (lambda value: math.log(max(value, least))) if is_log else float
    low, high = 0.0 if from_zero and not is_log else to(min(values)), to(max(values))
    if is_log or not from_zero:
        margin = (high - low) * PADDING_PX / (reach_px - 2 * PADDING_PX)
        low, high = low - margin, high + margin
    if not is_log:
        low, high = _rounded(low, high)
    return lambda value: reach_px * (to(value) - low) / ((high - low) or 1.0)


def _cover(first: Place, other: Place, have_numbers: bool) -> bool:  # noqa: FBT001 - of the two
    width, height = COUNT_PX if have_numbers else MARK_PX
    return abs(first[0] - other[0]) < max(width, MARK_PX[0]) and abs(first[1] - other[1]) < max(height, MARK_PX[1])


def _mark(group: Sequence[Row]) -> dict[str, Any]:
    first, boards = group[0], sum(row.get("boards", 1) for row in group)
    count = f"×{boards}" if boards > 1 else ""  # noqa: RUF001 - the sign of times
    if len(group) == 1:
        return {**first, "count": count}
    remainder = f" and {len(group) - NAMED} more" if len(group) > NAMED else ""
    series = {row["series"] for row in group}
    ends = {
        name: choose((row[name] for row in group if row[name] is not None), default=None)
        for name, choose in (("cost_low", min), ("cost_high", max), ("accuracy_low", min), ("accuracy_high", max))
    }
    return {
        **first, **ends, "count": count, "boards": boards,
        "case": f"{len(group)} cases: {'; '.join(str(row['case']) for row in group[:NAMED])}{remainder}",
        "series": first["series"] if len(series) == 1 else SEVERAL,
        "cost": median(row["cost"] for row in group), "accuracy": median(row["accuracy"] for row in group),
        "standing": _joined(group, "standing"), "verdict": _joined(group, "verdict"),
        "label": None,
    }  # fmt: skip


def _joined(group: Sequence[Row], name: str) -> str:
    return "; ".join(dict.fromkeys(str(row[name]) for row in group))


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a linear axis as d3's `nice` rounds them for ten ticks. Source: d3-scale, `linear.js`."""
    last = None
    for _ in range(10):
        if high <= low:
            break
        raw = (high - low) / 10
        power = 10.0 ** math.floor(math.log10(raw))
        step = power * next((by for by, least in ((10, 50**0.5), (5, 10**0.5), (2, 2**0.5)) if raw / power >= least), 1)
        if step == last:
            break
        low, high, last = math.floor(low / step) * step, math.ceil(high / step) * step, step
    return low, high
