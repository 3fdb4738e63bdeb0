"""The chart of what cases cost against how accurate they are, with both intervals.

The page's script (`recount` in `web/page.js`) draws marks that would cover each other as one: with their number, one interval, and their
names on demand. A drawing without scripts has every mark.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from edgemeter.collector.charts import parts
from edgemeter.collector.charts.chart import Spec, short

HEIGHT_PX, PADDING_PX = 320, 12
# The series of a mark that stands for several of them.
SEVERAL = "several series"
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

    A row of several `boards` has their number.
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
        "encoding": {"x": x, "y": y, "stroke": colour, "fill": colour, "shape": shape, "fillOpacity": parts.HOLLOW, "tooltip": tips},
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
    marks = [
        {name: short(row[name]) for name in _OF_A_MARK if name in row} | {"count": f"×{row['boards']}" if row.get("boards", 1) > 1 else ""}  # noqa: RUF001 - the sign of times
        for row in rows
    ]
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
