"""The series of a case over time as a chart, with what changed and what was found, and the trend: a chart for each case."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.runs.cases import CaseKey, names_of
from edgemeter.collector.runs.energy_class import MEASURED
from edgemeter.collector.show import plot
from edgemeter.collector.show.markup import Markup, join, part
from edgemeter.collector.show.wording import metric_name
from edgemeter.collector.web.case_figures import ENERGIES, IndexedRun, of_newest_kind
from edgemeter.collector.web.context import SeriesEvent, ViewContext
from edgemeter.collector.web.queries import NS_PER_DAY, CaseFilter, cases_of_every_board, count_cases, fingerprints, runs_of, since_ns
from edgemeter.collector.web.run_index import IndexedCase
from edgemeter.collector.web.view import View, ViewRequest, ViewTable, note, section

# With more runs than this a dot is the median of a day.
DOTS = 400
RUNS_READ = 20_000
MARKS = 12

# What may change within a series: a change of these is a mark in it.
CHANGING: dict[str, Any] = {"runtime_package": "", "runtime_version": "", "model_sha256": "", "power_mode": None}


@dataclass(frozen=True, slots=True)
class ChartMetric:
    """One thing to follow over time: its name, title and unit, and whether its axis begins at zero."""

    name: str
    title: str
    unit: str
    from_zero: bool = False


METRICS = {
    metric.name: metric
    for metric in (
        ChartMetric("p50_ms", "Latency p50, ms", "ms"),
        ChartMetric("gross_mj", "Energy per inference, gross, mJ", "mJ"),
        ChartMetric("net_mj", "Energy per inference, net, mJ", "mJ"),
        ChartMetric("accuracy", "Accuracy", ""),
        ChartMetric("throttled_ratio", "Share of runs that were throttled", "", from_zero=True),
        ChartMetric("temperature_c", "Highest temperature, °C", "°C"),
    )
}
DEFAULT_METRIC = "p50_ms"


@dataclass(frozen=True, slots=True)
class SeriesShown:
    """One chart with the words below it, whether a step was found in it, and its points in plain form."""

    figure: Markup
    points: int
    has_step: bool
    table: ViewTable


def series_groups(found: Sequence[IndexedCase]) -> list[list[IndexedCase]]:
    """Return the cases in groups that are one series over time: an update of runtime, model file or power mode does not end it."""
    grouped: dict[object, list[IndexedCase]] = defaultdict(list)
    for case in found:
        grouped[replace(case.key, **CHANGING)].append(case)
    return list(grouped.values())


def titles(groups: Sequence[Sequence[IndexedCase]]) -> list[str]:
    """Return a title for each series, no two alike: where device, model, precision and runtime are the same, what else differs."""
    keys = [replace(members[0].key, **CHANGING) for members in groups]
    found = names_of(keys, _title)
    return [found[key] for key in keys]


def series(
    context: ViewContext,
    members: Sequence[IndexedCase],
    metric: ChartMetric,
    *,
    days: int | None,
    span: tuple[float, float] | None,
    title: str | None = None,
    colour: str = "s0",
) -> SeriesShown | None:
    """Return the series of the cases, all of one device, None where no run has that metric."""
    case = max(members, key=lambda one: one.figures.last_ns)
    runs = [run for one in members for run in runs_of(context.connection, one.number, newest=RUNS_READ) if run.is_usable]
    runs.sort(key=lambda run: run.started_at_ns)
    if days is not None and span is not None:
        runs = [run for run in runs if run.started_at_ns >= span[0]]
    having = [run for run in runs if _value(run, metric.name) is not None]
    valued = [(run, value) for run in of_newest_kind(having, metric.name) if (value := _value(run, metric.name)) is not None]
    if not valued:
        return None
    is_daily = metric.name == "throttled_ratio" or len(valued) > DOTS
    dots = _daily(valued, metric) if is_daily else [_dot(run, value, metric, context) for run, value in valued]
    found = context.events.of(case.newest, metric.name)
    changes = [one for one in _changes(context, runs) if not _is_named(one, found)]
    events = sorted([*changes, *found], key=lambda one: one.at_ns)[:MARKS]
    marks = [plot.PlotMark(one.at_ns, one.text, one.kind) for one in events]
    title = title or _title(case.key)
    name = metric_name(case.newest.accuracy.metric) if metric.name == "accuracy" and case.newest.accuracy else metric.title
    drawn = plot.over_time(
        f"{title}: {metric.title}",
        name,
        dots,
        marks=marks,
        levels=_levels(valued, events),
        span=span,
        colour=colour,
        zero=metric.from_zero,
    )
    per_day = " A dot is the median of a day's runs." if is_daily and metric.name != "throttled_ratio" else ""
    middle = figures.significant(median(value for _, value in valued))
    others = len(having) - len(valued)
    apart = f" Not drawn: {figures.count(others, 'run')} of another kind (sensor, scope, provenance or data)." if others else ""
    text = f"{figures.count(len(valued), 'run')}{_energy_words(valued[-1][0], metric)}, median {middle} {metric.unit}.{per_day}{apart}"
    names = ("fleet", "device", "model", "precision", "runtime")
    facts = {f"data-{name}": str(getattr(case.key, name)) for name in names} | {"data-board": case.board}
    figure = part("figure", title, drawn, text, facts, events)
    has_step = any(one.kind == "step" for one in events)
    return SeriesShown(figure, len(valued), has_step, _plain(case, metric, valued))


def _title(key: CaseKey) -> str:
    role = "" if key.role == "device" else f", {key.role}"
    simulated = "" if key.provenance == "measured" else f", {key.provenance}"
    return f"{key.device}: {key.model}, {key.precision} on {key.runtime}{role}{simulated}"


def _energy_words(newest: IndexedRun, metric: ChartMetric) -> str:
    is_replayed = metric.name in ENERGIES and newest.energy_provenance not in (None, MEASURED)
    return f" of {newest.energy_provenance} energy" if is_replayed else ""


def _value(run: IndexedRun, metric: str) -> float | None:
    if metric == "throttled_ratio":
        return None if run.is_throttled is None else float(run.is_throttled)
    value: float | None = getattr(run, metric)
    return value


def _bounds(run: IndexedRun, metric: str) -> tuple[float | None, float | None]:
    if metric == "p50_ms":
        return run.p50_low_ms, run.p50_high_ms
    u = {"gross_mj": run.gross_u_mj, "net_mj": run.net_u_mj}.get(metric)
    value = _value(run, metric)
    return (None, None) if u is None or value is None else (value - u, value + u)


def _dot(run: IndexedRun, value: float, metric: ChartMetric, context: ViewContext) -> plot.PlotDot:
    low, high = _bounds(run, metric.name)
    doubt = ", suspect" if run.verdict == "suspect" else ""
    explanation = f"{figures.stamp(run.started_at_ns)}: {figures.significant(value, 4)} {metric.unit}{doubt}"
    return plot.PlotDot(run.started_at_ns, value, low, high, explanation, context.links.to("run", id=run.id), run.verdict == "suspect")


def _daily(valued: Sequence[tuple[IndexedRun, float]], metric: ChartMetric) -> list[plot.PlotDot]:
    days: dict[int, list[float]] = defaultdict(list)
    for run, value in valued:
        days[run.started_at_ns // NS_PER_DAY].append(value)
    dots = []
    for day, values in days.items():
        middle = sum(values) / len(values) if metric.name == "throttled_ratio" else median(values)
        has_range = metric.name != "throttled_ratio" and len(values) > 1
        explanation = (
            f"{figures.stamp(day * NS_PER_DAY)[:10]}: {figures.significant(middle, 4)} {metric.unit}, {figures.count(len(values), 'run')}"
        )
        dots.append(
            plot.PlotDot(
                (day + 0.5) * NS_PER_DAY, middle, min(values) if has_range else None, max(values) if has_range else None, explanation
            )
        )
    return dots


def _changes(context: ViewContext, runs: Sequence[IndexedRun]) -> list[SeriesEvent]:
    known = fingerprints(context.connection, [run.fingerprint for run in runs])
    changes = []
    for before, after in itertools.pairwise(runs):
        if before.fingerprint != after.fingerprint:
            text = "; ".join(known[before.fingerprint].changes_to(known[after.fingerprint]))
            changes += [SeriesEvent(after.started_at_ns, text, "change")] if text else []
    return changes


def _is_named(change: SeriesEvent, found: Sequence[SeriesEvent]) -> bool:
    """Return whether a step near the change names it already."""
    return any(abs(one.at_ns - change.at_ns) <= NS_PER_DAY and change.text in one.text for one in found)


def _levels(valued: Sequence[tuple[IndexedRun, float]], found: Sequence[SeriesEvent]) -> list[plot.PlotStretch]:
    """Return the median of each stretch between changes and steps; of a series without any its median all along."""
    steps = [one.at_ns for one in found if one.kind != "remark"]
    edges = [valued[0][0].started_at_ns, *steps, valued[-1][0].started_at_ns + 1]
    levels = []
    for start, end in itertools.pairwise(edges):
        values = [value for run, value in valued if start <= run.started_at_ns < end]
        if values:
            levels.append(plot.PlotStretch(start, end, median(values)))
    return levels


def _plain(case: IndexedCase, metric: ChartMetric, valued: Sequence[tuple[IndexedRun, float]]) -> ViewTable:
    unit = metric.name if metric.name.endswith(("_ms", "_mj", "_c", "_ratio")) else "value"
    names = ("fleet", "device", "board", "model", "precision", "runtime", "backend", "threads", "batch", "scenario")
    key = tuple(case.board if name == "board" else getattr(case.key, name) for name in names)
    rows = tuple((run.id, *key, run.started_at_ns, value, *_bounds(run, metric.name), run.verdict) for run, value in valued)
    return ViewTable("points", ("run", *names, "started_at_ns", unit, "low", "high", "verdict"), rows)


FILTERS = ("metric", "model", "board", "device", "fleet", "precision", "runtime", "days")
CHARTS = 24

# A series may have several cases, one for each version of the runtime.
CASES_READ = 2 * CHARTS


def trend_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the trend of the metric that was picked, of as many cases as a page holds: some of every board type, what moved first.

    Raises:
        ConfigError: there is no such metric.
    """
    metric = METRICS.get(request.get("metric") or DEFAULT_METRIC)
    if metric is None:
        raise ConfigError(f"metric={request.get('metric')!r} is not a metric: choose from {', '.join(METRICS)}")
    count = count_cases(context.connection, case_filter)
    picked = cases_of_every_board(context.connection, case_filter.without("days"), CASES_READ)
    if not picked:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS)
    start = min(case.figures.first_ns for case in picked)
    if case_filter.days is not None:
        start = max(start, since_ns(context.connection, case_filter.days))
    span = (float(start), float(max(start + 1, *(case.figures.last_ns for case in picked))))
    groups = series_groups(picked)
    shown = [
        found
        for members, title in zip(groups[:CHARTS], titles(groups)[:CHARTS], strict=True)
        if (found := series(context, members, metric, days=case_filter.days, span=span, title=title))
    ]
    # What moved comes first; a series of one day shows little.
    shown.sort(key=lambda one: (not one.has_step, -one.points))
    rows = tuple(row for one in shown for row in one.table.rows)
    tables = (ViewTable("points", shown[0].table.columns, rows),) if shown else ()
    has_more = len(groups) > CHARTS or count > CASES_READ
    more = f" More series match than the {CHARTS} drawn: pick a device, a board or a model." if has_more else ""
    explained = "Bars are 95 % intervals of a run; lines are medians between the numbered strokes; hollow: suspect." + more
    if not shown:
        body = note(f"No run here has this figure: {metric.title}.")
        return View(f"Trend: {metric.title}", body, filters=FILTERS)
    gallery = part("gallery", [one.figure for one in shown])
    return View(f"Trend: {metric.title}", join([section("charts", "Over the days", gallery, note(explained))]), "", tables, FILTERS)
