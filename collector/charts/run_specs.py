"""The specifications of the charts of one run, or of two: queries and power on one axis of time, and why an accuracy is what it is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgemeter.collector.charts import parts
from edgemeter.collector.charts.chart import Spec


def run_time_line(
    sensors: Sequence[str],
    bands: Sequence[Mapping[str, Any]],
    latencies_ms: Iterable[float | None],
    across: str = "s since the first timed query",
) -> Spec:
    """Return one run on one axis, of time where moments are known: rows of `at_s`, `latency_ms`, `power_w`, `sensor`, `query`.

    `bands` (`start`, `end` in s, `name`, `text`) shade idle and warm-up, with the machine's conditions then.
    """
    x = {"field": "at_s", "type": "quantitative", "title": across, "scale": {"zero": False, "nice": False}}
    at, right = parts.tip("at_s", "at, s", ",.3f"), {"orient": "right", "grid": False, "titleX": 0, "titleAlign": "right"}
    sensor_scale = {"domain": list(sensors), "range": [f"var(--s{1 + index % 6})" for index in range(len(sensors))]}
    layers: list[Spec] = []
    if bands:
        stages, colours = ["idle before", "warm-up", "timed", "idle after"], ["var(--p0)", "var(--s1)", "transparent", "var(--p0)"]
        fill = parts.channel("name", "nominal", scale={"domain": stages, "range": colours}, legend=None)
        tips = [parts.tip("name"), parts.tip("text", "conditions")]
        encoding = {"x": parts.channel("start"), "x2": {"field": "end"}, "fill": fill, "tooltip": tips}
        layers.append({"data": {"values": list(bands)}, "mark": {"type": "rect", "opacity": 0.3}, "encoding": encoding})
    dots = {
        "transform": [{"filter": "isValid(datum.latency_ms)"}],
        "mark": {"type": "point", "filled": True, "size": 12, "opacity": 0.5, "color": "var(--s0)"},
        "encoding": {
            "x": x, "y": parts.amount("latency_ms", "latency, ms", latencies_ms, from_zero=False),
            "tooltip": [parts.tip("query", "query", ","), *([at] if bands else []), parts.tip("latency_ms", "latency, ms", parts.NUMBER)],
        },
        "params": [parts.zoom(["x"])],
    }  # fmt: skip
    layers.append(dots)
    if sensors:
        layers.append(
            {
                "transform": [{"filter": "isValid(datum.power_w)"}],
                "mark": {"type": "line", "strokeWidth": 1.3},
                "encoding": {
                    "x": x, "y": parts.channel("power_w", title="power, W", axis=right),
                    "color": parts.channel("sensor", "nominal", scale=sensor_scale, legend=parts.LEGEND),
                    "tooltip": [parts.tip("sensor"), at, parts.tip("power_w", "power, W", parts.NUMBER)],
                },
            }
        )  # fmt: skip
    return {**parts.sized(280), "layer": layers, "resolve": {"scale": {"y": "independent"}}}


def power_curves(styles: Sequence[parts.Style]) -> Spec:
    """Return the power of several runs from the start of the timed part: rows of `series`, `at_s`, `power_w`."""
    dashes = [[1, 0] if paint not in [other[1] for other in styles[:index]] else [5, 3] for index, (_, paint, _) in enumerate(styles)]
    at = parts.channel("at_s", title="s since the first timed query", scale={"zero": False, "nice": False})
    tips = [parts.tip("series", "run"), parts.tip("at_s", "at, s", ",.3f"), parts.tip("power_w", "power, W", parts.NUMBER)]
    curves = {
        "mark": {"type": "line", "strokeWidth": 1.4},
        "encoding": {
            "x": at, "y": parts.channel("power_w", title="power, W", scale={"zero": False}), "color": parts.colour(styles),
            "strokeDash": {**parts.SERIES, "scale": {"domain": [style[0] for style in styles], "range": dashes}, "legend": None},
            "tooltip": tips,
        },
        "params": [parts.zoom(["x"])],
    }  # fmt: skip
    start = {"data": {"values": [{"at_s": 0}]}, "mark": {"type": "rule", "color": "var(--soft)"}, "encoding": {"x": at}}
    visible = {**curves, "transform": [{"filter": "indexof(hidden, datum.series) < 0"}]}
    return {**parts.sized(260), "params": [parts.HIDDEN], "layer": [visible, start]}


_RATIO = {"domain": [0, 1], "nice": False}
_PERCENT = {"format": "%"}


def confusion_matrix(lanes: Sequence[str], columns: Sequence[str], *, has_below: bool) -> Spec:
    """Return annotated by predicted classes in their order: rows of `truth`, `predicted`, `value` (its shade), `text`, `below`."""
    text = {"mark": {"type": "text", "dy": -5 if has_below else 0, "fontWeight": 600, "fontSize": 12}}
    below = {"mark": {"type": "text", "dy": 8, "fontSize": 9.5}}
    top = {"labelAngle": -30, "orient": "top", "labelLimit": 130, "labelOverlap": False, **parts.BARE}
    axes: Spec = {
        "x": parts.channel("predicted", "nominal", title=None, sort=list(columns), axis=top),
        "y": parts.channel("truth", "nominal", title=None, sort=list(lanes), axis={**parts.BARE, "labelLimit": 150}),
        "tooltip": [parts.tip("truth"), parts.tip("predicted"), parts.tip("text", "count"), parts.tip("below", "before")],
    }
    shade = parts.channel("value", scale={"type": "sqrt", "range": [0.0, 0.62], "domainMin": 0}, legend=None)
    return {
        "width": "container", "height": 32 * len(lanes),
        "layer": [
            {
                "mark": {"type": "rect", "fill": "var(--s1)", "stroke": "var(--line)", "strokeWidth": 1},
                "encoding": {**axes, "fillOpacity": shade},
            },
            {**text, "encoding": {**axes, "text": {"field": "text"}}},
            *([{**below, "encoding": {**axes, "text": {"field": "below"}}}] if has_below else []),
        ],
    }  # fmt: skip


def precision_recall(styles: Sequence[parts.Style]) -> Spec:
    """Return precision over recall, a line for each run: rows of `series`, `recall`, `precision`."""
    tips = [parts.tip("series", "run"), *(parts.tip(name, form=".1%") for name in ("recall", "precision"))]
    return _curves(styles, {
        "mark": {"type": "line", "strokeWidth": 1.8},
        "encoding": {
            "x": parts.channel("recall", title="recall", scale=_RATIO, axis=_PERCENT),
            "y": parts.channel("precision", title="precision", scale=_RATIO, axis=_PERCENT),
            "order": {"field": "recall", "type": "quantitative"}, "tooltip": tips,
        },
    })  # fmt: skip


def reliability(styles: Sequence[parts.Style]) -> Spec:
    """Return the share that is right over the score it was given: rows of `series`, `score`, `right`, `count`; the diagonal is exact."""
    tips = [
        parts.tip("series", "run"),
        parts.tip("score", "mean score", ".3f"),
        parts.tip("right", form=".1%"),
        parts.tip("count", form=","),
    ]
    curves = _curves(styles, {
        "mark": {"type": "line", "strokeWidth": 1.4, "point": False},
        "encoding": {
            "x": parts.channel("score", title="score", scale=_RATIO),
            "y": parts.channel("right", title="share that is right", scale=_RATIO, axis=_PERCENT), "tooltip": tips,
        },
    })  # fmt: skip
    line, encoding = curves["layer"][0], curves["layer"][0]["encoding"]
    size = parts.channel("count", scale={"range": [12, 340], "domainMin": 0}, legend=None)
    dots = {**line, "mark": {"type": "circle", "opacity": 0.8}, "encoding": {**encoding, "size": size}}
    ends = [{"score": end, "right": end} for end in (0, 1)]
    axes = {name: encoding[name] for name in ("x", "y")}
    exact = {"data": {"values": ends}, "mark": {"type": "line", "color": "var(--soft)", "strokeDash": [3, 3]}, "encoding": axes}
    return {**curves, "layer": [exact, line, dots]}


def _curves(styles: Sequence[parts.Style], unit: Spec) -> Spec:
    encoding = {**unit["encoding"], "color": parts.colour(styles)}
    layer = {**unit, "encoding": encoding, "transform": [{"filter": "indexof(hidden, datum.series) < 0"}]}
    return {**parts.sized(280), "params": [parts.HIDDEN], "layer": [layer]}
