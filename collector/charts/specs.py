"""The specifications of charts; that of a front is in `front`.

Rows carry the columns that their chart's function names; the page's script (`web/page.js`) follows `run` to a run and `anchor` to a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgemeter.collector.charts import parts
from edgemeter.collector.charts.chart import Spec


def over_time(
    unit: str,
    *,
    levels: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] = (),
    span_ns: tuple[float, ...],
    from_zero: bool = False,
    has_bars: bool,
) -> Spec:
    """Return values over days: rows of `started_at_ns`, `value`, `low`, `high`, `verdict`, `run`.

    `levels` are stretches of `start`, `end` (ms since 1970) and `value`; `events` marks across, of `at` (ms), `text`, `kind` and `number`.
    `span_ns` is what several charts have in common.
    """
    at = parts.when(padding=12)
    value = parts.channel("value", title=unit, scale={"zero": from_zero, "nice": True, "padding": 6})
    tips = [
        parts.tip("at", "started (UTC)", parts.DAY, "temporal"), parts.tip("value", unit, parts.NUMBER),
        *([parts.tip("interval")] if has_bars else []), parts.tip("verdict"), parts.tip("run"),
    ]  # fmt: skip
    dot = {
        "mark": {"type": "point", "filled": True, "size": 34, "stroke": "var(--s0)", "fill": "var(--s0)", "strokeWidth": 1.4},
        "encoding": {"x": at, "y": value, "fillOpacity": parts.HOLLOW, "tooltip": tips},
        "params": [parts.zoom(["x"], pans_with_shift=True), parts.brush()],
    }
    bar = {
        "mark": {"type": "rule", "stroke": "var(--s0)", "opacity": 0.5},
        "encoding": {"x": at, "y": parts.channel("low"), "y2": {"field": "high"}},
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
    }
    # Marks that are not seen hold the axis open.
    ends = {"data": {"values": [{"at": end / 1e6} for end in span_ns]}, "mark": {"type": "point", "opacity": 0}, "encoding": {"x": at}}
    stroke = {"x": {"field": "start", "type": "temporal"}, "x2": {"field": "end"}, "y": {"field": "value", "type": "quantitative"}}
    level = {"data": {"values": list(levels)}, "mark": {"type": "rule", "stroke": "var(--ink)", "opacity": 0.75}, "encoding": stroke}
    return {
        **parts.sized(190),
        "transform": [{"calculate": "datum.started_at_ns / 1e6", "as": "at"}, {"calculate": parts.INTERVAL, "as": "interval"}],
        "layer": [
            *([bar] if has_bars else []),
            dot,
            *([level] if levels else []),
            *(_events(events) if events else []),
            *([ends] if span_ns else []),
        ],
    }


def cumulative(unit: str, styles: Sequence[parts.Style], values: Iterable[float | None]) -> Spec:
    """Return the share of queries at most as slow, a step line for each case: rows of `series`, `value`, `share`."""
    tips = [parts.tip("series", "case"), parts.tip("value", unit, parts.NUMBER), parts.tip("share", "share of queries", ".1%")]
    dashes = [[1, 0] if index < 7 else [6, 3] if index < 14 else [2, 3] for index in range(len(styles))]
    return {
        **parts.sized(260),
        "params": [parts.HIDDEN],
        "transform": [{"filter": "indexof(hidden, datum.series) < 0"}],
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
        "encoding": {
            "x": parts.amount("value", unit, values, from_zero=False),
            "y": parts.channel("share", title="share of queries", axis={"format": "%"}, scale={"domain": [0, 1]}),
            "color": parts.colour(styles),
            "strokeDash": {**parts.SERIES, "scale": {"domain": [style[0] for style in styles], "range": dashes}, "legend": parts.LEGEND},
            "tooltip": tips,
        },
    }


def _events(events: Sequence[Mapping[str, Any]]) -> list[Spec]:
    kinds = {"domain": ["change", "step", "remark"], "range": ["var(--soft)", "var(--s1)", "var(--s2)"]}
    colour = {"field": "kind", "type": "nominal", "scale": kinds, "legend": None}
    x = {"field": "at", "type": "temporal"}
    tips = [parts.tip("at", "on", "%d %b %Y", "temporal"), parts.tip("kind"), parts.tip("text", "what")]
    dash = {"condition": {"test": "datum.kind === 'step'", "value": [1, 0]}, "value": [4, 3]}
    number = {"x": x, "y": {"value": -6}, "text": {"field": "number"}, "color": colour, "tooltip": tips}
    return [
        {
            "data": {"values": list(events)}, "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": x, "color": colour, "strokeDash": dash, "tooltip": tips},
        },
        {"data": {"values": list(events)}, "mark": {"type": "text", "fontWeight": 600}, "encoding": number},
    ]  # fmt: skip
