"""The specifications of charts; cost against accuracy is in `scatter`.

Rows have the columns that the chart's function names; the page's script (`web/page.js`) follows
`run` to a run and `anchor` to a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgemeter.agent.base.nanoseconds import NS_PER_HOUR, NS_PER_MINUTE
from edgemeter.collector.charts import parts
from edgemeter.collector.charts.chart import Spec

_MOMENTS = {
    **dict.fromkeys(("milliseconds", "seconds"), "%H:%M:%S"),
    **dict.fromkeys(("minutes", "hours"), "%H:%M"),
    **dict.fromkeys(("day", "date", "week"), "%d %b"),
    **dict.fromkeys(("month", "quarter", "year"), "%d %b %Y"),
}  # fmt: skip


def over_time(
    unit: str,
    *,
    levels: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] = (),
    span_ns: tuple[float, float],
    from_zero: bool = False,
    has_bars: bool,
) -> Spec:
    """Return values over days: rows of `started_at_ns`, `value`, `low`, `high`, `verdict`, `run`.

    `levels` are stretches of `start`, `end` (ms since 1970) and `value`; `events` are vertical
    marks of `at` (ms), `text`, `kind` and `number`. `span_ns` is shared by several charts.
    """
    # A label near an end is placed inside, where half of it would stick out.
    at = {
        "field": "at",
        "type": "temporal",
        "scale": {"type": "utc", "padding": 12},
        "title": None,
        "axis": {"format": _MOMENTS, "labelFlush": 40},
    }
    value = parts.channel(
        "value", title=unit, scale={"zero": from_zero, "nice": True, "padding": 6}
    )
    tips = [
        parts.tip("at", "started (UTC)", parts.DAY, "temporal"),
        parts.tip("value", unit, parts.NUMBER),
        *([parts.tip("interval")] if has_bars else []), parts.tip("verdict"), parts.tip("run"),
    ]  # fmt: skip
    dot = {
        "mark": {
            "type": "point",
            "filled": True,
            "size": 34,
            "stroke": "var(--s0)",
            "fill": "var(--s0)",
            "strokeWidth": 1.4,
        },
        "encoding": {"x": at, "y": value, "fillOpacity": parts.HOLLOW, "tooltip": tips},
        "params": [
            parts.zoom(["x"], pans_with_shift=True),
            {
                "name": "brush",
                "select": {
                    "type": "interval",
                    "encodings": ["x"],
                    "on": "[pointerdown[!event.shiftKey], window:pointerup] > window:pointermove!",
                    "translate": False,
                    "zoom": False,
                },
            },
        ],
    }
    bar = {
        "mark": {"type": "rule", "stroke": "var(--s0)", "opacity": 0.5},
        "encoding": {"x": at, "y": parts.channel("low"), "y2": {"field": "high"}},
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
    }
    # Invisible marks keep the axis wide: a single time is in the middle of two hours.
    moments_ns = (
        (span_ns[0] - NS_PER_HOUR, span_ns[1] + NS_PER_HOUR)
        if span_ns[1] - span_ns[0] < NS_PER_MINUTE
        else span_ns
    )
    ends = {
        "data": {"values": [{"at": end / 1e6} for end in moments_ns]},
        "mark": {"type": "point", "opacity": 0},
        "encoding": {"x": at},
    }
    level = {
        "data": {"values": list(levels)},
        "mark": {"type": "rule", "stroke": "var(--ink)", "opacity": 0.75},
        "encoding": {
            "x": {"field": "start", "type": "temporal"},
            "x2": {"field": "end"},
            "y": {"field": "value", "type": "quantitative"},
        },
    }
    return {
        **parts.sized(190),
        "transform": [
            {"calculate": "datum.started_at_ns / 1e6", "as": "at"},
            {"calculate": parts.INTERVAL, "as": "interval"},
        ],
        "layer": [
            *([bar] if has_bars else []),
            dot,
            *([level] if levels else []),
            *(_events(events) if events else []),
            ends,
        ],
    }


def cumulative(unit: str, values: Iterable[float | None]) -> Spec:
    """Return the share of queries at most as slow, as a step line: rows of `value`, `share`."""
    return {
        **parts.sized(260),
        "mark": {
            "type": "line",
            "interpolate": "step-after",
            "strokeWidth": 1.8,
            "color": "var(--s0)",
        },
        "encoding": {
            "x": parts.amount("value", unit, values, from_zero=False),
            "y": parts.channel(
                "share", title="share of queries", axis={"format": "%"}, scale={"domain": [0, 1]}
            ),
            "tooltip": [
                parts.tip("value", unit, parts.NUMBER),
                parts.tip("share", "share of queries", ".1%"),
            ],
        },
    }


def _events(events: Sequence[Mapping[str, Any]]) -> list[Spec]:
    kinds = {
        "domain": ["change", "step", "remark"],
        "range": ["var(--soft)", "var(--s1)", "var(--s2)"],
    }
    colour = {"field": "kind", "type": "nominal", "scale": kinds, "legend": None}
    x = {"field": "at", "type": "temporal"}
    tips = [
        parts.tip("at", "on", "%d %b %Y", "temporal"),
        parts.tip("kind"),
        parts.tip("text", "what"),
    ]
    dash = {"condition": {"test": "datum.kind === 'step'", "value": [1, 0]}, "value": [4, 3]}
    # Inside the plot: zoomed marks are clipped at its edge.
    number = {
        "x": x,
        "y": {"value": 8},
        "text": {"field": "number"},
        "color": colour,
        "tooltip": tips,
    }
    label = {"type": "text", "fontWeight": 600, "align": "left", "dx": 4}
    return [
        {
            "data": {"values": list(events)}, "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": x, "color": colour, "strokeDash": dash, "tooltip": tips},
        },
        {"data": {"values": list(events)}, "mark": label, "encoding": number},
    ]  # fmt: skip


def run_time_line(
    sensors: Sequence[str],
    bands: Sequence[Mapping[str, Any]],
    latencies_ms: Iterable[float | None],
    across: str = "s since the first timed query",
) -> Spec:
    """Return the chart of one run on one axis, of time if times are known.

    Rows have `at_s`, `latency_ms`, `power_w`, `sensor` and `query`. `bands` (`start`, `end` in s,
    `name`, `text`) shade idle and warm-up, with the machine's conditions.
    """
    x = {
        "field": "at_s",
        "type": "quantitative",
        "title": across,
        "scale": {"zero": False, "nice": False, "padding": 6},
    }
    at, right = (
        parts.tip("at_s", "at, s", ",.3f"),
        {"orient": "right", "grid": False, "titleX": 0, "titleAlign": "right"},
    )
    sensor_scale = {
        "domain": list(sensors),
        "range": [f"var(--s{1 + index % 6})" for index in range(len(sensors))],
    }
    layers: list[Spec] = []
    if bands:
        stages, colours = (
            ["idle before", "warm-up", "timed", "idle after"],
            ["var(--p0)", "var(--s1)", "transparent", "var(--p0)"],
        )
        fill = parts.channel(
            "name", "nominal", scale={"domain": stages, "range": colours}, legend=None
        )
        layers.append(
            {
                "data": {"values": list(bands)},
                "mark": {"type": "rect", "opacity": 0.3},
                "encoding": {
                    "x": parts.channel("start"),
                    "x2": {"field": "end"},
                    "fill": fill,
                    "tooltip": [parts.tip("name"), parts.tip("text", "conditions")],
                },
            }
        )
    dots = {
        "transform": [{"filter": "isValid(datum.latency_ms)"}],
        "mark": {"type": "point", "filled": True, "size": 12, "opacity": 0.5, "color": "var(--s0)"},
        "encoding": {
            "x": x, "y": parts.amount("latency_ms", "latency, ms", latencies_ms, from_zero=False),
            "tooltip": [
                parts.tip("query", "query", ","), *([at] if bands else []),
                parts.tip("latency_ms", "latency, ms", parts.NUMBER),
            ],
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
                    "color": parts.channel(
                        "sensor", "nominal", scale=sensor_scale, legend=parts.LEGEND
                    ),
                    "tooltip": [
                        parts.tip("sensor"), at, parts.tip("power_w", "power, W", parts.NUMBER)
                    ],
                },
            }
        )  # fmt: skip
    return {**parts.sized(280), "layer": layers, "resolve": {"scale": {"y": "independent"}}}


def over_the_run(
    first: tuple[str, str],
    second: tuple[str, str] | None,
    throttled_s: float | None,
    *,
    has_bars: bool,
) -> Spec:
    """Return one or two quantities (field, title) of a long run over its time.

    Rows have `at_s`, `end_s` and the fields. The first, on the left, `has_bars` or is a line; a
    vertical line marks the beginning of throttling.
    """
    at = {
        "field": "at_s",
        "type": "quantitative",
        "title": "s since the first timed query",
        "scale": {"nice": False},
    }
    quantities = [first, *([second] if second else [])]
    tips = [
        parts.tip("at_s", "from, s", ",.0f"),
        *(parts.tip(field, title, parts.NUMBER) for field, title in quantities),
    ]
    layers: list[Spec] = []
    for index, (field, title) in enumerate(quantities):
        colour = f"var(--s{index})"
        axis = {
            "titleColor": colour,
            **(
                {"orient": "right", "grid": False, "titleX": 0, "titleAlign": "right"}
                if index
                else {}
            ),
        }
        is_bar = has_bars and not index
        ends = {"x2": {"field": "end_s"}, "y2": {"datum": 0}} if is_bar else {}
        look = (
            {"type": "rect", "opacity": 0.6}
            if is_bar
            else {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5}
        )
        value = parts.channel(field, title=title, axis=axis, scale={"zero": is_bar})
        layers.append(
            {
                "mark": {**look, "color": colour},
                "encoding": {"x": at, **ends, "y": value, "tooltip": tips},
            }
        )
    layers[-1]["params"] = [parts.zoom(["x"])]
    if throttled_s is not None:
        mark = {"type": "rule", "strokeDash": [4, 3], "color": "var(--ink)"}
        layers.append(
            {
                "data": {"values": [{"at_s": throttled_s}]},
                "mark": mark,
                "encoding": {
                    "x": at,
                    "tooltip": {"value": f"throttled from {throttled_s:,.0f} s on"},
                },
            }
        )
    return {**parts.sized(150), "layer": layers, "resolve": {"scale": {"y": "independent"}}}
