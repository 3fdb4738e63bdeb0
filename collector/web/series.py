"""The series of a case over time, as a chart: every run (or every day's median), what changed, what was found in it."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from edgemeter.collector.compare.cases import CaseKey
from edgemeter.collector.compare.naming import names_of
from edgemeter.collector.show import figures, plot
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.wording import metric_name
from edgemeter.collector.web.book import Book, Happening
from edgemeter.collector.web.queries import NS_PER_DAY, fingerprints, runs_of
from edgemeter.collector.web.run_figures import RunFigures
from edgemeter.collector.web.run_index import IndexedCase
from edgemeter.collector.web.view import Table

# With more runs than this a dot is the median of a day.
DOTS = 400
RUNS_READ = 20_000
MARKS = 12
# What may change within a series: a change of these is a mark in it.
CHANGING: dict[str, Any] = {"runtime_package": "", "runtime_version": "", "model_sha256": "", "power_mode": None}


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing to follow over time: its name, title and unit, and whether its axis begins at zero."""

    name: str
    title: str
    unit: str
    from_zero: bool = False


METRICS = {
    metric.name: metric
    for metric in (
        Metric("p50_ms", "Latency p50, ms", "ms"),
        Metric("gross_mj", "Energy per inference, gross, mJ", "mJ"),
        Metric("net_mj", "Energy per inference, net, mJ", "mJ"),
        Metric("accuracy", "Accuracy", ""),
        Metric("throttled_ratio", "Share of runs that were throttled", "", from_zero=True),
        Metric("temperature_c", "Highest temperature, °C", "°C"),
    )
}
DEFAULT_METRIC = "p50_ms"


@dataclass(frozen=True, slots=True)
class SeriesShown:
    """One chart with the words below it, whether a step was found in it, and its points in plain form."""

    figure: Markup
    points: int
    has_step: bool
    table: Table


def of_one_series(found: Sequence[IndexedCase]) -> list[list[IndexedCase]]:
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
    book: Book,
    members: Sequence[IndexedCase],
    metric: Metric,
    *,
    days: int | None,
    span: tuple[float, float] | None,
    title: str | None = None,
    colour: str = "s0",
) -> SeriesShown | None:
    """Return the series of the cases, all of one device, None where no run has that metric."""
    case = max(members, key=lambda one: one.figures.last_ns)
    runs = [run for one in members for run in runs_of(book.connection, one.number, newest=RUNS_READ) if run.is_usable]
    runs.sort(key=lambda run: run.started_at_ns)
    if days is not None and span is not None:
        runs = [run for run in runs if run.started_at_ns >= span[0]]
    valued = [(run, value) for run in runs if (value := _value(run, metric.name)) is not None]
    if not valued:
        return None
    is_daily = metric.name == "throttled_ratio" or len(valued) > DOTS
    dots = _daily(valued, metric) if is_daily else [_dot(run, value, metric, book) for run, value in valued]
    found = book.happenings.of(case.newest, metric.name)
    changes = [one for one in _changes(book, runs) if not _is_told(one, found)]
    happenings = sorted([*changes, *found], key=lambda one: one.at_ns)[:MARKS]
    marks = [plot.Mark(one.at_ns, one.text, one.kind) for one in happenings]
    title = title or _title(case.key)
    name = metric_name(case.newest.accuracy.metric) if metric.name == "accuracy" and case.newest.accuracy else metric.title
    drawn = plot.over_time(
        f"{title}: {metric.title}",
        name,
        dots,
        marks=marks,
        levels=_levels(valued, happenings),
        span=span,
        colour=colour,
        zero=metric.from_zero,
    )
    per_day = " A dot is the median of a day's runs." if is_daily and metric.name != "throttled_ratio" else ""
    says = (
        f"{figures.count(len(valued), 'run')}, median {figures.significant(median(value for _, value in valued))} {metric.unit}.{per_day}"
    )
    caption = element("figcaption", None, title)
    facts = {
        "data-fleet": case.key.fleet,
        "data-device": case.key.device,
        "data-board": case.board,
        "data-model": case.key.model,
        "data-precision": case.key.precision,
        "data-runtime": case.key.runtime,
    }
    figure = element("figure", facts, caption, drawn, element("p", {"class": "note"}, says), _told(happenings))
    has_step = any(one.kind == "step" for one in happenings)
    return SeriesShown(figure, len(valued), has_step, _plain(case, metric, valued))


def _title(key: CaseKey) -> str:
    role = "" if key.role == "device" else f", {key.role}"
    simulated = "" if key.provenance == "measured" else f", {key.provenance}"
    return f"{key.device}: {key.model}, {key.precision} on {key.runtime}{role}{simulated}"


def _value(run: RunFigures, metric: str) -> float | None:
    if metric == "throttled_ratio":
        return None if run.is_throttled is None else float(run.is_throttled)
    value: float | None = getattr(run, metric)
    return value


def _bounds(run: RunFigures, metric: str) -> tuple[float | None, float | None]:
    if metric == "p50_ms":
        return run.p50_low_ms, run.p50_high_ms
    u = {"gross_mj": run.gross_u_mj, "net_mj": run.net_u_mj}.get(metric)
    value = _value(run, metric)
    return (None, None) if u is None or value is None else (value - u, value + u)


def _dot(run: RunFigures, value: float, metric: Metric, book: Book) -> plot.Dot:
    low, high = _bounds(run, metric.name)
    doubt = ", suspect" if run.verdict == "suspect" else ""
    tells = f"{figures.stamp(run.started_at_ns)}: {figures.significant(value, 4)} {metric.unit}{doubt}"
    return plot.Dot(run.started_at_ns, value, low, high, tells, book.links.to("run", id=run.id), run.verdict == "suspect")


def _daily(valued: Sequence[tuple[RunFigures, float]], metric: Metric) -> list[plot.Dot]:
    days: dict[int, list[float]] = defaultdict(list)
    for run, value in valued:
        days[run.started_at_ns // NS_PER_DAY].append(value)
    dots = []
    for day, values in days.items():
        middle = sum(values) / len(values) if metric.name == "throttled_ratio" else median(values)
        has_range = metric.name != "throttled_ratio" and len(values) > 1
        tells = (
            f"{figures.stamp(day * NS_PER_DAY)[:10]}: {figures.significant(middle, 4)} {metric.unit}, {figures.count(len(values), 'run')}"
        )
        dots.append(
            plot.Dot((day + 0.5) * NS_PER_DAY, middle, min(values) if has_range else None, max(values) if has_range else None, tells)
        )
    return dots


def _changes(book: Book, runs: Sequence[RunFigures]) -> list[Happening]:
    known = fingerprints(book.connection, [run.fingerprint for run in runs])
    changes = []
    for before, after in itertools.pairwise(runs):
        if before.fingerprint != after.fingerprint:
            text = "; ".join(known[before.fingerprint].changes_to(known[after.fingerprint]))
            changes.append(Happening(after.started_at_ns, text, "change"))
    return changes


def _is_told(change: Happening, found: Sequence[Happening]) -> bool:
    """Return whether a step beside the change names it already."""
    return any(abs(one.at_ns - change.at_ns) <= NS_PER_DAY and change.text in one.text for one in found)


def _levels(valued: Sequence[tuple[RunFigures, float]], found: Sequence[Happening]) -> list[plot.Stretch]:
    """Return the median of each stretch between changes and steps; of a series without any its median all along."""
    steps = [one.at_ns for one in found if one.kind != "remark"]
    edges = [valued[0][0].started_at_ns, *steps, valued[-1][0].started_at_ns + 1]
    levels = []
    for start, end in itertools.pairwise(edges):
        values = [value for run, value in valued if start <= run.started_at_ns < end]
        if values:
            levels.append(plot.Stretch(start, end, median(values)))
    return levels


def _told(happenings: Sequence[Happening]) -> Markup:
    lines = [
        element(
            "li",
            None,
            f"{figures.stamp(one.at_ns)[:10]}: ",
            element("b", None, {"step": "step", "remark": "remark"}.get(one.kind, "change")),
            f": {one.text}",
        )
        for one in happenings
    ]
    return element("ol", {"class": "note happenings"}, *lines) if lines else join([])


def _plain(case: IndexedCase, metric: Metric, valued: Sequence[tuple[RunFigures, float]]) -> Table:
    unit = metric.name if metric.name.endswith(("_ms", "_mj", "_c", "_ratio")) else "value"
    rows = tuple(
        (
            run.id,
            case.key.fleet,
            case.key.device,
            case.board,
            case.key.model,
            case.key.precision,
            case.key.runtime,
            case.key.backend,
            case.key.threads,
            case.key.batch,
            case.key.scenario,
            run.started_at_ns,
            value,
            *_bounds(run, metric.name),
            run.verdict,
        )
        for run, value in valued
    )
    columns = (
        "run",
        "fleet",
        "device",
        "board",
        "model",
        "precision",
        "runtime",
        "backend",
        "threads",
        "batch",
        "scenario",
        "started_at_ns",
        unit,
        "low",
        "high",
        "verdict",
    )
    return Table("points", columns, rows)
