"""The trend: what was found first, then a chart for each series."""

from collections.abc import Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.base.documents import Plain
from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import Markup, join, part
from edgemeter.collector.web.queries import CaseFilter, cases_of_every_board, count_cases, since_ns
from edgemeter.collector.web.series import DEFAULT_FIGURE, DOTS_IN_ALL, FOLLOWED, SeriesShown, findings_list, series, series_groups, titles
from edgemeter.collector.web.view import BRUSH, Links, View, ViewColumn, ViewRequest, grid, link, note, page_of, pages_text, section

FILTERS = ("metric", "model", "board", "device", "fleet", "precision", "runtime", "days")
CHARTS = 10
# A series may have several cases, one for each version of the runtime.
CASES_READ = 2 * CHARTS
RUNS_LISTED = 100


def trend_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the trend of a metric: what was found, then a page of series of every board type; raises ConfigError if it is unknown."""
    entry = FOLLOWED.get(request.get("metric") or DEFAULT_FIGURE)
    if entry is None:
        raise ConfigError(f"metric={request.get('metric')!r} is not a metric: choose from {', '.join(FOLLOWED)}")
    count = count_cases(context.connection, case_filter)
    page = page_of(request, count, CASES_READ)
    picked = cases_of_every_board(context.connection, case_filter.without("days"), CASES_READ, page * CASES_READ)
    if not picked:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS)
    start = min(case.first_ns for case in picked)
    if case_filter.days is not None:
        start = max(start, since_ns(context.connection, case_filter.days))
    span = (float(start), float(max(start + 1, *(case.newest_ns for case in picked))))
    groups = series_groups(picked)
    dots = max(40, DOTS_IN_ALL // len(groups))
    shown_series = [
        charted
        for members, title in zip(groups, titles(groups), strict=True)
        if (charted := series(context, members, entry, days=case_filter.days, span=span, title=title, dots=dots))
    ]
    # What moved comes first; a series of one day shows little.
    shown_series.sort(key=lambda charted: (not charted.has_step, -charted.points))
    if not shown_series:
        return View(f"Trend: {entry.heading_with_unit}", note(f"No run here has this figure: {entry.heading_with_unit}."), filters=FILTERS)
    parts = _sections(context, request, shown_series, (page, count))
    rows = tuple(row for charted in shown_series for row in charted.table.rows)
    tables = (ViewTable("points", shown_series[0].table.columns, rows),)
    return View(f"Trend: {entry.heading_with_unit}", join(parts), "", tables, FILTERS)


def _sections(context: ViewContext, request: ViewRequest, shown_series: Sequence[SeriesShown], page: tuple[int, int]) -> list[Markup]:
    explained = (
        "Bars are 95% intervals of a run; lines are medians between the numbered strokes; hollow: suspect."
        f" Narrow the runs below to a period: {BRUSH}, a click on a dot opens its run."
    )
    finding_lines = findings_list(context, request.fields)
    gallery = part("gallery", [context.sheet.draw(charted.chart) for charted in shown_series])
    listed = sorted((row for charted in shown_series for row in charted.table.dicts()), key=lambda row: -int(str(row["started_at_ns"])))
    columns = _run_columns(context.links, shown_series[0].table.columns[-4])
    table, _ = grid("runs", columns, listed[:RUNS_LISTED], lambda row: {"data-at": str(row["started_at_ns"])})
    remark = note(f"The newest {RUNS_LISTED} of {len(listed):,} runs; CSV holds all.") if len(listed) > RUNS_LISTED else ""
    pages = pages_text(request, page[0], page[1], CASES_READ, context.links)
    return [
        *([section("findings", "What changed", finding_lines)] if finding_lines else []),
        section("charts", "Over the days", pages, gallery, note(explained)),
        section("runs", "The runs drawn", table, remark),
    ]


def _run_columns(links: Links, figure: str) -> list[ViewColumn[dict[str, Plain]]]:
    def run_link(row: dict[str, Plain]) -> Markup:
        return link(links.to("run", id=str(row["run"])), str(row["run"]))

    def started(row: dict[str, Plain]) -> str:
        return figures.stamp(int(str(row["started_at_ns"])))

    def text(name: str, heading: str) -> ViewColumn[dict[str, Plain]]:
        return ViewColumn(name, heading, lambda row: row[name], is_text=True)

    return [
        ViewColumn("run", "Run", lambda row: row["run"], run_link, is_text=True),
        ViewColumn("started_at_ns", "Started (UTC)", lambda row: row["started_at_ns"], started),
        text("device", "Device"), text("model", "Model"), text("precision", "Precision"), text("runtime", "Runtime"),
        ViewColumn(figure, "Value", lambda row: row[figure]),
        ViewColumn("low", "from", lambda row: row["low"]), ViewColumn("high", "to", lambda row: row["high"]),
        text("verdict", "Verdict"),
    ]  # fmt: skip
