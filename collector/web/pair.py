"""The page of two runs: only the facts in which they differ, both distributions and power curves in one chart each, and their ratios."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent.base import figures
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.run_specs import power_curves
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.judgement import CaseJudgements, change_text, interval_text, judge_case, ratios
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.show.comparison_charts import distribution_chart, latency_distribution
from edgemeter.collector.show.run_pair import NO_INTERVAL, FactPair, PairedFigure, RunPair, pair_of
from edgemeter.collector.show.series_style import numbered_style
from edgemeter.collector.show.wording import sentence
from edgemeter.collector.web.context import ViewContext, read_run
from edgemeter.collector.web.markup import NOTHING, Markup, element, join, part
from edgemeter.collector.web.queries import CaseFilter, cases_by_number, summaries
from edgemeter.collector.web.run import POINTS
from edgemeter.collector.web.run_samples import power_trace, thinned
from edgemeter.collector.web.view import View, ViewColumn, ViewRequest, grid, link, note, section, verdict_cell, with_small


@dataclass(frozen=True, slots=True)
class _OverRuns:
    """The cases of both runs over all their runs: one summary where they are of one case, and the judgements where they are of two."""

    summaries: tuple[CaseSummary, ...] = ()
    judgements: CaseJudgements | None = None


def pair_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:  # noqa: ARG001 - every view has the same signature
    """Return two runs of one model side by side; raises ConfigError if one is not there, or they cannot be compared at all."""
    ids = [request.get("a"), request.get("b")]
    if not all(ids):
        how = "Tick two runs in a list of runs, or pick the second on the page of the first; the address is pair?a=ID&b=ID."
        return View("Pick two runs", note(how))
    (a, number), (b, other_number) = (read_run(context, run_id) for run_id in ids)
    pair = pair_of(a, b)
    over_runs = _over_runs(context, pair, (number, other_number))
    table, plain = grid("figures", _columns(pair, over_runs), pair.figures)
    differing, facts = grid("differences", _FACTS, pair.differing)
    curves = [*_distribution(context, pair), *_power(context, pair)]
    parts = [
        part("cards", [_card(context, "A", a), _card(context, "B", b)]),
        section("figures", "Figures", *([element("p", {"class": "caution"}, f"{sentence(pair.no_ratio)}.")] if pair.no_ratio else []),
                table, *_remarks(pair, over_runs)),
        section("differences", "What differs", differing if pair.differing else note("No fact differs."), _folded(pair.equal)),
        *curves,
    ]  # fmt: skip
    return View(f"Two runs of {a.model.name}", join(parts), _lead(context, pair), (plain, facts))


def _over_runs(context: ViewContext, pair: RunPair, numbers: Sequence[int]) -> _OverRuns:
    if pair.no_ratio:
        return _OverRuns()
    case_filter = CaseFilter(level="all") if pair.is_one_case else CaseFilter()
    by_number = {case.number: case for case in cases_by_number(context.connection, numbers, case_filter)}
    by_key = {summary.key: summary for summary in summaries(context.connection, list(by_number.values()), case_filter)}
    sides = [by_key[by_number[number].key] for number in dict.fromkeys(numbers) if number in by_number and by_number[number].key in by_key]
    if len(sides) < 2:
        return _OverRuns(tuple(sides) if pair.is_one_case else ())
    case_a, case_b = sides
    return _OverRuns((case_a, case_b), judge_case(case_b, case_a, ratios(case_b, case_a), context.matters))


def _columns(pair: RunPair, over_runs: _OverRuns) -> list[ViewColumn[PairedFigure]]:
    columns: list[ViewColumn[PairedFigure]] = [
        ViewColumn("figure", "Figure", lambda figure: figure.heading, is_text=True),
        *(_side(index, name) for index, name in enumerate(("A", "B"))),
    ]
    if not pair.no_ratio:
        columns += [
            ViewColumn("change", "B against A", lambda figure: figure.decision.value if figure.decision else None, _change),
            ViewColumn("low", "", lambda figure: _bound(figure, 0), is_shown=False),
            ViewColumn("high", "", lambda figure: _bound(figure, 1), is_shown=False),
        ]
    if over_runs.judgements is not None:
        judgements = over_runs.judgements
        columns.append(ViewColumn("cases", "Over all runs of both cases", lambda figure: _judged(figure, judgements), is_text=True))
    elif over_runs.summaries:
        (summary,) = over_runs.summaries
        columns.append(ViewColumn("range", "All runs of the case", lambda figure: _range(figure, summary), is_text=True))
    return columns


def _side(index: int, name: str) -> ViewColumn[PairedFigure]:
    return ViewColumn(name.lower(), name, lambda figure: figure.values[index], lambda figure: with_small(*_value_and_bounds(figure, index)))


def _value_and_bounds(figure: PairedFigure, index: int) -> tuple[str, str]:
    value, _, within = figure.text(index).partition(" (")
    return figures.typeset(value), figures.typeset(within.removesuffix(")"))


def _change(figure: PairedFigure) -> str:
    if not figure.change:
        return with_small(figures.typeset(figures.ABSENT), figure.interval)
    has_bounds = figure.decision is not None and figure.decision.bounds is not None
    interval = f"95% {figures.typeset(figure.interval)}" if has_bounds else "no interval"
    return with_small(figures.typeset(figure.change), interval)


def _bound(figure: PairedFigure, end: int) -> float | None:
    return figure.decision.bounds[end] if figure.decision and figure.decision.bounds else None


def _judged(figure: PairedFigure, judgements: CaseJudgements) -> str | None:
    judged = judgements.get(figure.name)
    if judged is None or judged.decision.value is None:
        return None
    value, bounds = judged.decision.value, judged.decision.bounds
    change = change_text(figure.name, value)
    within = f", 95% {interval_text(figure.name, bounds)}" if bounds else ""
    reason = f" ({judged.decision.reason})" if judged.decision.reason else ""
    return f"{figures.typeset(f'{change}{within}')}: {judged.verdict}{reason}"


def _range(figure: PairedFigure, summary: CaseSummary) -> str | None:
    spread = summary.spreads.get(JUDGED[figure.name].name) if figure.name in JUDGED else summary.accuracy_value
    return None if spread is None else f"{figures.span(spread.low, spread.high)} over {figures.count(spread.n, 'run')}"


def _remarks(pair: RunPair, over_runs: _OverRuns) -> list[Markup]:
    lines = ["Below a value stand its 95% bounds over the queries, or of an energy the uncertainty of its meter."]
    if not pair.no_ratio:
        only_accuracy = any(figure.decision and figure.decision.bounds for figure in pair.figures)
        exception = " An accuracy has one: it is over the images." if only_accuracy else ""
        lines.append(f"{sentence(NO_INTERVAL)}.{exception}")
    if pair.is_one_case:
        lines.append("Both are runs of one case: what lies within the range of its runs is what a run differs by from the next.")
    elif over_runs.judgements is not None:
        counts = " against ".join(figures.count(len(side.run_ids), "run") for side in over_runs.summaries)
        lines.append(f"The last column compares the cases, as the comparison does: {counts}, each since the last change of its level.")
    return [note(" ".join(lines))]


_FACTS: list[ViewColumn[FactPair]] = [
    ViewColumn("group", "About", lambda fact: fact.group, is_text=True),
    ViewColumn("fact", "Fact", lambda fact: fact.name, is_text=True),
    ViewColumn("a", "A", lambda fact: fact.a, lambda fact: fact.a or "not reported", is_text=True),
    ViewColumn("b", "B", lambda fact: fact.b, lambda fact: fact.b or "not reported", is_text=True),
]


def _folded(equal: Sequence[FactPair]) -> Markup:
    if not equal:
        return NOTHING
    verb = "fact is" if len(equal) == 1 else "facts are"
    named = {f"{fact.group}: {fact.name}": fact.a for fact in equal}
    return element("details", {"class": "equal"}, element("summary", None, f"{len(equal)} {verb} equal"), part("facts", named))


def _distribution(context: ViewContext, pair: RunPair) -> list[Markup]:
    lines = [(side, shares) for side, run in (("A", pair.a), ("B", pair.b)) if (shares := latency_distribution([run], POINTS // 4))]
    if not lines:
        return [section("distribution", "Distribution", note("The raw samples of neither run are stored."))]
    text = "; ".join(f"{side}: {shares.count:,} queries" for side, shares in lines)
    missing = note(f"The raw samples of {'B' if lines[0][0] == 'A' else 'A'} are not stored.") if len(lines) == 1 else NOTHING
    chart = distribution_chart("Cumulative share of queries", lines, f"{text}.")
    return [section("distribution", "Distribution", part("gallery", [context.sheet.draw(chart)]), missing)]


def _power(context: ViewContext, pair: RunPair) -> list[Markup]:
    rows: list[Mapping[str, str | float]] = []
    names: list[str] = []
    for side, run in (("A", pair.a), ("B", pair.b)):
        traces = {trace.name: points for trace in run.power_traces if (points := power_trace(run, trace.name))}
        for index, (sensor, points) in enumerate(traces.items()):
            names.append(f"{side}, {sensor}{' (dashed)' if index else ''}")
            at_s, watts = zip(*points, strict=True)
            rows += [{"series": names[-1], "at_s": at_s[number], "power_w": watt} for number, watt in thinned(watts, POINTS // 2)]
    if not rows:
        return [section("power", "Power", note("Neither run has the readings of a power sensor."))]
    # A has one colour throughout, B another; several sensors of one run differ in their dashes.
    legend = tuple((name, numbered_style(0 if name.startswith("A, ") else 1).paint, "circle") for name in names)
    chart = Chart("Power from the start of the measured phase", power_curves(legend), rows_table(rows), legend=legend, kind="wide")
    missing = [side for side in ("A", "B") if not any(name.startswith(f"{side}, ") for name in names)]
    remark = note(f"{missing[0]} has no readings of a power sensor.") if missing else NOTHING
    return [section("power", "Power", part("gallery", [context.sheet.draw(chart)]), remark)]


def _card(context: ViewContext, side: str, run: RunRecord) -> dict[str, object]:
    links = context.links
    device = link(links.to("device", fleet=run.fleet, device=run.device), run.device)
    lines = [
        join(["run ", link(links.to("run", id=run.id), run.id)]),
        join([device, f", {figures.stamp(run.started_at_ns)} UTC"]),
        f"{run.precision} on {run.runtime.name} {run.runtime.version}, {run.runtime.threads_text}",
        verdict_cell(run.verdict.state),
    ]
    return {"heading": side, "figure": f"p50 {figures.significant(run.latency.p50_ms)} ms", "lines": lines}


def _lead(context: ViewContext, pair: RunPair) -> str:
    swapped = context.links.to("pair", a=pair.b.id, b=pair.a.id)
    p50 = next((figure for figure in pair.figures if figure.name == "latency"), None)
    ratio = f"B takes {figures.typeset(figures.times(p50.decision.value))} the p50 of A. " if p50 and p50.decision else ""
    kind = "Two runs of one case. " if pair.is_one_case else ""
    counted = f"They differ in {figures.count(len(pair.differing), 'fact')}; {len(pair.equal)} are equal."
    return join([f"{kind}{ratio}{counted} ", link(swapped, "Exchange A and B")])
