"""The comparison: every case with its baseline, like with like, and the Pareto front."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from edgemeter.agent.base import figures
from edgemeter.collector.charts.chart import Chart, ViewTable, rows_table
from edgemeter.collector.charts.specs import heat_map
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow, comparable
from edgemeter.collector.compare.judgement import within_of
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.show import report_charts
from edgemeter.collector.show.conclusions import conclusions, title
from edgemeter.collector.show.markup import Markup, element, join, part
from edgemeter.collector.show.report import chart_gallery
from edgemeter.collector.show.report_table import (
    accuracy_cell,
    anchor,
    gross_cell,
    group_text,
    other_kind,
    row_class,
    spread_cell,
    summary_key,
)
from edgemeter.collector.show.series_style import SeriesStyles, assign_styles
from edgemeter.collector.show.wording import accuracy_name, case_names, level_text, listed, names, runtime_name
from edgemeter.collector.web.context import IndexedComparison, ViewContext, baselines, compare
from edgemeter.collector.web.pages import page_of, pages_text
from edgemeter.collector.web.queries import CaseFilter, cases, count_cases
from edgemeter.collector.web.view import Links, View, ViewColumn, ViewRequest, grid, link, note, plain_table, section

FILTERS = ("baseline", "model", "board", "device", "fleet", "precision", "runtime", "days", "level")
# A page is read by people: more cases than these are on several.
CASES_SHOWN = 150
# With more devices than this a colour denotes a board type.
DEVICES_IN_COLOUR = 7
# Of more devices than this a column of the heat map is a board type.
COLUMNS = 10
NAMED = 3


def compare_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the comparison with the baseline that was picked, else with the first there is."""
    offered = baselines(context.connection)
    if not offered:
        return View("Nothing to compare yet", note("The ledger has no run."), filters=FILTERS)
    baseline = request.get("baseline") or offered[0]
    count = count_cases(context.connection, case_filter)
    place = page_of(request, count, CASES_SHOWN)
    own = cases(context.connection, case_filter, limit=CASES_SHOWN, offset=place * CASES_SHOWN)
    found = compare(context, own, case_filter, baseline)
    pages = pages_text(request, place, count, CASES_SHOWN, context.links)
    comparison = found.comparison
    left_out = _left_out(comparison)
    if not comparison.rows:
        body = join([pages, section("left-out", "Left out", left_out)])
        return View(f"No case matches {baseline}", body, filters=FILTERS)
    styles = assign_styles(comparison.rows, most_devices=DEVICES_IN_COLOUR)
    table, plain = table_of(found, styles, context.links)
    fronts = [report_charts.latency_front(comparison, styles), report_charts.energy_front(comparison, styles)]
    parts = [
        pages,
        section("front", "Latency and energy against accuracy", chart_gallery(context.sheet, fronts)),
        section("matrix", "Where each model is fast", _heat_maps(context, found)),
        section(
            "table",
            "All cases",
            table,
            note("Medians over runs; below them the range over runs. A ratio above 1 takes longer, or more, than the baseline."),
        ),
        section("left-out", "Left out", left_out),
    ]
    lead = " ".join(conclusions(_of_measured(comparison)))
    return View(_title(comparison), join(parts), lead, (plain,), FILTERS)


def _heat_maps(context: ViewContext, found: IndexedComparison) -> Markup:
    """Return the p50 of each model and precision on each device, of many devices on each board type; what was replayed apart."""
    rows = found.comparison.rows
    devices = {row.case.key.device for row in rows}
    by_board = len(devices) > COLUMNS
    drawn = []
    for provenance in dict.fromkeys(row.case.key.provenance for row in rows):
        cells: dict[tuple[str, str], list[ComparisonRow]] = {}
        for row in rows:
            if row.case.key.provenance == provenance and row.case.p50_ms:
                column = found.case_of(row.case).board if by_board else row.case.key.device
                cells.setdefault((_row_name(row), column), []).append(row)
        if len(cells) < 2:
            continue
        values = [_cell(name, column, members) for (name, column), members in sorted(cells.items())]
        title = f"Latency p50, ms{'' if provenance == 'measured' else f', {provenance}'}"
        text = (
            "A cell is the median over the devices of the type, below it the lowest and highest; it is of the fastest case of each device."
            if by_board
            else "A cell is the fastest case, below it its 95 % interval. No cell: never measured, or nothing to compare it with."
        )
        spec = heat_map("p50, ms", [value for one in values if isinstance(value := one["value"], float)], len({name for name, _ in cells}))
        drawn.append(context.sheet.draw(Chart(title, spec, rows_table(values), text, kind="wide")))
    return part("gallery", drawn) if drawn else note("Of fewer than two cells there is no matrix.")


def _row_name(row: ComparisonRow) -> str:
    key = row.case.key
    return f"{key.model}, {key.precision}" + ("" if key.scenario == "single_stream" else f", {key.scenario}")


def _cell(name: str, column: str, members: Sequence[ComparisonRow]) -> dict[str, str | float | None]:
    fastest: dict[str, Spread] = {}
    for row in members:
        own, device = row.case.p50_ms, row.case.key.device
        if own and (device not in fastest or own.median < fastest[device].median):
            fastest[device] = own
    spreads = list(fastest.values())
    value = median(one.median for one in spreads)
    interval = spreads[0].interval
    low, high = (interval.low, interval.high) if len(spreads) == 1 and interval else (None, None)
    if len(spreads) > 1:
        low, high = min(one.median for one in spreads), max(one.median for one in spreads)
    below = "no interval" if low is None or high is None else f"{figures.span(low, high)}{f', {len(spreads)} devices' * (len(spreads) > 1)}"
    detail = f"{figures.count(len(members), 'case')}, {figures.count(len(spreads), 'device')}"
    return {
        "row": name,
        "column": column,
        "value": value,
        "low": low,
        "high": high,
        "text": figures.significant(value),
        "below": below,
        "detail": detail,
    }


def _of_measured(comparison: Comparison) -> Comparison:
    """Return the rows that were measured, all where none was: what was replayed or simulated does not share their headline."""
    measured = tuple(row for row in comparison.rows if row.case.key.provenance == "measured")
    return replace(comparison, rows=measured) if any(not row.is_reference for row in measured) else comparison


def _title(comparison: Comparison) -> str:
    """Return who is compared with whom, counted where names would be too many."""
    devices = {(row.case.key.fleet, row.case.key.device) for row in comparison.rows if not row.is_reference}
    if len(devices) <= NAMED:
        return title(comparison)
    models = names(row.case.key.model for row in comparison.rows if not row.is_reference)
    references = names(row.reference.key.device for row in comparison.rows)
    return f"{listed(models, 3)} on {figures.count(len(devices), 'device')}, against {listed(references, 3)}"


def _left_out(comparison: Comparison) -> Markup:
    if not comparison.left_out:
        return element("p", None, "Nothing was left out.")
    counted = Counter(entry.reason for entry in comparison.left_out).most_common(60)
    return part("counted", [{"number": number, "reason": reason, "detail": ""} for reason, number in counted], "case")


def table_of(found: IndexedComparison, styles: SeriesStyles, links: Links) -> tuple[Markup, ViewTable]:
    """Return the cases as markup, grouped by what may be compared, and in plain form."""
    comparison = found.comparison
    called = dict(zip((id(row) for row in comparison.rows), case_names([row.case for row in comparison.rows]), strict=True))
    columns = _columns(found, styles, links, called)
    parts = []
    for rows in comparable(comparison.rows):
        model = rows[0].case.key.model
        heading = element("h3", None, link(links.to("model", model=model), model), element("small", None, f" {group_text(rows)}"))
        markup, _ = grid(
            model, columns, rows, lambda row: {"id": anchor(comparison, row), "class": row_class(row), **report_charts.facts(row)}
        )
        parts.append(element("div", {"data-model": model}, heading, markup))
    return join(parts), plain_table("comparison", columns, comparison.rows)


def _columns(found: IndexedComparison, styles: SeriesStyles, links: Links, called: dict[int, str]) -> list[ViewColumn[ComparisonRow]]:
    def runs(row: ComparisonRow) -> int:
        return found.case_of(row.case).current.usable

    return [
        ViewColumn("device", "Device", lambda row: row.case.key.device, lambda row: _device(row, styles, links), is_text=True),
        ViewColumn("case", "Case", lambda row: called[id(row)], lambda row: _name(row, called[id(row)], links), is_text=True),
        *(
            ViewColumn(name, name, _of_key(name), is_shown=False)
            for name in ("fleet", "role", "model", "precision", "runtime", "runtime_version", "scenario", "dataset_sha256")
        ),
        ViewColumn("board", "Board", lambda row: found.case_of(row.case).board, is_shown=False),
        *_spread("latency_p50", "ms", "p50 ms", lambda row: row.case.p50_ms),
        ViewColumn(
            "latency_p50_ratio",
            "to baseline",
            lambda row: row.ratios.p50,
            _ratio,
            "p50 against the baseline's p50, what that means, and its 95 % interval over days or runs",
        ),
        ViewColumn("latency_p50_ratio_low", "", lambda row: _bound(row, 0), is_shown=False),
        ViewColumn("latency_p50_ratio_high", "", lambda row: _bound(row, 1), is_shown=False),
        ViewColumn("latency_judgement", "", lambda row: row.judgements.latency.words if row.judgements.latency else None, is_shown=False),
        *_spread("latency_p90", "ms", "p90 ms", lambda row: row.case.p90_ms),
        *_spread("throughput", "per_s", "per s", lambda row: row.case.throughput_per_s),
        ViewColumn(
            "accuracy",
            accuracy_name([row.case for row in found.comparison.rows]),
            lambda row: median_of(row.case.accuracy_value),
            lambda row: accuracy_cell(row, _none),
        ),
        ViewColumn("accuracy_difference", "", lambda row: row.ratios.accuracy_difference, is_shown=False),
        *_spread("memory_peak", "mb", "Peak MB", lambda row: row.case.peak_mb),
        ViewColumn(
            "energy_gross_mj",
            "Gross mJ",
            lambda row: median_of(row.case.gross_mj),
            lambda row: gross_cell(row, _none),
            "energy per inference, idle included, with its uncertainty (95 %)",
        ),
        ViewColumn("energy_gross_u_mj", "", lambda row: row.case.energy.gross_u_mj if row.case.energy else None, is_shown=False),
        ViewColumn("energy_scope", "", lambda row: row.case.energy.scope if row.case.energy else None, is_shown=False),
        ViewColumn("energy_provenance", "", lambda row: row.case.energy.provenance if row.case.energy else None, is_shown=False),
        ViewColumn("energy_gross_ratio", "", lambda row: row.ratios.energy_gross, is_shown=False),
        ViewColumn("runs", "Runs", runs),
        ViewColumn("level_since", "", lambda row: row.case.segment.words if row.case.segment else None, is_shown=False),
        ViewColumn("earlier_runs", "", lambda row: row.case.segment.earlier if row.case.segment else 0, is_shown=False),
        ViewColumn("provenance", "Provenance", lambda row: row.case.key.provenance, is_shown=False),
        ViewColumn("verdict", "Verdict", lambda row: row.case.verdict, lambda row: _verdict(row, found), is_text=True),
        ViewColumn("baseline", "", lambda row: row.reference.key.device, is_shown=False),
        ViewColumn("baseline_choice", "", lambda row: row.choice, is_shown=False),
        ViewColumn("not_ranked_reason", "", lambda row: row.not_ranked, is_shown=False),
    ]


def _of_key(name: str) -> Callable[[ComparisonRow], str]:
    return lambda row: str(getattr(row.case.key, name))


def _spread(name: str, unit: str, heading: str, figure: Callable[[ComparisonRow], Spread | None]) -> Sequence[ViewColumn[ComparisonRow]]:
    return (
        ViewColumn(f"{name}_{unit}", heading, lambda row: median_of(figure(row)), lambda row: spread_cell(figure(row))),
        ViewColumn(f"{name}_min_{unit}", "", lambda row: found.low if (found := figure(row)) else None, is_shown=False),
        ViewColumn(f"{name}_max_{unit}", "", lambda row: found.high if (found := figure(row)) else None, is_shown=False),
    )


def _device(row: ComparisonRow, styles: SeriesStyles, links: Links) -> Markup:
    name = link(links.to("device", fleet=row.case.key.fleet, device=row.case.key.device), row.case.key.device)
    role = "baseline" if row.is_reference else row.case.newest.environment.board or "unknown board"
    return join([summary_key(styles.of(row)), name, element("small", None, role)])


def _name(row: ComparisonRow, name: str, links: Links) -> Markup:
    case = row.case.key
    reference = links.to("trend", model=case.model, device=case.device, fleet=case.fleet) or links.to("trend", model=case.model)
    since = element("small", None, level_text(row.case)) if row.case.segment else ""
    return join([link(reference, name), element("small", None, runtime_name(row.case)), since])


def _ratio(row: ComparisonRow) -> Markup:
    if row.not_ranked:
        return _none(row.not_ranked, "not ranked")
    if row.is_reference:
        return element("em", None, "baseline")
    if row.ratios.p50 is None:
        return join([figures.typeset(figures.ABSENT)])
    bounds = row.ratios.p50_interval
    within = within_of((row.case.p50_ms, row.reference.p50_ms))
    between = f"95 %: {figures.typeset(figures.span(*bounds))}{f', within {within}' if within else ''}" if bounds else "no interval"
    judged = row.judgements.latency
    kind = other_kind(row)
    state = element("small", {"title": judged.words}, judged.words.partition(":")[0].partition(" (")[0]) if judged else ""
    beside = element("small", {"title": row.choice}, between)
    against = element("small", {"title": row.choice}, f"against {kind}") if kind else ""
    return join([figures.typeset(figures.times(row.ratios.p50)), state, beside, against])


def _bound(row: ComparisonRow, which: int) -> float | None:
    return row.ratios.p50_interval[which] if row.ratios.p50_interval else None


def _none(reason: str, word: str = "none") -> Markup:
    return element("span", {"class": "none", "title": reason}, word)


def _verdict(row: ComparisonRow, found: IndexedComparison) -> Markup:
    case, provenance = found.case_of(row.case).current, row.case.key.provenance
    verdict = element("span", {"class": "doubt"}, f"? {case.suspect} of {case.usable} suspect") if case.suspect else "valid"
    return join([verdict, element("small", None, "" if provenance == "measured" else provenance)])
