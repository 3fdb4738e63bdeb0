"""The decision: limits as a form, the cases that meet them with certainty, those that may and those that do not, and the one to ship."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import ACCURACY, ENERGY, LATENCY, MEMORY, TOKEN_ENERGY, TTFT, Bounds
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.figures import Figure
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.choose.candidate import ChoiceCandidate
from edgemeter.collector.choose.certainty import ORDER, Certainty, LimitFinding, figure_text, value_of
from edgemeter.collector.choose.choice import Choice, choose
from edgemeter.collector.choose.choice_document import basis, objective_text, rows_of
from edgemeter.collector.choose.limits import ChoiceLimits, FigureLimit, figure_limit, parse_limits
from edgemeter.collector.choose.sentence import called
from edgemeter.collector.compare.comparison import reference_cases
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.index.index_file import FACETS
from edgemeter.collector.runs.figure_names import figure_called
from edgemeter.collector.web.context import ViewContext, baselines
from edgemeter.collector.web.markup import Markup, element, join
from edgemeter.collector.web.queries import CaseFilter, cases, count_cases, summaries
from edgemeter.collector.web.view import FileLinks, FormInput, Links, View, ViewColumn, ViewRequest, grid, link, note, section, with_small

FILTERS = ("model", "board", "device", "days", "level")
# The limits that most people set have a field; all others are written.
USUAL = (LATENCY, "latency_p99_ms", TTFT, "generation_decode_tokens_per_s", MEMORY, ENERGY, TOKEN_ENERGY, ACCURACY)
# Among more cases than these nobody chooses, and every interval would be too wide to say anything.
MOST_CASES = 400
HEADINGS: Mapping[Certainty, str] = {
    "meets": "Meet the limits",
    "may meet": "May meet the limits",
    "does not meet": "Do not meet the limits",
}
# The width of a drawn interval, and what its scale has beside the values, as a share of their range.
WIDTH, BESIDE = 96, 0.15
METHOD = (
    "A case meets a limit with certainty if its whole interval lies on the right side, and does not if the whole lies beyond it. Figures"
    " without an interval, of disturbed runs, or of one or two days are never certain."
)


def decide_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the decision by the limits in the address; what is wrong with one is said above the form."""
    count = count_cases(context.connection, case_filter)
    if not count:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS)
    if count > MOST_CASES:
        text = f"There are {count:,} cases: pick a model, a board or a device until at most {MOST_CASES} are left to choose among."
        return View("Decide", note(text), filters=FILTERS)
    candidates = summaries(context.connection, cases(context.connection, case_filter), case_filter)
    # A file cannot choose again.
    is_file = isinstance(context.links, FileLinks)
    empty = View("Decide", NO_CASE, filters=() if is_file else FILTERS, inputs=() if is_file else _inputs(context, request, candidates))
    if not candidates:
        return empty
    try:
        limits = limits_of(request.fields, candidates)
        choice = _choice(context, request, case_filter, candidates, limits)
    except ConfigError as error:
        return replace(empty, body=element("p", {"class": "caution", "role": "alert"}, f"{error}."))
    remark = [note("To choose by other limits serve the ledger: `edgemeter collector web`.")] if is_file else []
    markup, tables = _body(choice, context.links, request)
    title = f"Ship {choice.pick.name}" if choice.pick else "Nothing to ship yet" if choice.in_state("may meet") else "Nothing to ship"
    return replace(empty, title=title, lead=f"{choice.sentence}.", body=join([*remark, markup]), tables=tables)


NO_CASE = note("No case has a usable run: pick another model, board or device.")


def _choice(
    context: ViewContext, request: ViewRequest, case_filter: CaseFilter, candidates: Sequence[CaseSummary], limits: ChoiceLimits
) -> Choice:
    by, baseline = request.get("by") or None, request.get("baseline")
    by = figure_called(by, JUDGED.values()).name if by else None
    if not baseline:
        return choose(candidates, limits, by)
    # The baseline may be a board that was not picked.
    wider = case_filter.without("device", "board", "fleet", "precision", "runtime")
    everything = summaries(context.connection, cases(context.connection, wider), wider)
    belongs = reference_cases((case.key.device for case in everything), (case.key.role for case in everything), baseline)
    return choose(candidates, limits, by, [case for case in everything if belongs(case.key)])


def limits_of(fields: Mapping[str, str], candidates: Sequence[CaseSummary]) -> ChoiceLimits:
    """Return the limits in an address: a field for each figure, and `where` for conditions; raises ConfigError if one is invalid."""
    of_fields: list[FigureLimit] = []
    for name, entry in JUDGED.items():
        if text := fields.get(name):
            metrics = {called(entry, case) for case in candidates if case.accuracy} if name == ACCURACY else set()
            of_fields.append(figure_limit(metrics.pop() if len(metrics) == 1 else name, text))
    conditions = parse_limits(fields.get("where", ""))
    return ChoiceLimits((*of_fields, *conditions.figures), conditions.conditions)


def fields_of(limits: ChoiceLimits, by: str | None, baseline: str | None) -> dict[str, str]:
    """Return the fields of the address that shows a choice."""
    of_figures = {limit.figure.name: f"{limit.value:.12g}" for limit in limits.figures}
    conditions = ", ".join(condition.text for condition in limits.conditions)
    fields = {**of_figures, "where": conditions, "by": by or "", "baseline": baseline or ""}
    return {name: value for name, value in fields.items() if value}


def _inputs(context: ViewContext, request: ViewRequest, candidates: Sequence[CaseSummary]) -> tuple[FormInput, ...]:
    """Return the fields of the form: a limit for each usual figure, the other limits, what to choose by, and the baseline."""
    generates = any(case.generates for case in candidates)
    usual = [entry for entry in JUDGED.values() if entry.name in USUAL and (generates or not entry.is_of_text)]
    limited = [entry for entry in JUDGED.values() if entry in usual or request.get(entry.name)]
    scored = next((case for case in candidates if case.accuracy), None)
    of_figures = [
        FormInput(limit.figure.name, f"{_short(limit)} {_sign(limit)}", request.get(limit.figure.name), limit.figure.unit)
        for entry in limited
        if (limit := figure_limit(called(entry, scored) if entry.name == ACCURACY and scored else entry.name, "0"))
    ]
    by = [("", "energy, else latency"), *((entry.name, entry.title) for entry in JUDGED.values() if _is_known(entry, candidates))]
    baseline = [("", "the most precise case"), *((name, name) for name in baselines(context.connection))]
    return (
        *of_figures,
        FormInput("where", "More limits", request.get("where"), "p90<=40ms, scenario=offline"),
        FormInput("by", "Choose by", request.get("by"), options=tuple(by)),
        FormInput("baseline", "Held against", request.get("baseline"), options=tuple(baseline)),
    )


def _is_known(entry: Figure, candidates: Sequence[CaseSummary]) -> bool:
    return any(value_of(case, entry) is not None for case in candidates)


def _short(limit: FigureLimit) -> str:
    return limit.metric or limit.figure.title


def _sign(limit: FigureLimit) -> str:
    return "≤" if limit.side == "at most" else "≥"


def _body(choice: Choice, links: Links, request: ViewRequest) -> tuple[Markup, tuple[ViewTable, ...]]:
    columns = _columns(choice, links)
    parts = []
    for state in reversed(ORDER):
        members = choice.in_state(state)
        if members:
            markup, _ = grid(HEADINGS[state], columns, members, lambda candidate: {"class": _row_class(choice, candidate)})
            heading = f"{HEADINGS[state]}: {figures.count(len(members), 'case')}"
            parts.append(section(state.replace(" ", "-"), heading, markup))
    limits = choice.limits.text
    command = _command(choice, request)
    parts.append(section("basis", "What this rests on", element("p", None, basis(choice)), note(METHOD), element("pre", None, command)))
    rows = rows_of(choice)
    plain = ViewTable("candidates", tuple(rows[0]), tuple(tuple(row.values()) for row in rows))
    decision = ViewTable("decision", ("sentence", "limits", "by"), ((choice.sentence, limits, choice.by.name),))
    return join(parts), (plain, decision)


def _command(choice: Choice, request: ViewRequest) -> str:
    """Return the command that chooses the same; a period has no option."""
    picked = [f"{name}={value}" for name in FACETS if (value := request.get(name))]
    limits = ", ".join(filter(None, [choice.limits.text, *picked]))
    options = [(name, request.get(field)) for name, field in (("--choose-by", "by"), ("--reference", "baseline"))]
    texts = [text for name, value in options if value for text in (name, shlex.quote(value))]
    all_days = ["--all-days"] if request.get("level") == "all" else []
    return " ".join(["edgemeter compare --choose", shlex.quote(limits), *texts, *all_days])


def _row_class(choice: Choice, candidate: ChoiceCandidate) -> str | None:
    return "pick" if candidate is choice.pick else "out" if candidate.state == "does not meet" else None


def _columns(choice: Choice, links: Links) -> list[ViewColumn[ChoiceCandidate]]:
    def name(candidate: ChoiceCandidate) -> Markup:
        key = candidate.case.key
        over_time = links.to("trend", model=key.model, device=key.device, fleet=key.fleet)
        reference = over_time or links.to("trend", model=key.model)
        small = "ship this" if candidate is choice.pick else "not told apart from it" if candidate in choice.rivals else ""
        return with_small(link(reference, candidate.name), small)

    limited = [_limit_column(choice, limit, index) for index, limit in enumerate(choice.limits.figures)]
    is_limited = any(limit.figure is choice.by for limit in choice.limits.figures)
    return [
        ViewColumn("case", "Case", lambda candidate: candidate.name, name, is_text=True),
        ViewColumn("reason", "Decided by", lambda candidate: candidate.reason, is_text=True),
        *([] if is_limited else [_objective_column(choice)]),
        *limited,
        ViewColumn("runs", "Runs", lambda candidate: len(candidate.case.run_ids)),
        ViewColumn("board", "Board", lambda candidate: candidate.case.around.environment["board"], is_text=True),
    ]


def _limit_column(choice: Choice, limit: FigureLimit, index: int) -> ViewColumn[ChoiceCandidate]:
    values = [limit.value, *(value for candidate in choice.candidates if (value := candidate.findings[index].value) is not None)]
    room = (max(values) - min(values)) * BESIDE or abs(limit.value) * BESIDE or 1.0
    scale = min(values) - room, max(values) + room
    return ViewColumn(
        limit.text,
        f"{_short(limit)} {_sign(limit)} {limit.amount}",
        lambda candidate: candidate.findings[index].value,
        lambda candidate: _limit_cell(candidate.findings[index], scale),
    )


def _objective_column(choice: Choice) -> ViewColumn[ChoiceCandidate]:
    def cell(candidate: ChoiceCandidate) -> Markup:
        value, _, interval = objective_text(choice, candidate).partition(" (")
        return with_small(value, interval.removesuffix(")"))

    return ViewColumn(choice.by.name, choice.by.heading, lambda candidate: candidate.objective, cell)


def _limit_cell(finding: LimitFinding, scale: Bounds) -> Markup:
    if finding.value is None:
        return with_small("not measured", finding.state)
    value, _, interval = figure_text(finding.limit.figure, finding.value, finding.bounds).partition(" (")
    unit = f" {finding.limit.figure.unit}"
    words = with_small(value.removesuffix(unit), interval.removesuffix(")"))
    return join([words, _drawn_interval(finding, finding.value, scale), element("small", None, finding.state)])


def _drawn_interval(finding: LimitFinding, value: float, scale: Bounds) -> Markup:
    """Return the interval and the limit as a line, of what the cell has in words; what lies beyond the column's scale is cut."""

    def x(at: float) -> str:
        return f"{WIDTH * min(1.0, max(0.0, (at - scale[0]) / (scale[1] - scale[0]))):.1f}"

    low, high = finding.bounds or (value, value)
    marks = [
        element("line", {"class": "limit", "x1": x(finding.limit.value), "x2": x(finding.limit.value), "y1": "0", "y2": "12"}),
        element("line", {"x1": x(low), "x2": x(high), "y1": "6", "y2": "6"}),
        element("circle", {"cx": x(value), "cy": "6", "r": "3"}),
    ]
    return element(
        "svg", {"class": "interval", "viewBox": f"0 0 {WIDTH} 12", "width": str(WIDTH), "height": "12", "aria-hidden": "true"}, *marks
    )
