"""The page of one model: how its latencies are distributed, where its energy goes, which runs are doubted and why."""

from collections.abc import Sequence
from dataclasses import replace

from edgemeter.agent.base.documents import Plain
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.specs import strips
from edgemeter.collector.compare.comparison import Comparison, comparable
from edgemeter.collector.show import comparison_charts
from edgemeter.collector.show.conclusions import conclusions
from edgemeter.collector.show.series_style import assign_styles, numbered_style
from edgemeter.collector.show.wording import case_names
from edgemeter.collector.web.case_table import table_of, verdicts
from edgemeter.collector.web.context import REFERENCE, IndexedComparison, ViewContext, baselines, compare
from edgemeter.collector.web.markup import Markup, element, join, part
from edgemeter.collector.web.queries import CaseFilter, cases, cases_of_baseline, runs_of
from edgemeter.collector.web.run import energy_budget
from edgemeter.collector.web.run_index import IndexedCase
from edgemeter.collector.web.view import View, ViewRequest, chart_gallery, note, section

FILTERS = ("model", "baseline", "board", "device", "fleet", "precision", "runtime", "days", "level")
# Raw samples are read again for as many cases; more make no chart that can be read.
SAMPLED, BUDGETS = 12, 6
RUNS_DRAWN = 120


def model_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the page of the model that was picked, else of the first there is."""
    if case_filter.model is None:
        first = context.connection.execute("SELECT min(model) FROM cases").fetchone()[0]
        case_filter = replace(case_filter, model=first)
    own = cases(context.connection, case_filter)
    if not own:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS)
    baseline = request.get("baseline") or baselines(context.connection)[0]
    drawn = _of_every_board(own)
    beside = cases_of_baseline(context.connection, baseline, REFERENCE, case_filter)[:SAMPLED]
    found = compare(context, drawn, case_filter, baseline, with_samples=frozenset(case.number for case in (*drawn, *beside)))
    shown = found.comparison
    if not shown.rows:
        return View(str(case_filter.model), note(f"No case of it can be compared with {baseline}."), filters=FILTERS)
    styles = assign_styles(shown.rows)
    table, plain = table_of(found, styles, context.links)
    few = (
        f"{SAMPLED} of {len(own)} cases are drawn, of every type of board the first; pick a device or a board for others."
        if len(own) > SAMPLED
        else ""
    )
    parts = [
        section("cases", "The cases drawn", table, *([note(few)] if few else [])),
        section("runs", "From run to run", _over_runs(context, found, shown)),
        section(
            "queries",
            "From query to query",
            chart_gallery(context.sheet, [comparison_charts.latency_distributions(shown, styles)]),
            note("Of the newest run of each case."),
        ),
        section("energy", "Energy, term by term", _budgets(context, drawn)),
        section("start", "Cold start and memory", chart_gallery(context.sheet, [comparison_charts.cold_start_charts(shown, styles)])),
        section("verdicts", "Verdict and evidence", verdicts(shown)),
    ]
    return View(str(case_filter.model), join(parts), " ".join(conclusions(shown)), (plain,), FILTERS)


def _of_every_board(own: Sequence[IndexedCase]) -> list[IndexedCase]:
    """Return the cases to draw, taken in turn from every type of board."""
    grouped: dict[str, list[IndexedCase]] = {}
    for case in own:
        if case.current.usable:
            grouped.setdefault(case.board, []).append(case)
    turns = max((len(members) for members in grouped.values()), default=0)
    taken = [members[turn] for turn in range(turns) for members in grouped.values() if turn < len(members)]
    return taken[:SAMPLED]


def _over_runs(context: ViewContext, found: IndexedComparison, shown: Comparison) -> Markup:
    """Return the p50 of every run that counts, a lane for each case."""
    drawn = []
    for rows in comparable(shown.rows):
        values: list[dict[str, Plain]] = []
        names = [f"{row.case.key.device} · {name}" for row, name in zip(rows, case_names([row.case for row in rows]), strict=True)]
        for row, name in zip(rows, names, strict=True):
            values += _runs_of_case(context, found.case_of(row.case), name)
        if values:
            title = f"{rows[0].case.key.model}: p50 of every run"
            legend = tuple((name, numbered_style(place).paint, "circle") for place, name in enumerate(names))
            spec = strips("p50 of a run, ms", legend, [value for one in values if isinstance(value := one["value"], float)])
            text = f"{len(values):,} runs; a dot is a run, the stroke their median; hollow: suspect."
            drawn.append(context.sheet.draw(Chart(title, spec, rows_table(values), text)))
    return part("gallery", drawn) if drawn else note("No run has a p50.")


def _runs_of_case(context: ViewContext, case: IndexedCase, name: str) -> list[dict[str, Plain]]:
    since_ns = case.current.segment.since_ns if case.current.segment else 0
    runs = [run for run in runs_of(context.connection, case.number, newest=RUNS_DRAWN) if run.started_at_ns >= since_ns]
    return [
        {"series": name, "value": run.p50_ms, "low": run.p50_low_ms, "high": run.p50_high_ms, "verdict": run.verdict, "run": run.id}
        for run in runs
        if run.is_usable and run.p50_ms
    ]


def _budgets(context: ViewContext, drawn: Sequence[IndexedCase]) -> Markup:
    with_energy = [case for case in drawn if case.newest.energy]
    if not with_energy:
        reasons = sorted({case.newest.energy_reason or "not measured" for case in drawn})
        return note(f"No energy: {'; '.join(reasons)}.")
    pictures = [
        element(
            "div",
            None,
            element("h3", None, f"{case.key.device}: {case.key.precision} on {case.key.runtime}, newest run"),
            energy_budget(context, case.newest),
        )
        for case in with_energy[:BUDGETS]
    ]
    return part("gallery", pictures)
