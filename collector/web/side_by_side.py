"""The comparison: every case with its baseline, like with like, and the Pareto front."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from edgemeter.agent.base import figures
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.specs import heat_map
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow
from edgemeter.collector.index.index_file import IndexedCase
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.comparison_charts import FRONT_NOTE, energy_front, latency_front
from edgemeter.collector.show.conclusions import cautions, conclusions, title
from edgemeter.collector.show.wording import listed, names
from edgemeter.collector.web.case_table import HOW_TO_READ, case_table, verdict_section
from edgemeter.collector.web.context import ViewContext, baselines, compare
from edgemeter.collector.web.markup import Markup, element, join, part
from edgemeter.collector.web.queries import CaseFilter, cases
from edgemeter.collector.web.view import FileLinks, View, ViewRequest, chart_gallery, folded_note, folded_section, note, section

if TYPE_CHECKING:
    from edgemeter.collector.compare.spread import Spread

FILTERS = ("baseline", "model", "board", "device", "fleet", "precision", "runtime", "days", "level")
# Of more devices than this a column of the heat map is a board type.
COLUMNS = 10
# A heat map of more columns is as wide as the page.
WIDE_FROM = 4
NAMED, REASONS_SHOWN, RUNS_NAMED = 3, 40, 8
METHOD = (
    "Latency is the runtime's call alone; pre- and post-processing are timed separately. A percentile that too few queries support is not"
    " shown. Accuracy is of the same model file, by its sha256. Only cases of the same model, task, scenario, data and input size are"
    " compared, and energies only at the same scope."
)


def compare_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the comparison with the baseline that was picked, else with the first there is."""
    every_case = cases(context.connection, case_filter)
    if not every_case:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS)
    baseline = request.get("baseline") or baselines(context.connection, case_filter.model)[0]
    picked = {"baseline": baseline}
    comparison = compare(context, every_case, case_filter, baseline)
    left_out = _left_out(comparison, every_case)
    if not comparison.rows:
        return View(f"No case matches the baseline {baseline}", left_out, filters=FILTERS, picked=picked)
    table = case_table(context, comparison)
    with_boards = isinstance(context.links, FileLinks)
    fronts = [make(table.folded, table.styles, with_boards=with_boards) for make in (latency_front, energy_front)]
    gallery = chart_gallery(context.sheet, fronts, has_one_legend=True)
    found_cautions = cautions(comparison)
    parts = [
        *([element("p", {"class": "caution"}, " ".join(found_cautions))] if found_cautions else []),
        section("front", "Latency and energy against accuracy", gallery, folded_note("How to read the marks", FRONT_NOTE)),
        section("matrix", "Where each model is fast", _heat_maps(context, comparison)),
        section("table", "All cases", table.page(request), folded_note("How to read the table", HOW_TO_READ, METHOD)),
        verdict_section(comparison),
        left_out,
    ]
    # What was replayed or simulated does not share the headline of what was measured, unless nothing was.
    measured = tuple(row for row in comparison.rows if row.case.key.provenance == "measured")
    has_measured = any(not row.is_reference for row in measured)
    lead = " ".join(conclusions(replace(comparison, rows=measured) if has_measured else comparison))
    return View(_title(comparison), join(parts), lead, (table.plain(),), FILTERS, picked)


def _heat_maps(context: ViewContext, comparison: Comparison) -> Markup:
    """Return the p50 of each model and precision on each device, of many devices on each board type; what was replayed apart."""
    rows = comparison.rows
    devices = {row.case.key.device for row in rows}
    by_board = len(devices) > COLUMNS
    charts = []
    for provenance in dict.fromkeys(row.case.key.provenance for row in rows):
        cells: dict[tuple[str, str], list[ComparisonRow]] = {}
        for row in rows:
            key = row.case.key
            if key.provenance == provenance and row.case.p50_ms:
                name = f"{key.model}, {key.precision}" + ("" if key.scenario == "single_stream" else f", {key.scenario}")
                cells.setdefault((name, row.board if by_board else key.device), []).append(row)
        if len(cells) < 2:
            continue
        values = [_cell(name, column, members) for (name, column), members in sorted(cells.items())]
        title = f"Latency p50, ms{'' if provenance == 'measured' else f', {provenance}'}"
        numbers = [number for cell in values if isinstance(number := cell["value"], float)]
        spec = heat_map("p50, ms", numbers, len({name for name, _ in cells}))
        columns = len({column for _, column in cells})
        charts.append(context.sheet.draw(Chart(title, spec, rows_table(values), kind="wide" if columns > WIDE_FROM else "")))
    text = (
        "A cell is the median over the devices of the type, below it the lowest and highest; it is of the fastest case of each device."
        if by_board
        else "A cell is the fastest case, below it its 95% interval. No cell: never measured, or nothing to compare it with."
    )
    return join([part("gallery", charts), note(text)]) if charts else note("Of fewer than two cells there is no matrix.")


def _cell(name: str, column: str, members: Sequence[ComparisonRow]) -> dict[str, str | float | None]:
    fastest: dict[tuple[str, str], Spread] = {}
    for row in members:
        spread, device = row.case.p50_ms, row.case.device
        if spread and (device not in fastest or spread.median < fastest[device].median):
            fastest[device] = spread
    spreads = list(fastest.values())
    value = median(spread.median for spread in spreads)
    interval = spreads[0].interval
    low, high = (interval.low, interval.high) if len(spreads) == 1 and interval else (None, None)
    if len(spreads) > 1:
        low, high = min(spread.median for spread in spreads), max(spread.median for spread in spreads)
    below = "no interval" if low is None or high is None else f"{figures.span(low, high)}{f', {len(spreads)} devices' * (len(spreads) > 1)}"
    detail = f"{figures.count(len(members), 'case')}, {figures.count(len(spreads), 'device')}"
    return {
        "row": name, "column": column, "value": value, "low": low, "high": high, "text": figures.significant(value), "below": below,
        "detail": detail,
    }  # fmt: skip


def _title(comparison: Comparison) -> str:
    devices = {(row.case.key.fleet, row.case.key.device) for row in comparison.rows if not row.is_reference}
    if len(devices) <= NAMED:
        return title(comparison)
    models = names(row.case.key.model for row in comparison.rows if not row.is_reference)
    references = names(row.reference.key.device for row in comparison.rows)
    return f"{listed(models, 3)} on {figures.count(len(devices), 'device')}, against {listed(references, 3)}"


def _left_out(comparison: Comparison, shown_cases: Sequence[IndexedCase]) -> Markup:
    """Return the runs that are left out by reason, some of them named, and how many are not usable at all."""
    runs_by_reason = grouped((entry.reason, entry.run or "a record whose id cannot be read") for entry in comparison.left_out)
    if unusable := sum(case.runs - case.usable for case in shown_cases):
        runs_by_reason["invalid, or not comparable; the page of each says why"] = [""] * unusable
    reasons = sorted(runs_by_reason.items(), key=lambda item: -len(item[1]))
    lines = [
        {"count": figures.count(len(runs), "run"), "reason": reason, "detail": listed(runs, RUNS_NAMED) if runs[0] else ""}
        for reason, runs in reasons[:REASONS_SHOWN]
    ]
    remark = note(f"{len(reasons) - REASONS_SHOWN} more reasons: edgemeter collector compare.") if len(reasons) > REASONS_SHOWN else ""
    summary = f"{figures.count(sum(map(len, runs_by_reason.values())), 'run')} for {figures.count(len(reasons), 'reason')}"
    return folded_section("left-out", "Left out", summary if lines else "nothing", part("counted", lines) if lines else "", remark)
