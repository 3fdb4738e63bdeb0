"""The specifications of all charts, made of a few parts: amounts on an axis, intervals, tooltips, zoom, legend, brush.

Rows carry the columns that their chart's function names; the page's script (`web/page.js`) follows `run` to a run and `anchor` to a row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from edgemeter.collector.charts import overlap
from edgemeter.collector.charts.chart import WIDTH_PX, Spec, short, spread_ratio

# From this ratio of largest to smallest on, a linear axis presses the small values together.
LOG_FROM_RATIO = 12.0
FRONT_HEIGHT_PX = 320
NUMBER = ",.4~r"
DAY = "%d %b %Y, %H:%M"
# What one mark in a run's chart may be: as many as can be told apart, without the page growing.
HOLLOW = {"condition": {"test": "datum.verdict === 'suspect' || datum.is_hollow === true", "value": 0.0}, "value": 0.85}
_INTERVAL = "isValid(datum.low) && isValid(datum.high) ? format(datum.low, ',.4~r') + ' to ' + format(datum.high, ',.4~r') : 'no interval'"
Style = tuple[str, str, str]


def over_time(
    unit: str,
    *,
    levels: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] = (),
    span_ns: tuple[float, ...] = (),
    from_zero: bool = False,
    has_bars: bool = True,
) -> Spec:
    """Return values over days: rows of `started_at_ns`, `value`, `low`, `high`, `verdict`, `run`.

    `levels` are stretches of `start`, `end` (ms since 1970) and `value`; `events` marks across, of `at` (ms), `text`, `kind` and `number`.
    `span_ns` is what several charts have in common.
    """
    at = _when(padding=12)
    value = _value(unit, from_zero=from_zero)
    tips = [_tip("at", "started (UTC)", DAY, "temporal"), _tip("value", unit, NUMBER), _tip("interval"), _tip("verdict"), _tip("run")]
    dot = {
        "mark": {"type": "point", "filled": True, "size": 34, "stroke": "var(--s0)", "fill": "var(--s0)", "strokeWidth": 1.4},
        "encoding": {"x": at, "y": value, "fillOpacity": HOLLOW, "tooltip": tips},
        "params": [_zoom(["x"], pans_with_shift=True), _brush()],
    }
    bar = {
        "mark": {"type": "rule", "stroke": "var(--s0)", "opacity": 0.5},
        "encoding": {"x": at, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
    }
    # Marks that are not seen hold the axis open.
    ends = {"data": {"values": [{"at": end / 1e6} for end in span_ns]}, "mark": {"type": "point", "opacity": 0}, "encoding": {"x": at}}
    stroke = {"x": {"field": "start", "type": "temporal"}, "x2": {"field": "end"}, "y": {"field": "value", "type": "quantitative"}}
    level = {"data": {"values": list(levels)}, "mark": {"type": "rule", "stroke": "var(--ink)", "opacity": 0.75}, "encoding": stroke}
    return {
        **_sized(190),
        "transform": [{"calculate": "datum.started_at_ns / 1e6", "as": "at"}, {"calculate": _INTERVAL, "as": "interval"}],
        "layer": [
            *([bar] if has_bars else []),
            dot,
            *([level] if levels else []),
            *(_events(events) if events else []),
            *([ends] if span_ns else []),
        ],
    }


def against_accuracy(
    cost_title: str,
    accuracy_title: str,
    styles: Sequence[Style],
    rows: Sequence[Mapping[str, Any]],
    bands: Sequence[Mapping[str, Any]],
    fronts: Sequence[Mapping[str, Any]],
) -> Spec:
    """Return cost against accuracy with both intervals: `rows` of `case`, `series`, `cost`.., `accuracy`.., `standing`, `verdict`, `label`.

    Rows that would cover each other are one mark (`overlap`); the page merges them again after each zoom.
    `bands` (`series`, `cost`, `low`, `high`) shade where the front may lie, `fronts` (`series`, `cost`, `accuracy`) are their steps.
    """
    x = _amount("cost", cost_title, [row["cost"] for row in rows])
    y = {"field": "accuracy", "type": "quantitative", "title": accuracy_title, "scale": {"zero": False, "padding": overlap.PADDING_PX}}
    ends = "95%, of several cases from the lowest to the highest end"
    tips = [
        _tip("case"), _tip("cost", cost_title, NUMBER), _tip("cost_interval", ends), _tip("accuracy", accuracy_title, ".4~f"),
        _tip("accuracy_interval", ends), _tip("standing"), _tip("verdict"),
    ]  # fmt: skip
    legend = {**_LEGEND, "values": [one[0] for one in styles]}
    styles = [*styles, (overlap.SEVERAL, "var(--ink)", "circle")]
    colour = {**_colour(styles), "legend": legend}
    own_x, own_y = {"field": "cost", "type": "quantitative"}, {"field": "accuracy", "type": "quantitative"}
    apart = {"filter": "indexof(hidden, datum.series) < 0"}
    band = {
        "data": {"values": list(bands)}, "transform": [apart],
        "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.16},
        "encoding": {
            "x": own_x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, "color": colour, "detail": _by_series(),
        },
    }  # fmt: skip
    steps = {
        "data": {"values": list(fronts)}, "transform": [apart],
        "mark": {"type": "line", "interpolate": "step-after", "opacity": 0.6, "strokeWidth": 1.5},
        "encoding": {"x": own_x, "y": own_y, "color": colour, "detail": _by_series()},
    }  # fmt: skip
    across = _rule({"x": {"field": "cost_low", "type": "quantitative"}, "x2": {"field": "cost_high"}, "y": own_y, "color": colour})
    upward = _rule({"x": own_x, "y": {"field": "accuracy_low", "type": "quantitative"}, "y2": {"field": "accuracy_high"}, "color": colour})
    shape = {
        "field": "series", "type": "nominal", "legend": legend,
        "scale": {"domain": [one[0] for one in styles], "range": [one[2] for one in styles]},
    }  # fmt: skip
    dots = {
        "transform": _interval_texts("cost", "accuracy"),
        "mark": {"type": "point", "size": 90, "strokeWidth": 1.6},
        "encoding": {"x": x, "y": y, **_painted(colour), "shape": shape, "fillOpacity": HOLLOW, "tooltip": tips},
        "params": [_zoom(["x", "y"])],
    }  # fmt: skip
    names = {
        "transform": [{"filter": "isValid(datum.label)"}],
        "mark": {"type": "text", "align": "left", "dx": 9, "dy": -1, "stroke": "var(--sheet)", "strokeWidth": 0},
        "encoding": {"x": own_x, "y": own_y, "text": {"field": "label"}},
    }
    numbers = {
        "mark": {"type": "text", "dy": -14, "fontWeight": 600},
        "encoding": {"x": own_x, "y": own_y, "text": {"field": "count"}, "color": colour, "tooltip": [_tip("case", "marks here")]},
    }
    marks = overlap.merged([{name: short(row[name]) for name in _OF_A_MARK if name in row} for row in rows], front_places(rows))
    of_marks = [
        *([across] if _has(rows, "cost_low") else []),
        *([upward] if _has(rows, "accuracy_low") else []),
        dots,
        *([names] if _has(marks, "label") else []),
        numbers,
    ]
    return {
        **_sized(FRONT_HEIGHT_PX),
        "datasets": {"marks": marks},
        "params": [_hidden()],
        "layer": [
            *([band] if bands else []),
            *([steps] if fronts else []),
            *({"data": {"name": "marks"}, **layer} for layer in of_marks),
        ],
    }


def front_places(rows: Sequence[Mapping[str, Any]]) -> Callable[[float, float], overlap.Place]:
    """Return where a drawing of `against_accuracy` has a cost and an accuracy, in pixels from the left and from below."""
    costs, accuracies = (
        [row[name] for row in rows for name in (of, f"{of}_low", f"{of}_high") if row[name] is not None] for of in ("cost", "accuracy")
    )
    is_log = spread_ratio(row["cost"] for row in rows) >= LOG_FROM_RATIO
    across = overlap.axis(costs, WIDTH_PX, is_log=is_log, from_zero=True)
    upward = overlap.axis(accuracies, FRONT_HEIGHT_PX, is_log=False, from_zero=False)
    return lambda cost, accuracy: (across(cost), upward(accuracy))


def cumulative(unit: str, styles: Sequence[Style], values: Iterable[float | None]) -> Spec:
    """Return the share of queries at most as slow, a step line for each case: rows of `series`, `value`, `share`."""
    tips = [_tip("series", "case"), _tip("value", unit, NUMBER), _tip("share", "share of queries", ".1%")]
    names, colours = [one[0] for one in styles], [one[1] for one in styles]
    dashes = [[1, 0] if place < 7 else [6, 3] if place < 14 else [2, 3] for place in range(len(styles))]
    return {
        **_sized(260),
        "params": [_hidden()],
        "transform": [{"filter": "indexof(hidden, datum.series) < 0"}],
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
        "encoding": {
            "x": _amount("value", unit, values, from_zero=False),
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "share of queries",
                "axis": {"format": "%"},
                "scale": {"domain": [0, 1]},
            },
            "color": {**_by_series(), "scale": {"domain": names, "range": colours}, "legend": _LEGEND},
            "strokeDash": {**_by_series(), "scale": {"domain": names, "range": dashes}, "legend": _LEGEND},
            "tooltip": tips,
        },
    }


def strips(unit: str, styles: Sequence[Style], values: Iterable[float | None]) -> Spec:
    """Return a lane for each case, its runs scattered within it: rows of `series`, `value`, `low`, `high`, `verdict`, `run`."""
    tips = [_tip("series", "case"), _tip("value", unit, NUMBER), _tip("interval"), _tip("verdict"), _tip("run")]
    lanes = {
        "field": "series",
        "type": "nominal",
        "title": None,
        "sort": [one[0] for one in styles],
        "axis": _BARE,
    }
    x = _amount("value", unit, values, from_zero=False)
    dots = {
        "mark": {"type": "point", "size": 30, "strokeWidth": 1.2},
        "encoding": {
            "x": x, "y": lanes, "yOffset": {"field": "scatter", "type": "quantitative"}, **_painted(_colour(styles)),
            "fillOpacity": HOLLOW, "tooltip": tips,
        },
        "params": [_zoom(["x"])],
    }  # fmt: skip
    middle = {
        "mark": {"type": "tick", "thickness": 3, "height": 26, "color": "var(--ink)"},
        "encoding": {"x": {"field": "value", "aggregate": "median", "type": "quantitative"}, "y": lanes},
    }
    return {
        "width": "container", "height": 20 + 34 * len(styles),
        "transform": [
            {"window": [{"op": "row_number", "as": "place"}]},
            {"calculate": "(datum.place * 0.618034) % 1", "as": "scatter"},
            {"calculate": _INTERVAL, "as": "interval"},
        ],
        "layer": [dots, middle],
    }  # fmt: skip


def stacked_bars(unit: str, parts: Sequence[str], lanes: int) -> Spec:
    """Return a bar for each of so many cases, its parts in a row from 0: rows of `series`, `part`, `value`, `place` of the part."""
    shades = [f"var(--p{place % 4})" for place in range(len(parts))]
    return {
        "width": "container", "height": 12 + 26 * lanes,
        "params": [_hidden()],
        "transform": [{"filter": "indexof(hidden, datum.part) < 0"}],
        "mark": {"type": "bar", "stroke": "var(--sheet)", "strokeWidth": 0.6, "height": 16},
        "encoding": {
            "x": {"field": "value", "type": "quantitative", "title": unit, "stack": True},
            "y": {"field": "series", "type": "nominal", "title": None, "sort": None, "axis": _BARE},
            "color": {"field": "part", "type": "nominal", "scale": {"domain": list(parts), "range": shades}, "legend": _LEGEND},
            "order": {"field": "place", "type": "quantitative"},
            "tooltip": [_tip("series", "case"), _tip("part"), _tip("value", unit, NUMBER)],
        },
    }  # fmt: skip


def ranked_bars(unit: str, lanes: int) -> Spec:
    """Return a bar for each of so many rows in the order of the rows, with its figure: rows of `term`, `value`, `detail`."""
    base = {"y": {"field": "term", "type": "nominal", "title": None, "sort": None, "axis": _BARE}}
    x = {"field": "value", "type": "quantitative", "title": unit}
    tips = [_tip("term"), _tip("value", unit, ",.2~r"), _tip("detail", "degrees of freedom")]
    return {
        "width": "container", "height": 10 + 24 * lanes,
        "layer": [
            {"mark": {"type": "bar", "color": "var(--p2)", "height": 13}, "encoding": {**base, "x": x, "tooltip": tips}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4},
                "encoding": {**base, "x": x, "text": {"field": "value", "format": ",.2~r"}},
            },
        ],
    }  # fmt: skip


def heat_map(unit: str, values: Iterable[float | None], lanes: int) -> Spec:
    """Return so many rows by columns, shaded by value: rows of `row`, `column`, `value`, `low`, `high`, `text`, `below`, `detail`."""
    present = [value for value in values if value is not None]
    kind = "log" if spread_ratio(present) >= 2 and min(present, default=0) > 0 else "linear"
    top = {"labelAngle": -30, "orient": "top", "labelLimit": 170, "labelOverlap": False, **_BARE}
    axes: Spec = {
        "x": {"field": "column", "type": "nominal", "title": None, "axis": top},
        "y": {"field": "row", "type": "nominal", "title": None, "axis": {**_BARE, "labelLimit": 230}},
        "tooltip": [_tip("row"), _tip("column"), _tip("value", unit, NUMBER), _tip("interval"), _tip("detail")],
    }  # fmt: skip
    shade = {"field": "value", "type": "quantitative", "scale": {"type": kind, "range": [0.1, 0.62]}, "legend": None}
    return {
        "width": "container", "height": 40 * lanes,
        "transform": [{"calculate": _INTERVAL, "as": "interval"}],
        "layer": [
            {
                "mark": {"type": "rect", "fill": "var(--accent)", "stroke": "var(--sheet)", "strokeWidth": 2},
                "encoding": {**axes, "fillOpacity": shade},
            },
            {"mark": {"type": "text", "dy": -6, "fontWeight": 600, "fontSize": 12}, "encoding": {**axes, "text": {"field": "text"}}},
            {"mark": {"type": "text", "dy": 8, "fontSize": 10}, "encoding": {**axes, "text": {"field": "below"}}},
        ],
    }  # fmt: skip


def spark_lines(lanes: Sequence[str]) -> Spec:
    """Return a small line for each lane: rows of `lane`, `started_at_ns`, `height` (of the lane numbered from 0), `value`, `runs`."""
    tips = [
        _tip("at", "day", "%d %b %Y", "temporal"), _tip("lane", "board type"), _tip("value", "p50 against its usual", ".3f"),
        _tip("runs", "runs", ","),
    ]  # fmt: skip
    names = " : ".join(f"datum.value === {place} ? {name!r}" for place, name in enumerate(_plain_text(lane) for lane in lanes))
    y = {
        "field": "height", "type": "quantitative", "title": None,
        "scale": {"domain": [-0.5, len(lanes) - 0.5], "reverse": True, "nice": False},
        "axis": {"values": list(range(len(lanes))), "labelExpr": f"{names} : ''", "grid": False},
    }  # fmt: skip
    x = _when()
    return {
        "width": "container", "height": max(60, 34 * len(lanes)),
        "transform": [{"calculate": "datum.started_at_ns / 1e6", "as": "at"}],
        "layer": [
            {"mark": {"type": "line", "color": "var(--s0)", "strokeWidth": 1.6}, "encoding": {"x": x, "y": y, "detail": {"field": "lane"}}},
            {
                "mark": {"type": "point", "filled": True, "size": 22, "color": "var(--s0)"}, "encoding": {"x": x, "y": y, "tooltip": tips},
                "params": [_zoom(["x"], pans_with_shift=True), _brush()],
            },
        ],
    }  # fmt: skip


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
    at, right = _tip("at_s", "at, s", ",.3f"), {"orient": "right", "grid": False, "titleX": 0, "titleAlign": "right"}
    sensor_scale = {"domain": list(sensors), "range": [f"var(--s{1 + place % 6})" for place in range(len(sensors))]}
    layers: list[Spec] = []
    if bands:
        shades = {
            "domain": ["idle before", "warm-up", "timed", "idle after"],
            "range": ["var(--p0)", "var(--s1)", "transparent", "var(--p0)"],
        }
        edges = {"x": {"field": "start", "type": "quantitative"}, "x2": {"field": "end"}}
        colour = {"field": "name", "type": "nominal", "scale": shades, "legend": None}
        tips = [_tip("name"), _tip("text", "conditions")]
        layers += [
            {
                "data": {"values": list(bands)}, "mark": {"type": "rect", "opacity": 0.3},
                "encoding": {**edges, "fill": colour, "tooltip": tips},
            },
        ]  # fmt: skip
    dots = {
        "transform": [{"filter": "isValid(datum.latency_ms)"}],
        "mark": {"type": "point", "filled": True, "size": 12, "opacity": 0.5, "color": "var(--s0)"},
        "encoding": {
            "x": x, "y": _amount("latency_ms", "latency, ms", latencies_ms, from_zero=False),
            "tooltip": [_tip("query", "query", ","), *([at] if bands else []), _tip("latency_ms", "latency, ms", NUMBER)],
        },
        "params": [_zoom(["x"])],
    }  # fmt: skip
    layers.append(dots)
    if sensors:
        layers.append(
            {
                "transform": [{"filter": "isValid(datum.power_w)"}],
                "mark": {"type": "line", "strokeWidth": 1.3},
                "encoding": {
                    "x": x, "y": {"field": "power_w", "type": "quantitative", "title": "power, W", "axis": right},
                    "color": {"field": "sensor", "type": "nominal", "scale": sensor_scale, "legend": _LEGEND},
                    "tooltip": [_tip("sensor"), at, _tip("power_w", "power, W", NUMBER)],
                },
            }
        )  # fmt: skip
    return {**_sized(280), "layer": layers, "resolve": {"scale": {"y": "independent"}}}


def among(unit: str, rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Return one device among others: `rows` of `device`, `value`, `low`, `high`, `is_own`."""
    x = _amount("value", unit, [row["value"] for row in rows], from_zero=False)
    tips = [_tip("device"), _tip("value", unit, NUMBER), _tip("interval")]
    own = {"condition": {"test": "datum.is_own", "value": "var(--s1)"}, "value": "var(--soft)"}
    size = {"condition": {"test": "datum.is_own", "value": 130}, "value": 40}
    bar = _rule({"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "y": {"value": 30}, "color": own})
    dots = {
        "mark": {"type": "point", "filled": True, "opacity": 0.75},
        "encoding": {"x": x, "y": {"value": 30}, "color": own, "size": size, "tooltip": tips},
        "params": [_zoom(["x"])],
    }
    return {**_sized(60), "transform": [{"calculate": _INTERVAL, "as": "interval"}], "layer": [*([bar] if _has(rows, "low") else []), dots]}


def periods(lanes: int) -> Spec:
    """Return when so many alerts were open: rows of `alert`, `rule`, `started_at_ns`, `end_ns`, `state`, `text`."""
    x = _when()
    colour = {
        "field": "state",
        "type": "nominal",
        "scale": {"domain": ["open", "closed"], "range": ["var(--s1)", "var(--p1)"]},
        "legend": _LEGEND,
    }
    tips = [_tip("alert"), _tip("rule"), _tip("state"), _tip("at", "opened", DAY, "temporal"), _tip("text", "evidence")]
    return {
        "width": "container", "height": 8 + 22 * lanes,
        "transform": [{"calculate": "datum.started_at_ns / 1e6", "as": "at"}, {"calculate": "datum.end_ns / 1e6", "as": "until"}],
        "mark": {"type": "bar", "height": 12, "minBandSize": 3},
        "encoding": {
            "x": x, "x2": {"field": "until"}, "color": colour, "tooltip": tips,
            "y": {"field": "alert", "type": "nominal", "title": None, "sort": None, "axis": _BARE},
        },
        "params": [_zoom(["x"], pans_with_shift=True), _brush()],
    }  # fmt: skip


_MOMENTS = {
    **dict.fromkeys(("milliseconds", "seconds"), "%H:%M:%S"), **dict.fromkeys(("minutes", "hours"), "%H:%M"),
    **dict.fromkeys(("day", "date", "week"), "%d %b"), **dict.fromkeys(("month", "quarter", "year"), "%d %b %Y"),
}  # fmt: skip
_OF_A_MARK = (
    "case", "series", "cost", "cost_low", "cost_high", "accuracy", "accuracy_low", "accuracy_high", "standing", "verdict", "is_hollow",
    "label", "anchor",
)  # fmt: skip
_BARE = {"domain": False, "ticks": False}
_LEGEND = {"orient": "bottom", "columns": 3, "title": None, "symbolOpacity": 1}


def _has(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Return whether any row has a value: a layer of nothing has no scale."""
    return any(row[name] is not None for row in rows)


def _sized(height: int) -> Spec:
    return {"width": "container", "height": height}


def _tip(name: str, title: str | None = None, form: str | None = None, kind: str | None = None) -> Spec:
    kind = kind or ("quantitative" if form else "nominal")
    utc = {"formatType": "utcFormat"} if kind == "temporal" else {}
    return {"field": name, "title": title or name.replace("_", " "), "type": kind, **({"format": form} if form else {}), **utc}


def _when(padding: int = 0) -> Spec:
    """Return an axis of moments: days, and hours where it is zoomed that far."""
    scale = {"type": "utc", "padding": padding} if padding else {"type": "utc"}
    return {"field": "at", "type": "temporal", "scale": scale, "title": None, "axis": {"format": _MOMENTS}}


def _value(unit: str, *, from_zero: bool) -> Spec:
    return {"field": "value", "type": "quantitative", "title": unit, "scale": {"zero": from_zero, "nice": True, "padding": 6}}


def _amount(name: str, title: str, values: Iterable[float | None], *, from_zero: bool = True) -> Spec:
    """Return an axis for amounts above 0: logarithmic, and said to be so, where the range asks for it."""
    if spread_ratio(values) >= LOG_FROM_RATIO:
        return {
            "field": name,
            "type": "quantitative",
            "title": f"{title}, logarithmic",
            "scale": {"type": "log", "nice": False, "padding": 12},
        }
    scale = {"zero": from_zero, "padding": 0 if from_zero else 12, "nice": from_zero}
    return {"field": name, "type": "quantitative", "title": title, "scale": scale}


def _colour(styles: Sequence[Style]) -> Spec:
    scale = {"domain": [one[0] for one in styles], "range": [one[1] for one in styles]}
    return {"field": "series", "type": "nominal", "scale": scale, "legend": _LEGEND}


def _painted(colour: Spec) -> Spec:
    """Return outline and filling in one colour: a filling may be left out."""
    return {"stroke": colour, "fill": colour}


def _by_series() -> Spec:
    return {"field": "series", "type": "nominal"}


def _rule(encoding: Spec) -> Spec:
    low, high = (encoding[name]["field"] for name in ("x" if "x2" in encoding else "y", "x2" if "x2" in encoding else "y2"))
    there = f"isValid(datum.{low}) && isValid(datum.{high})"
    return {"transform": [{"filter": there}], "mark": {"type": "rule", "opacity": 0.55}, "encoding": encoding}


def _interval_texts(*names: str) -> list[Spec]:
    texts = {name: _INTERVAL.replace("datum.low", f"datum.{name}_low").replace("datum.high", f"datum.{name}_high") for name in names}
    return [{"calculate": text, "as": f"{name}_interval"} for name, text in texts.items()]


def _events(events: Sequence[Mapping[str, Any]]) -> list[Spec]:
    kinds = {"domain": ["change", "step", "remark"], "range": ["var(--soft)", "var(--s1)", "var(--s2)"]}
    colour = {"field": "kind", "type": "nominal", "scale": kinds, "legend": None}
    x = {"field": "at", "type": "temporal"}
    tips = [_tip("at", "on", "%d %b %Y", "temporal"), _tip("kind"), _tip("text", "what")]
    dash = {"condition": {"test": "datum.kind === 'step'", "value": [1, 0]}, "value": [4, 3]}
    number = {"x": x, "y": {"value": -6}, "text": {"field": "number"}, "color": colour, "tooltip": tips}
    return [
        {
            "data": {"values": list(events)}, "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": x, "color": colour, "strokeDash": dash, "tooltip": tips},
        },
        {"data": {"values": list(events)}, "mark": {"type": "text", "fontWeight": 600}, "encoding": number},
    ]  # fmt: skip


def _hidden() -> Spec:
    return {"name": "hidden", "value": []}


def _zoom(axes: Sequence[str], *, pans_with_shift: bool = False) -> Spec:
    drag = "[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!" if pans_with_shift else True
    select = {"type": "interval", "encodings": list(axes), "translate": drag, "zoom": "wheel![event.ctrlKey]", "clear": "dblclick"}
    return {"name": "zoom", "bind": "scales", "select": select}


def _brush() -> Spec:
    drag = "[pointerdown[!event.shiftKey], window:pointerup] > window:pointermove!"
    return {"name": "brush", "select": {"type": "interval", "encodings": ["x"], "on": drag, "translate": False, "zoom": False}}


def _plain_text(text: str) -> str:
    return "".join(one for one in text if one.isprintable() and one not in "'\"\\")
