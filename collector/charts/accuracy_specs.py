"""The specifications of the charts that say why an accuracy is what it is: confusions, precision over recall, and reliability."""

from collections.abc import Sequence

from edgemeter.collector.charts import parts
from edgemeter.collector.charts.chart import Spec

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
