"""The series of a case over time as a chart, with its changes."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from edgemeter.agent.base import number_text
from edgemeter.agent.base.documents import Plain
from edgemeter.agent.base.evidence import RunValue, interval_over_runs, middle_of
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.energy_provenance import MEASURED
from edgemeter.agent.contract.figures import LATENCY, Figure, FigureView, in_view
from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.agent.contract.series import SERIES_FIELDS, in_series
from edgemeter.collector.charts.chart import Chart, ViewTable, rows_table
from edgemeter.collector.charts.specs import over_time
from edgemeter.collector.compare.case_book import BookedCase
from edgemeter.collector.compare.case_figure import figure_of_values
from edgemeter.collector.runs.case_runs import CaseRuns, joined
from edgemeter.collector.runs.cases import grouped, names_of
from edgemeter.collector.runs.figure_names import figure_called
from edgemeter.collector.web.events import SeriesEvent
from edgemeter.collector.web.queries import (
    FACETS,
    CaseFilter,
    ViewContext,
    of_every_board,
    picked_cases,
    since_ns,
)
from edgemeter.collector.web.view import View, ViewColumn, ViewGrid, ViewRequest, pager

# With more runs than this a dot is a day; the limit of dots on a page.
DOTS, DOTS_IN_ALL = 400, 1600
RUNS_READ = 20_000
MARKS = 12
# The figures that can be followed over time, by their name in an address.
FOLLOWED = {entry.name: entry for entry in in_view(FigureView.CHART)}
CHARTS = 10
RUNS_LISTED = 100
# The columns that identify a case in the table of runs, besides its device.
CASE_COLUMNS = ("model", "precision", "runtime", "backend", "threads", "batch", "scenario")
RowColumn = ViewColumn[dict[str, Plain]]


class SeriesShown(NamedTuple):
    """One chart of a series, and its points in plain form."""

    chart: Chart
    table: ViewTable


def series_groups(every_case: Sequence[BookedCase]) -> list[list[BookedCase]]:
    """Return the cases in groups that are one series over time.

    An update of runtime, model file or power mode does not end a series.
    """
    return list(grouped((in_series(case.key), case) for case in every_case).values())


def titles(groups: Sequence[Sequence[BookedCase]]) -> list[str]:
    """Return a unique title for each series.

    If device, model, precision and runtime are equal, it has other differences.
    """
    keys = [members[0].key for members in groups]
    names = names_of(keys, _title, SERIES_FIELDS)
    return [names[key] for key in keys]


def series(
    context: ViewContext,
    members: Sequence[BookedCase],
    entry: Figure,
    *,
    days: int | None,
    span: tuple[float, float] | None,
    title: str | None = None,
    dots: int = DOTS,
) -> SeriesShown | None:
    """Return the series of the cases, None if no run has that figure.

    The cases are all of one device; with more runs than `dots` a dot is a day.
    """
    case = max(members, key=lambda case: case.newest_ns)
    runs = joined(
        [context.store.runs_of(member.members).part(slice(-RUNS_READ, None)) for member in members]
    )
    started_ns, since = (
        runs.columns["started_at_ns"],
        span[0] if days is not None and span is not None else 0,
    )
    order = np.argsort(started_ns, kind="stable")
    runs = runs.part(order[(runs.columns["is_usable"] & (started_ns >= since))[order]])
    having = runs.having(entry.name)
    valued = [
        (run, value)
        for run in having.of_newest_kind(entry.group).each()
        if (value := run.value(entry.name)) is not None
    ]
    if not valued:
        return None
    is_daily = entry.is_truth or len(valued) > dots
    rows = _daily(valued, entry) if is_daily else [_dot(run, value, entry) for run, value in valued]
    newest = context.store.runs_of(case.members).subject(-1)
    noted = context.events.of(newest.series, entry.name)
    # A step near a change may name it already.
    changes = [
        change
        for change in _changes(runs)
        if not any(
            abs(event.at_ns - change.at_ns) <= NS_PER_DAY and change.text in event.text
            for event in noted
        )
    ]
    events = sorted([*changes, *noted], key=lambda event: event.at_ns)[:MARKS]
    marks = [
        {"at": event.at_ns / 1e6, "text": event.text, "kind": event.kind, "number": str(number)}
        for number, event in enumerate(events, 1)
    ]
    title = title or _title(case.key)
    name = (
        metric_name(newest.accuracy.metric)
        if entry.group == "accuracy" and newest.accuracy
        else entry.heading
    )
    spec = over_time(
        name,
        levels=_levels(valued, entry, events),
        events=marks,
        span_ns=span or (valued[0][0].started_at_ns, valued[-1][0].started_at_ns),
        from_zero=entry.is_truth,
        has_bars=any(row["low"] is not None for row in rows),
    )
    facts = {
        f"data-{name}": str(getattr(case.key, name))
        for name in ("fleet", "device", "model", "precision", "runtime")
    } | {"data-board": case.board}
    text = _words(valued, entry, len(having) - len(valued), is_daily=is_daily)
    return SeriesShown(
        Chart(title, spec, rows_table(rows), text, brushes=True, facts=facts, events=events),
        _plain(case, entry, valued),
    )


def _words(
    valued: Sequence[tuple[RunFigures, float]], entry: Figure, absent: int, *, is_daily: bool
) -> str:
    newest, per_day, apart, of_energy = valued[-1][0], "", "", ""
    if is_daily and not entry.is_truth:
        per_day = " A dot is a day with the 95% interval over its runs."
    if absent:
        apart = (
            f" Not drawn: {number_text.count(absent, 'run')} of another kind (sensor, scope, "
            "provenance or data)."
        )
    if entry.group == "energy" and newest.subject.energy_provenance not in (None, MEASURED):
        of_energy = f" of {newest.subject.energy_provenance} energy"
    return f"{number_text.count(len(valued), 'run')}{of_energy}.{per_day}{apart}"


def _title(key: CaseKey) -> str:
    role = "" if key.role == "device" else f", {key.role}"
    simulated = "" if key.provenance == "measured" else f", {key.provenance}"
    return f"{key.device}: {key.model}, {key.precision} on {key.runtime}{role}{simulated}"


def _dot(run: RunFigures, value: float, entry: Figure) -> dict[str, Plain]:
    low, high = run.bounds(entry)
    return {
        "started_at_ns": run.started_at_ns,
        "value": value,
        "low": low,
        "high": high,
        "verdict": run.verdict.state,
        "run": run.id,
    }


def _daily(valued: Sequence[tuple[RunFigures, float]], entry: Figure) -> list[dict[str, Plain]]:
    rows: list[dict[str, Plain]] = []
    for day, values in grouped(
        (run.started_at_ns // NS_PER_DAY, value) for run, value in valued
    ).items():
        interval = None if entry.is_truth or entry.is_rare else interval_over_runs(values, 0.0)
        middle = (
            fmean(values) if entry.is_truth else interval.middle if interval else middle_of(values)
        )
        low, high = (interval.low, interval.high) if interval else (None, None)
        at_ns = day * NS_PER_DAY + NS_PER_DAY // 2
        rows.append(
            {
                "started_at_ns": at_ns,
                "value": middle,
                "low": low,
                "high": high,
                "verdict": number_text.count(len(values), "run"),
                "run": None,
            }
        )
    return rows


def _changes(runs: CaseRuns) -> list[SeriesEvent]:
    changes = []
    for index in (np.flatnonzero(np.diff(runs.columns["subject"])) + 1).tolist():
        text = "; ".join(
            runs.subject(index - 1).fingerprint.changes_to(runs.subject(index).fingerprint)
        )
        changes += (
            [SeriesEvent(int(runs.columns["started_at_ns"][index]), text, "change")] if text else []
        )
    return changes


def _levels(
    valued: Sequence[tuple[RunFigures, float]], entry: Figure, series_events: Sequence[SeriesEvent]
) -> list[dict[str, Plain]]:
    """Return the level of each stretch between changes and steps.

    A series without any has its level throughout.
    """
    steps = [series_event.at_ns for series_event in series_events if series_event.kind != "remark"]
    edges = [valued[0][0].started_at_ns, *steps, valued[-1][0].started_at_ns + 1]
    has_points = entry.is_truth or entry.is_share or entry.group == "accuracy"
    levels: list[dict[str, Plain]] = []
    for start, end in itertools.pairwise(edges):
        stretch = [(run, value) for run, value in valued if start <= run.started_at_ns < end]
        if stretch:
            # As the figure of a case in the tables: of the ok runs, if there are enough.
            ok = [(run, value) for run, value in stretch if run.verdict.state == "ok"]
            level = figure_of_values(
                [
                    RunValue(value, "", run.day)
                    for run, value in (ok if len(ok) >= FEWEST else stretch)
                ],
                "points" if has_points else "ratio",
            ).value
            levels.append({"start": start / 1e6, "end": end / 1e6, "value": level})
    return levels


def _plain(
    case: BookedCase, entry: Figure, valued: Sequence[tuple[RunFigures, float]]
) -> ViewTable:
    column = entry.name if entry.unit or entry.is_truth else "value"
    names = ("fleet", "device", "board", *CASE_COLUMNS)
    key = tuple(case.board if name == "board" else getattr(case.key, name) for name in names)
    return ViewTable(
        "points",
        ("run", *names, "started_at_ns", column, "low", "high", "verdict"),
        tuple(
            (run.id, *key, run.started_at_ns, value, *run.bounds(entry), run.verdict.state)
            for run, value in valued
        ),
    )


# A series may have several cases, one for each version of the runtime.
CASES_READ = 2 * CHARTS


def trend_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the trend of a metric.

    It has the findings, then a page of series of every board type. It raises ConfigError if the
    metric is unknown.
    """
    entry = figure_called(request.get("metric") or LATENCY, FOLLOWED.values())
    every_case = of_every_board(picked_cases(context.book, replace(case_filter, days=None)))
    pages = pager(request, context.links, len(every_case), CASES_READ)
    picked = every_case[pages.page * CASES_READ : (pages.page + 1) * CASES_READ]
    if not picked:
        body = context.render("message.html", text="Pick another model, board or device.")
        return View("No run matches", body)
    start = min(case.first_ns for case in picked)
    if case_filter.days is not None:
        start = max(start, since_ns(context.book, case_filter.days))
    span = (float(start), float(max(start + 1, *(case.newest_ns for case in picked))))
    groups = series_groups(picked)
    dots = max(40, DOTS_IN_ALL // len(groups))
    shown_series = [
        charted
        for members, title in zip(groups, titles(groups), strict=True)
        if (
            charted := series(
                context, members, entry, days=case_filter.days, span=span, title=title, dots=dots
            )
        )
    ]
    # Changed series come first; a series of one day shows little.
    shown_series.sort(
        key=lambda charted: (
            all(event.kind != "step" for event in charted.chart.events),
            -len(charted.table.dicts()),
        )
    )
    if not shown_series:
        body = context.render("message.html", text=f"No run here has this figure: {entry.heading}.")
        return View(f"Trend: {entry.heading}", body)
    table = ViewTable(
        "points",
        shown_series[0].table.columns,
        tuple(row for charted in shown_series for row in charted.table.rows),
    )
    newest = sorted(table.dicts(), key=lambda row: -int(str(row["started_at_ns"])))
    body = context.render(
        "trend.html",
        findings=context.events.findings_of(request.fields),
        pages=pages,
        charts=[charted.chart for charted in shown_series],
        runs=ViewGrid(
            "runs",
            _run_columns(table.columns[-4], newest[:RUNS_LISTED]),
            [newest[:RUNS_LISTED]],
            lambda row: (
                {"data-at": str(row["started_at_ns"])}
                | {f"data-{name}": str(row[name]) for name in FACETS}
            ),
        ),
        count=len(newest),
        listed=RUNS_LISTED,
    )
    return View(f"Trend: {entry.heading}", body, "", (table,))


def _run_columns(figure: str, rows: Sequence[dict[str, Plain]]) -> list[RowColumn]:
    # A phone has room only for columns that distinguish the rows; threads and such are hidden
    # unless they do.
    telling = {name for name in CASE_COLUMNS if len({row[name] for row in rows}) > 1}
    shown_names = [
        name for name in CASE_COLUMNS if name in telling | {"model", "precision", "runtime"}
    ]

    def column(name: str, heading: str = "", **settings: Any) -> RowColumn:
        return ViewColumn(name, heading or name.capitalize(), itemgetter(name), **settings)

    return [
        column("run", leads_to=("run", {"id": itemgetter("run")}), is_text=True),
        column(
            "started_at_ns",
            "Started (UTC)",
            cell=lambda row: number_text.stamp(row["started_at_ns"]),
        ),
        *(column(name, is_text=True) for name in ("verdict", "device")),
        *(column(name, is_text=True, needs_width=name not in telling) for name in shown_names),
        *(
            column(name, heading)
            for name, heading in ((figure, "Value"), ("low", "from"), ("high", "to"))
        ),
    ]
