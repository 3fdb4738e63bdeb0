"""The plots of a paper: the charts of the page, each as one SVG that needs no style sheet, and as PDF."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from edgemeter.agent.base.metrics import metric_name
from edgemeter.collector.charts import vega
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.front import against_accuracy
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.comparison_charts import (
    ENERGY_TITLE,
    LATENCY_TITLE,
    Cost,
    bounds_of,
    distribution_chart,
    energy_cost,
    front_point,
    fronts_of,
    latency_cost,
    latency_distribution,
)
from edgemeter.collector.show.series_style import SeriesStyle, numbered_style
from edgemeter.collector.show.wording import case_names

STEPS = 320


def plots(cases: Sequence[CaseSummary]) -> dict[str, Chart]:
    """Return every plot by the name of its file without suffix; those without data are left out."""
    charts: dict[str, Chart] = {}
    by_device = len({case.key.device for case in cases}) > 1
    for name, members in _grouped(cases, attrgetter("key.model", "key.scenario", "key.provenance", "key.dataset_sha256")).items():
        labels = [f"{case.key.device} · {label}" if by_device else label for case, label in zip(members, case_names(members), strict=True)]
        distributions = [latency_distribution(case.runs, STEPS) for case in members]
        if lines := [(label, line) for label, line in zip(labels, distributions, strict=True) if line]:
            charts[f"latency-{name}"] = distribution_chart(f"{members[0].key.model}: latency of every query", lines)
    # A series is a device where there are several, else a runtime.
    series_of = attrgetter("key.device" if by_device else "key.runtime")
    styles = {series: numbered_style(index) for index, series in enumerate(sorted(set(map(series_of, cases))))}
    for kind, title, cost, apart in _COSTS:
        for name, members in _grouped([case for case in cases if front_point(case, cost)], apart).items():
            charts[f"{kind}-against-accuracy-{name}"] = _front(members, list(map(series_of, members)), styles, cost, title)
    return charts


def as_svg(chart: Chart) -> bytes:
    """Return a plot as SVG; with the paper's own caption it needs no title. Raises UnavailableError if the library is not installed."""
    return f"{vega.svg(chart, is_alone=False)}\n".encode()


def _by_accuracy(case: CaseSummary) -> tuple[str, ...]:
    key = case.key
    return key.task, key.scenario, case.accuracy.metric if case.accuracy else "", key.provenance, key.dataset_sha256


def _by_energy(case: CaseSummary) -> tuple[str, ...]:
    return (*_by_accuracy(case), str(case.energy.ranks_as) if case.energy else "")


# What is set against accuracy: the file's name, the axis, the figure, and what keeps cases on sheets of their own.
_COSTS: tuple[tuple[str, str, Cost, Callable[[CaseSummary], tuple[str, ...]]], ...] = (
    ("latency", LATENCY_TITLE, latency_cost, _by_accuracy),
    ("energy", ENERGY_TITLE, energy_cost, _by_energy),
)


def _grouped(cases: Iterable[CaseSummary], key: Callable[[CaseSummary], tuple[str, ...]]) -> dict[str, list[CaseSummary]]:
    """Return the cases that share a sheet, by a name for its file: the first part of the key, with a number where there are several."""
    sheets = grouped((key(case), case) for case in cases)
    stems: dict[str, list[CaseSummary]] = {}
    for parts, members in sheets.items():
        stem = re.sub(r"[^a-z0-9]+", "-", parts[0].lower()).strip("-")[:60] or "model"
        names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, len(sheets) + 1))
        stems[next(name for name in names if name not in stems)] = members
    return stems


def _front(cases: Sequence[CaseSummary], series: Sequence[str], styles: Mapping[str, SeriesStyle], cost: Cost, cost_title: str) -> Chart:
    metric = metric_name(cases[0].accuracy.metric) if cases[0].accuracy else "Accuracy"
    points = [point for case in cases if (point := front_point(case, cost))]
    statuses, bands, fronts = fronts_of(points, series)
    values: list[dict[str, Any]] = [
        {
            "case": f"{case.key.device}, {name}", "series": series_name, **bounds_of(point), "standing": statuses[index],
            "verdict": case.verdict, "is_hollow": "int" in case.key.precision, "label": name,
        }
        for index, (case, name, series_name, point) in enumerate(zip(cases, case_names(cases), series, points, strict=True))
    ]  # fmt: skip
    legend = [(name, style.paint, style.shape) for name, style in styles.items() if name in series]
    return Chart(f"{cost_title} against {metric}", against_accuracy(cost_title, metric, legend, values, bands, fronts), rows_table(values))
