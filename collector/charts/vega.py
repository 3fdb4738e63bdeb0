"""Vega's JavaScript, bundled once and cached, and charts drawn as SVG.

SVG is for files that are read without scripts.

A process keeps the memory of drawing, so a server draws no chart: the browser does. Only this
module imports the library. Nothing is downloaded: the package contains all JavaScript.
"""

import contextlib
import hashlib
import json
import platform
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from edgemeter.agent.base import config, durable_file
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.plugins import import_extra, require_extra
from edgemeter.collector.charts.chart import WIDTH_PX, Chart, Spec

VEGA_LITE = "6.4"


def check_installed() -> None:
    """Check the library for charts before long work.

    It raises UnavailableError if the library is not installed, or has no wheels for this machine.
    """
    need = "pages and charts need Jinja2 and vl-convert-python"
    if platform.machine() == "armv7l":
        need += ", which has no wheel for 32-bit ARM: copy the ledger to another machine, and there"
    require_extra("report", need, "jinja2", "vl_convert")


@lru_cache(maxsize=1)
def theme() -> Spec:
    """Return the theme of all charts.

    Colours are variables of the style sheet, so that dark and light need no second drawing.
    """
    spec: Spec = json.loads(_packaged("charts/theme.json"))
    return spec


@lru_cache(maxsize=1)
def bundle() -> str:
    """Return the script that draws charts (0.9 MB), cached in the agent's home.

    It raises UnavailableError without the library.
    """
    library = _library()
    path = config.home() / "charts" / f"vega-{library.__version__}-{VEGA_LITE}.js"
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        script = str(
            library.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
        )
    # If the cache cannot be written, the next process makes it again.
    with contextlib.suppress(UnavailableError):
        durable_file.write(path, script.encode(), 0o644)
    return script


@lru_cache(maxsize=1)
def bundle_name() -> str:
    """Return the name of the bundle in a page, which depends on its content."""
    return f"charts-{hashlib.sha256(bundle().encode()).hexdigest()[:16]}.js"


def svg(chart: Chart) -> str:
    """Return the chart as SVG without a style sheet, in light colours; the page has its title."""
    svg_text = str(_library().vegalite_to_svg(_standing_alone(chart), vl_version=VEGA_LITE))
    # Vega numbers its ids consecutively; ours are the same for the same chart, and differ between
    # the charts of a page.
    chart_hash = hashlib.sha256(json.dumps(chart.document()).encode()).hexdigest()[:8]
    numbers: dict[str, int] = {}
    return re.sub(
        r"\b(clip|gradient_)(\d+)\b",
        lambda match: f"{match[1]}{chart_hash}-{numbers.setdefault(match[2], len(numbers))}",
        svg_text,
    )


def _standing_alone(chart: Chart) -> Spec:
    # Boards of one type are one mark.
    rows = [row for row in chart.table.dicts() if row.get("of") is None]
    spec = {**chart.spec, "data": {**chart.spec.get("data", {}), "values": rows}}
    if spec.get("width") == "container":
        spec["width"] = WIDTH_PX
    spec["config"] = {
        **theme(),
        "font": "Helvetica, Arial, sans-serif",
        "background": "var(--sheet)",
    }
    colours = dict(re.findall(r"--(\w+): light-dark\((#\w+)", _packaged("web/page.css")))
    spec_in_colour: Spec = json.loads(
        re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]], json.dumps(spec))
    )
    return spec_in_colour


def _packaged(name: str) -> str:
    return files("edgemeter.collector").joinpath(name).read_text(encoding="utf-8")


def _library() -> Any:
    return import_extra("vl_convert", "report", "charts need vl-convert-python")
