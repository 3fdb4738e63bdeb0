"""The chart of a front: what a case costs against how accurate it is, with both intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgemeter.collector.charts import overlap, parts
from edgemeter.collector.charts.chart import WIDTH_PX, Spec, short, spread_ratio

HEIGHT_PX = 320
_OF_A_MARK = (
    "case", "series", "cost", "cost_low", "cost_high", "accuracy", "accuracy_low", "accuracy_high", "standing", "verdict", "is_hollow",
    "label", "anchor",
)  # fmt: skip


def against_accuracy(
    cost_title: str,
    accuracy_title: str,
    styles: Sequence[parts.Style],
    rows: Sequence[Mapping[str, Any]],
    bands: Sequence[Mapping[str, Any]],
    fronts: Sequence[Mapping[str, Any]],
) -> Spec:
    """Return cost against accuracy with both intervals: `rows` of `case`, `series`, `cost`.., `accuracy`.., `standing`, `verdict`, `label`.

    Rows that would cover each other are one mark (`overlap`); the page merges them again after each zoom.
    `bands` (`series`, `cost`, `low`, `high`) shade where the front may lie, `fronts` (`series`, `cost`, `accuracy`) are their steps.
    """
    x = parts.amount("cost", cost_title, [row["cost"] for row in rows])
    y = {"field": "accuracy", "type": "quantitative", "title": accuracy_title, "scale": {"zero": False, "padding": overlap.PADDING_PX}}
    ends = "95%, of several cases from the lowest to the highest end"
    tips = [
        parts.tip("case"), parts.tip("cost", cost_title, parts.NUMBER), parts.tip("cost_interval", ends),
        parts.tip("accuracy", accuracy_title, ".4~f"),
        parts.tip("accuracy_interval", ends), parts.tip("standing", "status"), parts.tip("verdict"),
    ]  # fmt: skip
    legend = {**parts.LEGEND, "values": [one[0] for one in styles]}
    styles = [*styles, (overlap.SEVERAL, "var(--ink)", "circle")]
    colour = {**parts.colour(styles), "legend": legend}
    own_x, own_y = {"field": "cost", "type": "quantitative"}, {"field": "accuracy", "type": "quantitative"}
    apart = {"filter": "indexof(hidden, datum.series) < 0"}
    band = {
        "data": {"values": list(bands)}, "transform": [apart],
        "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.16},
        "encoding": {
            "x": own_x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, "color": colour,
            "detail": parts.by_series(),
        },
    }  # fmt: skip
    steps = {
        "data": {"values": list(fronts)}, "transform": [apart],
        "mark": {"type": "line", "interpolate": "step-after", "opacity": 0.6, "strokeWidth": 1.5},
        "encoding": {"x": own_x, "y": own_y, "color": colour, "detail": parts.by_series()},
    }  # fmt: skip
    across = parts.rule({"x": {"field": "cost_low", "type": "quantitative"}, "x2": {"field": "cost_high"}, "y": own_y, "color": colour})
    upward = parts.rule(
        {"x": own_x, "y": {"field": "accuracy_low", "type": "quantitative"}, "y2": {"field": "accuracy_high"}, "color": colour}
    )
    shape = {
        "field": "series", "type": "nominal", "legend": legend,
        "scale": {"domain": [one[0] for one in styles], "range": [one[2] for one in styles]},
    }  # fmt: skip
    dots = {
        "transform": _interval_texts("cost", "accuracy"),
        "mark": {"type": "point", "size": 90, "strokeWidth": 1.6},
        "encoding": {"x": x, "y": y, **parts.painted(colour), "shape": shape, "fillOpacity": parts.HOLLOW, "tooltip": tips},
        "params": [parts.zoom(["x", "y"])],
    }  # fmt: skip
    names = {
        "transform": [{"filter": "isValid(datum.label)"}],
        "mark": {"type": "text", "align": "left", "dx": 9, "dy": -1, "stroke": "var(--sheet)", "strokeWidth": 0},
        "encoding": {"x": own_x, "y": own_y, "text": {"field": "label"}},
    }
    numbers = {
        "mark": {"type": "text", "dy": -14, "fontWeight": 600},
        "encoding": {"x": own_x, "y": own_y, "text": {"field": "count"}, "color": colour, "tooltip": [parts.tip("case", "marks here")]},
    }
    marks = overlap.merged([{name: short(row[name]) for name in _OF_A_MARK if name in row} for row in rows], places(rows))
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
        "params": [parts.hidden()],
        "layer": [
            *([band] if bands else []),
            *([steps] if fronts else []),
            *({"data": {"name": "marks"}, **layer} for layer in of_marks),
        ],
    }


def places(rows: Sequence[Mapping[str, Any]]) -> Callable[[float, float], overlap.Place]:
    """Return where a drawing of `against_accuracy` has a cost and an accuracy, in pixels from the left and from below."""
    costs, accuracies = (
        [row[name] for row in rows for name in (of, f"{of}_low", f"{of}_high") if row[name] is not None] for of in ("cost", "accuracy")
    )
    is_log = spread_ratio(row["cost"] for row in rows) >= parts.LOG_FROM_RATIO
    across = overlap.axis(costs, WIDTH_PX, is_log=is_log, from_zero=True)
    upward = overlap.axis(accuracies, HEIGHT_PX, is_log=False, from_zero=False)
    return lambda cost, accuracy: (across(cost), upward(accuracy))


def _interval_texts(*names: str) -> list[Spec]:
    texts = {name: parts.INTERVAL.replace("datum.low", f"datum.{name}_low").replace("datum.high", f"datum.{name}_high") for name in names}
    return [{"calculate": text, "as": f"{name}_interval"} for name, text in texts.items()]
