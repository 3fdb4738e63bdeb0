"""The page of one model: how its latencies are distributed, where its energy goes, which runs are doubted and why."""

from collections.abc import Sequence
from dataclasses import replace

from edgemeter.agent.base.documents import Plain
from edgemeter.agent.contract.load_sweep import sweeps
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.specs import CALL_FRONTIER, TEXT_FRONTIER, frontier, strips
from edgemeter.collector.compare.comparison import Comparison, answers_of, comparable
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.index.index_file import IndexedCase
from edgemeter.collector.runs.cases import grouped, not_measured
from edgemeter.collector.show import comparison_charts
from edgemeter.collector.show.conclusions import conclusions
from edgemeter.collector.show.series_style import numbered_style
from edgemeter.collector.show.wording import case_names, listed, load_words, names
from edgemeter.collector.web.case_table import HOW_TO_READ, case_table, verdict_section
from edgemeter.collector.web.context import REFERENCE, ViewContext, baselines, compare, sampled
from edgemeter.collector.web.markup import Markup, element, join, part
from edgemeter.collector.web.queries import CaseFilter, cases, cases_of_baseline
from edgemeter.collector.web.run import energy_budget
from edgemeter.collector.web.view import View, ViewRequest, chart_gallery, folded_note, note, section

FILTERS = ("model", "baseline", "board", "device", "fleet", "precision", "runtime", "days", "level")
# Raw samples are read again for as many cases; more make no chart that can be read.
SAMPLED, BUDGETS = 12, 6
RUNS_DRAWN = 120
UNHELD = "Loads that a server did not hold are invalid runs, and not drawn."


def model_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the page of the model that was picked, else of the first there is."""
    if case_filter.model is None:
        first = context.connection.execute("SELECT min(model) FROM cases").fetchone()[0]
        case_filter = replace(case_filter, model=first)
    model_cases = cases(context.connection, case_filter)
    if not model_cases:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS)
    baseline = request.get("baseline") or baselines(context.connection, case_filter.model)[0]
    picked = {"baseline": baseline}
    every_case = compare(context, model_cases, case_filter, baseline)
    if not every_case.rows:
        text = f"No case of it can be compared with {baseline}: pick another baseline."
        return View(str(case_filter.model), note(text), filters=FILTERS, picked=picked)
    table = case_table(context, every_case)
    drawn_cases = _of_every_board(model_cases)
    drawn_keys = {case.key for case in drawn_cases}
    drawn_rows = [row for row in every_case.rows if row.case.key in drawn_keys]
    references = {id(row.reference) for row in drawn_rows}
    comparison = replace(every_case, rows=tuple(row for row in every_case.rows if row.case.key in drawn_keys or id(row.case) in references))
    baseline_cases = cases_of_baseline(context.connection, baseline, REFERENCE, case_filter)[:SAMPLED]
    numbers = {case.key: case.number for case in (*drawn_cases, *baseline_cases)}

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
        *_users(context, every_case),
        section("energy", "Energy, term by term", _budgets(context, comparison)),
        section("start", "Cold start and memory", chart_gallery(context.sheet, [comparison_charts.cold_start_charts(comparison, styles)])),
        verdict_section(every_case),
    ]
    return View(str(case_filter.model), join(parts), " ".join(conclusions(every_case)), (table.plain(),), FILTERS, picked)


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
            spec = strips("p50 of a run, ms", legend, [value for dot in values if isinstance(value := dot["value"], float)])
            text = f"{len(values):,} runs; a dot is a run, the stroke their median; hollow: suspect."
            charts.append(context.sheet.draw(Chart(title, spec, rows_table(values), text)))
    return part("gallery", charts) if charts else note("No run has a p50.")


def _modes(comparison: Comparison) -> list[Markup]:
    """Return the section of cases that ran in several power modes or clocks of one board: which of them to take."""
    texts = [f"{answer.device} · {answer.model}, {answer.settings}: {answer.summary}." for answer in answers_of(comparison)]
    return [section("modes", "Power modes and clocks", *map(note, texts))] if texts else []


def _users(context: ViewContext, comparison: Comparison) -> list[Markup]:
    """Return the section of sweeps over users or rates, if there are any: their sentences, and what a user gets against what all get."""
    of_loads = sweeps(run for row in comparison.rows for run in row.case.runs)
    # Sweeps of one device, model and limits may differ in what the sentence leaves out.
    lanes = [f"{sweep.device} · {sweep.model}, {sweep.settings}{f', {sweep.limits}' if sweep.limits else ''}" for sweep in of_loads]
    rows: list[dict[str, Plain]] = [
        {
            "series": lane, "level": point.level, "name": point.name, "user": point.user_tokens_per_s, "total": point.output_tokens_per_s,
            "requests_per_s": point.requests_per_s, "goodput_per_s": point.goodput_per_s, "ttft_p50_ms": point.ttft_p50_ms,
            "ttft_p90_ms": point.ttft_p90_ms, "latency_p50_ms": point.latency_p50_ms, "latency_p90_ms": point.latency_p90_ms,
            "error_ratio": point.error_ratio,
        }
        for lane, sweep in zip(lanes, of_loads, strict=True)
        for point in sweep.points
    ]  # fmt: skip
    styles = {lane: (lane, numbered_style(index).paint, "circle") for index, lane in enumerate(dict.fromkeys(lanes))}
    charts = []
    for title, axes, of_text in (
        ("Tokens a user against tokens in all", TEXT_FRONTIER, True),
        ("Latency against requests answered", CALL_FRONTIER, False),
    ):
        points = [row for row in rows if all(row[field] for field in axes) and bool(row["total"]) == of_text]
        # Figures that none of them has are left out.
        points = [{name: value for name, value in row.items() if any(other[name] is not None for other in points)} for row in points]
        if points:
            legend = tuple(styles[lane] for lane in dict.fromkeys(str(row["series"]) for row in points))
            charts.append(context.sheet.draw(Chart(title, frontier(legend, points, axes), rows_table(points), legend=legend)))
    if not charts:
        return []
    # Invalid runs are not among these: of loads that are all held, the highest that was tried may be one of them.
    texts = [
        f"{sweep.summary}."
        for sweep in of_loads
        if (sweep.points[0].concurrency and not sweep.limits) or not all(point.holds for point in sweep.points)
    ]
    return [section("users", "Users of a server", *map(note, texts or [UNHELD]), *charts)]


def _dot(series: str, run: RunRecord) -> dict[str, Plain]:
    p50 = run.latency
    return {
        "series": series, "value": p50.p50_ms, "low": p50.p50_low_ms, "high": p50.p50_high_ms, "verdict": run.verdict.state, "run": run.id,
    }  # fmt: skip


def _budgets(context: ViewContext, comparison: Comparison) -> Markup:
    cases_shown = [row.case for row in comparison.rows]
    names_of_cases = dict(zip(map(id, cases_shown), case_names(cases_shown), strict=True))
    pictures = []
    for case in [case for case in cases_shown if case.energy][:BUDGETS]:
        # Only where the newest has none the others are read.
        candidates = (run for runs in (case.runs[-1:], case.runs) for run in reversed(runs))
        newest = next(run for run in candidates if not_measured(run, "energy") is None and run.energy)
        heading = f"{case.key.device} · {names_of_cases[id(case)]}: newest run with an energy"
        pictures.append(element("div", None, element("h3", None, heading), energy_budget(context, newest)))
    return part("gallery", pictures) if pictures else note(f"No energy: {listed(names(case.energy_reason or '' for case in cases_shown))}.")
