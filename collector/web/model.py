"""The page of one model: its cases, how its latencies are distributed, how it starts, which runs are disturbed and why."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter

from edgemeter.agent.base.documents import Plain
from edgemeter.agent.contract.mode_answer import ModeAnswer
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.specs import strips
from edgemeter.collector.compare.boards import fold_boards
from edgemeter.collector.compare.comparison import Comparison, answers_of, comparable
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.index.index_file import IndexedCase
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show import comparison_charts
from edgemeter.collector.show.series_style import numbered_style
from edgemeter.collector.show.wording import case_names, load_words
from edgemeter.collector.web.case_table import HOW_TO_READ, case_table, verdict_section
from edgemeter.collector.web.context import REFERENCE, ViewContext, compare, reference_names, sampled
from edgemeter.collector.web.headline import lead
from edgemeter.collector.web.markup import Markup, join, part
from edgemeter.collector.web.queries import CaseFilter, cases, cases_of_reference
from edgemeter.collector.web.view import View, ViewColumn, ViewRequest, chart_gallery, folded_note, folding_grid, note, section

FILTERS = ("model",)
MORE_FILTERS = ("reference", "board", "device", "fleet", "precision", "runtime", "days", "level")
# Raw samples are read again for as many cases; more make no chart that can be read.
SAMPLED = 12
RUNS_DRAWN = 120


def model_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the page of the model that was picked, else of the first there is."""
    if case_filter.model is None:
        first = context.connection.execute("SELECT min(model) FROM cases").fetchone()[0]
        case_filter = replace(case_filter, model=first)
    model_cases = cases(context.connection, case_filter)
    if not model_cases:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS, more_filters=MORE_FILTERS)
    reference = request.get("reference") or reference_names(context.connection, case_filter.model)[0]
    picked = {"reference": reference}
    every_case = compare(context, model_cases, case_filter, reference)
    if not every_case.rows:
        text = f"No case of it can be compared with {reference}: pick another reference."
        return View(str(case_filter.model), note(text), filters=FILTERS, picked=picked, more_filters=MORE_FILTERS)
    table = case_table(context, every_case, fold_boards(every_case))
    drawn_cases = _of_every_board(model_cases)
    drawn_keys = {case.key for case in drawn_cases}
    drawn_rows = [row for row in every_case.rows if row.case.key in drawn_keys]
    references = {id(row.reference) for row in drawn_rows}
    comparison = replace(every_case, rows=tuple(row for row in every_case.rows if row.case.key in drawn_keys or id(row.case) in references))
    reference_cases = cases_of_reference(context.connection, reference, REFERENCE, case_filter)[:SAMPLED]
    numbers = {case.key: case.number for case in (*drawn_cases, *reference_cases)}

    def sampled_runs(case: CaseSummary) -> list[RunRecord]:
        run = sampled(context, numbers[case.key]) if case.key in numbers else None
        return [run] if run else []

    styles = table.styles
    few = f"Below, {SAMPLED} of {len(model_cases)} cases are drawn, of every type of board the first; pick a device or a board for others."
    parts = [
        section(
            "cases",
            "All cases",
            table.page(request),
            folded_note("How to read the table", HOW_TO_READ),
            *([note(few)] if len(model_cases) > SAMPLED else []),
        ),
        section("runs", "From run to run", _over_runs(context, comparison)),
        section(
            "queries",
            "From query to query",
            chart_gallery(context.sheet, [comparison_charts.latency_distributions(comparison, styles, sampled_runs)]),
            note("Of the newest run of each case."),
        ),
        *_modes(every_case),
        section("start", "Cold start and memory", chart_gallery(context.sheet, [comparison_charts.cold_start_charts(comparison, styles)])),
        verdict_section(every_case),
    ]
    return View(str(case_filter.model), join(parts), lead(every_case), (table.plain(),), FILTERS, picked, more_filters=MORE_FILTERS)


def _of_every_board(model_cases: Sequence[IndexedCase]) -> list[IndexedCase]:
    of_boards = grouped((case.board, case) for case in model_cases if case.usable).values()
    turns = max(map(len, of_boards), default=0)
    return [members[turn] for turn in range(turns) for members in of_boards if turn < len(members)][:SAMPLED]


def _over_runs(context: ViewContext, comparison: Comparison) -> Markup:
    charts = []
    for rows in comparable(comparison.rows):
        values: list[dict[str, Plain]] = []
        # The least that tells the cases apart, a lane for each.
        lanes = [f"{row.case.key.device} · {name}" for row, name in zip(rows, case_names([row.case for row in rows]), strict=True)]
        for row, name in zip(rows, lanes, strict=True):
            values += [_dot(name, run) for run in row.case.runs[-RUNS_DRAWN:] if run.latency.p50_ms]
        if values:
            title = f"{rows[0].case.key.model}: p50 of every run{load_words(rows[0].case.key)}"
            legend = tuple((name, numbered_style(index).paint, "circle") for index, name in enumerate(lanes))
            of_cases = [
                {"series": name, "value": p50_ms.value, "low": p50_ms.low, "high": p50_ms.high}
                for row, name in zip(rows, lanes, strict=True)
                if (p50_ms := row.case.p50_ms)
            ]
            spec = strips("p50 of a run, ms", legend, of_cases, [value for dot in values if isinstance(value := dot["value"], float)])
            text = f"{len(values):,} runs; a dot is a run, the stroke their mean, the line its 95% interval."
            charts.append(context.sheet.draw(Chart(title, spec, rows_table(values), text)))
    return part("gallery", charts) if charts else note("No run has a p50.")


def _modes(comparison: Comparison) -> list[Markup]:
    """Return the section of cases that ran in several power modes or clocks of one board: a table of each."""
    tables = [(note(f"{answer.title}:"), _mode_table(answer)) for answer in answers_of(comparison)]
    return [section("modes", "Power modes and governors", *chain.from_iterable(tables))] if tables else []


def _mode_table(answer: ModeAnswer) -> Markup:
    columns = [
        ViewColumn[tuple[str, ...]](heading, heading, itemgetter(number), is_text=True) for number, heading in enumerate(answer.columns)
    ]
    return folding_grid("modes", columns, [list(zip(*answer.columns.values(), strict=True))], lambda _: {})


def _dot(series: str, run: RunRecord) -> dict[str, Plain]:
    return {"series": series, "value": run.latency.p50_ms, "verdict": run.verdict.state, "run": run.id}
