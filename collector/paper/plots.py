"""The plots of a paper: the charts of the page, each as one SVG that needs no style sheet, and as PDF."""

import re
from collections.abc import Callable, Iterable, Sequence
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
from edgemeter.collector.show.series_style import numbered_style
from edgemeter.collector.show.wording import case_names

STEPS = 320


def plots(cases: Sequence[CaseSummary]) -> dict[str, Chart]:
    """Return every plot by the name of its file without suffix; those without data are left out."""
    charts: dict[str, Chart] = {}
    for name, members in _grouped(
        cases, lambda case: (case.key.model, case.key.scenario, case.key.provenance, case.key.dataset_sha256)
    ).items():
        distributions = [latency_distribution(case.runs, STEPS) for case in members]
        lines = [(label, line) for label, line in zip(_names(cases, members), distributions, strict=True) if line]
        if lines:
            charts[f"latency-{name}"] = distribution_chart(f"{members[0].key.model}: latency of every query", lines)
    for kind, title, cost, apart in _COSTS:
        for name, members in _grouped([case for case in cases if front_point(case, cost)], apart).items():
            charts[f"{kind}-against-accuracy-{name}"] = _front(cases, members, cost, title)
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


def _series(cases: Sequence[CaseSummary], case: CaseSummary) -> str:
    """Return the series of a case: its device where there are several, else its runtime."""
    return case.key.device if len({other.key.device for other in cases}) > 1 else case.key.runtime


def _names(all_cases: Sequence[CaseSummary], cases: Sequence[CaseSummary]) -> list[str]:
    by_device = len({case.key.device for case in all_cases}) > 1
    return [f"{case.key.device} · {name}" if by_device else name for case, name in zip(cases, case_names(cases), strict=True)]


def _front(all_cases: Sequence[CaseSummary], cases: Sequence[CaseSummary], cost: Cost, cost_title: str) -> Chart:
    styles = {name: numbered_style(index) for index, name in enumerate(sorted({_series(all_cases, case) for case in all_cases}))}
    metric = metric_name(cases[0].accuracy.metric) if cases[0].accuracy else "Accuracy"
    series = [_series(all_cases, case) for case in cases]
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
