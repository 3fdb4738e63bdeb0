"""The parts of chart specifications: axes of amounts, intervals, tooltips, zoom, legend, brush."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from edgemeter.collector.charts.chart import Spec

# At a larger ratio of largest to smallest, a linear axis would compress the small values.
LOG_FROM_RATIO = 12.0
NUMBER = ",.4~r"
DAY = "%d %b %Y, %H:%M"
# A hollow mark is a disturbed run or case.
HOLLOW = {"condition": {"test": "datum.verdict === 'disturbed'", "value": 0.0}, "value": 0.85}
INTERVAL = (
    "isValid(datum.low) && isValid(datum.high) ? format(datum.low, ',.4~r') + ' to ' + "
    "format(datum.high, ',.4~r') : 'no interval'"
)
Style = tuple[str, str, str]
LEGEND = {"orient": "bottom", "columns": 3, "title": None, "symbolOpacity": 1}


def sized(height: int) -> Spec:
    """Return a chart as wide as its container and `height` pixels high."""
    return {"width": "container", "height": height}


def channel(name: str, kind: str = "quantitative", **settings: Any) -> Spec:
    """Return the encoding of a field as an axis, a colour or a shape."""
    return {"field": name, "type": kind, **settings}


def tip(
    name: str, title: str | None = None, form: str | None = None, kind: str | None = None
) -> Spec:
    """Return a line of a tooltip: the field, its title, its format and its kind."""
    kind = kind or ("quantitative" if form else "nominal")
    utc = {"formatType": "utcFormat"} if kind == "temporal" else {}
    return {
        "field": name,
        "title": title or name.replace("_", " "),
        "type": kind,
        **({"format": form} if form else {}),
        **utc,
    }


def amount(
    name: str, title: str, values: Iterable[float | None], *, from_zero: bool = True
) -> Spec:
    """Return an axis for amounts above 0.

    It is logarithmic, and labelled so, if the range requires it.
    """
    present = [value for value in values if value is not None and 0 < value < math.inf]
    if present and max(present) / min(present) >= LOG_FROM_RATIO:
        return channel(
            name, title=f"{title}, logarithmic", scale={"type": "log", "nice": False, "padding": 12}
        )
    return channel(name, title=title, scale={"zero": from_zero, "padding": 12, "nice": from_zero})


def zoom(axes: Sequence[str], *, pans_with_shift: bool = False) -> Spec:
    """Return the parameter that zooms and moves axes; if a drag selects a period, Shift moves."""
    drag = (
        "[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!"
        if pans_with_shift
        else True
    )
    return {
        "name": "zoom",
        "bind": "scales",
        "select": {
            "type": "interval",
            "encodings": list(axes),
            "translate": drag,
            "zoom": "wheel![event.ctrlKey]",
            "clear": "dblclick",
        },
    }
