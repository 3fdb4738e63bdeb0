"""The specifications of the charts of one run: its queries and its power on one axis of time."""

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


def over_the_run(first: tuple[str, str], second: tuple[str, str] | None, throttled_s: float | None, *, has_bars: bool) -> Spec:
    """Return one or two quantities (field, title) of a long run over its time: rows of `at_s`, `end_s` and the fields.

    The first, on the left, `has_bars` or is a line; across stands the beginning of throttling.
    """
    at = {"field": "at_s", "type": "quantitative", "title": "s since the first timed query", "scale": {"nice": False}}
    quantities = [first, *([second] if second else [])]
    tips = [parts.tip("at_s", "from, s", ",.0f"), *(parts.tip(field, title, parts.NUMBER) for field, title in quantities)]
    layers: list[Spec] = []
    for index, (field, title) in enumerate(quantities):
        colour = f"var(--s{index})"
        axis = {"titleColor": colour, **({"orient": "right", "grid": False, "titleX": 0, "titleAlign": "right"} if index else {})}
        is_bar = has_bars and not index
        ends = {"x2": {"field": "end_s"}, "y2": {"datum": 0}} if is_bar else {}
        look = {"type": "rect", "opacity": 0.6} if is_bar else {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5}
        value = parts.channel(field, title=title, axis=axis, scale={"zero": is_bar})
        layers.append({"mark": {**look, "color": colour}, "encoding": {"x": at, **ends, "y": value, "tooltip": tips}})
    layers[-1]["params"] = [parts.zoom(["x"])]
    if throttled_s is not None:
        mark = {"type": "rule", "strokeDash": [4, 3], "color": "var(--ink)"}
        tip = {"value": f"throttled from {throttled_s:,.0f} s on"}
        layers.append({"data": {"values": [{"at_s": throttled_s}]}, "mark": mark, "encoding": {"x": at, "tooltip": tip}})
    return {**parts.sized(150), "layer": layers, "resolve": {"scale": {"y": "independent"}}}
