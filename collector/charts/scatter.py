"""The chart of the cases' cost against accuracy, with both intervals.

The page's script (`recount` in `web/page.js`) draws overlapping marks as one: with their number,
one interval, and their names on demand. A drawing without scripts has every mark.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from edgemeter.collector.charts import parts
from edgemeter.collector.charts.chart import Spec

HEIGHT_PX, PADDING_PX = 320, 12
SEVERAL = "several series"


def against_accuracy(
    cost_title: str,
    accuracy_title: str,
    styles: Sequence[parts.Style],
    rows: Sequence[Mapping[str, Any]],
) -> Spec:
    """Return the chart of cost against accuracy, both with intervals.

    `rows` have `case`, `series`, `cost`.., `accuracy`.., `standing`, `verdict`, `label`. A row for
    several `boards` has their number.
    """
    x = parts.amount("cost", cost_title, [row["cost"] for row in rows])
    y = parts.channel(
        "accuracy", title=accuracy_title, scale={"zero": False, "padding": PADDING_PX}
    )
    ends = "95%, of several cases from lowest to highest"
    tips = [
        parts.tip("case"), parts.tip("cost", cost_title, parts.NUMBER),
        parts.tip("cost_interval", ends),
        parts.tip("accuracy", accuracy_title, ".4~f"),
        parts.tip("accuracy_interval", ends), parts.tip("standing", "against the reference"),
        parts.tip("verdict"),
    ]  # fmt: skip
    names = [*(style[0] for style in styles), SEVERAL]
    colours, shapes = (
        [*(style[1] for style in styles), "var(--ink)"],
        [*(style[2] for style in styles), "circle"],
    )
    legend = {**parts.LEGEND, "values": names[:-1]}
    colour = parts.channel(
        "series", "nominal", legend=legend, scale={"domain": names, "range": colours}
    )
    shape = parts.channel(
        "series", "nominal", legend=legend, scale={"domain": names, "range": shapes}
    )
    at = {"x": parts.channel("cost"), "y": parts.channel("accuracy")}
    across = _interval(
        {
            "x": parts.channel("cost_low"),
            "x2": {"field": "cost_high"},
            "y": at["y"],
            "color": colour,
        },
        "cost",
    )
    upward = _interval(
        {
            "x": at["x"],
            "y": parts.channel("accuracy_low"),
            "y2": {"field": "accuracy_high"},
            "color": colour,
        },
        "accuracy",
    )
    dots = {
        "transform": [
            {
                "calculate": re.sub(r"datum\.(low|high)", rf"datum.{name}_\1", parts.INTERVAL),
                "as": f"{name}_interval",
            }
            for name in ("cost", "accuracy")
        ],
        "mark": {"type": "point", "size": 90, "strokeWidth": 1.6},
        "encoding": {
            "x": x,
            "y": y,
            "stroke": colour,
            "fill": colour,
            "shape": shape,
            "fillOpacity": parts.HOLLOW,
            "tooltip": tips,
        },
        "params": [parts.zoom(["x", "y"])],
    }
    labels = {
        "transform": [{"calculate": "datum.label || ''", "as": "name"}],
        "mark": {
            "type": "text",
            "align": "left",
            "dx": 9,
            "dy": -1,
            "stroke": "var(--sheet)",
            "strokeWidth": 0,
        },
        "encoding": {**at, "text": {"field": "name"}},
    }
    numbers = {
        "transform": [
            {"calculate": "datum.boards > 1 ? '\u00d7' + datum.boards : ''", "as": "count"}
        ],
        "mark": {"type": "text", "dy": -14, "fontWeight": 600},
        "encoding": {
            **at,
            "text": {"field": "count"},
            "color": colour,
            "tooltip": [parts.tip("case", "marks here")],
        },
    }

    def has(name: str) -> bool:
        # An empty layer has no scale.
        return any(row[name] is not None for row in rows)

    return {
        **parts.sized(HEIGHT_PX),
        "data": {"name": "marks"},
        "layer": [
            *([across] if has("cost_low") else []),
            *([upward] if has("accuracy_low") else []),
            dots,
            *([labels] if has("label") else []),
            numbers,
        ],
    }


def _interval(encoding: Spec, middle: str) -> Spec:
    """Return a layer of intervals.

    An unknown end is at the `middle`, so that the layer always has an extent.
    """
    return {
        "transform": [
            {"calculate": f"isValid(datum.{end}) ? datum.{end} : datum.{middle}", "as": end}
            for end in (f"{middle}_low", f"{middle}_high")
        ],
        "mark": {"type": "rule", "opacity": 0.55},
        "encoding": encoding,
    }
