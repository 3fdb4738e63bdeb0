"""The report: one HTML file that needs nothing else, neither a network nor a script, to be read, printed and kept."""

import base64
import hashlib
import time
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.show import answer, figures, looks, report_charts, report_doubts, report_runs, report_setting, report_table
from edgemeter.collector.show.markup import Markup, element, join, raw
from edgemeter.collector.show.report_cards import cards


def write(comparison: Comparison, path: Path, asked: str) -> None:
    """Write the report to `path`; the runs of `comparison` should have come with their raw samples.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.write_text(page(comparison, asked, time.time_ns()), encoding="utf-8")
    except OSError as error:
        message = f"cannot write the report to {str(path)!r}: {error.strerror}: name another file with --html"
        raise ConfigError(message) from error


def page(comparison: Comparison, asked: str, made_ns: int) -> str:
    """Return the report as HTML; `asked` says what was compared with what, `made_ns` when (UTC)."""
    style, script = _part("report.css"), _part("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The page may load nothing and run nothing but its own script: what a device sent stays text.
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    title = answer.title(comparison)
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", None, f"{title} - Edgemeter"),
        element("style", None, raw(style)),
    )
    body = element("body", None, *_body(comparison, title, asked, made_ns), element("script", None, raw(script)))
    return f"<!doctype html>\n{element('html', {'lang': 'en'}, head, body)}\n"


def _part(name: str) -> str:
    return files("edgemeter.collector.show").joinpath(name).read_text(encoding="utf-8")


def _body(comparison: Comparison, title: str, asked: str, made_ns: int) -> list[Markup]:
    found = looks.assign(comparison.rows)
    legend = report_charts.legend(comparison, found)
    sections = (
        ("table", "All cases", report_table.summary_table(comparison, found)),
        ("latency", "Latency", join([legend, report_charts.latency_charts(comparison, found)])),
        ("energy", "Energy", report_charts.energy_charts(comparison, found)),
        ("start", "Cold start and memory", report_charts.cold_start_charts(comparison, found)),
        ("machines", "The machines", report_setting.machines(comparison)),
        ("verdicts", "Verdicts", report_doubts.verdicts(comparison)),
        ("left-out", "Left out", report_doubts.left_out(comparison)),
        ("method", "How it was measured", report_setting.method(comparison, asked)),
        ("runs", "Every run", report_runs.runs(comparison)),
    )
    shown = [section for section in sections if comparison.rows or section[0] == "left-out"]
    navigation = element("nav", None, *(element("a", {"href": f"#{name}"}, heading) for name, heading, _ in shown))
    parts = [element("section", {"id": name}, element("h2", None, heading), content) for name, heading, content in shown]
    footer = f"Made by edgemeter {version('edgemeter')} on {figures.stamp(made_ns)} UTC."
    header = element("header", None, element("p", {"class": "brand"}, "Edgemeter"), element("h1", None, title), *_answer(comparison))
    return [header, navigation, element("main", None, *parts), element("footer", None, footer)]


def _answer(comparison: Comparison) -> list[Markup]:
    found = answer.groups(comparison.rows)
    cautions = answer.cautions(comparison)
    return [
        element("p", {"class": "lead"}, " ".join(answer.answer(comparison))),
        *([cards(found)] if found else []),
        *([element("p", {"class": "caution"}, " ".join(cautions))] if cautions else []),
    ]
