"""The comparison: every case with its reference, what meets the limits that the reader sets, and cost against accuracy."""

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from edgemeter.agent.base import figures
from edgemeter.agent.contract.mode_answer import ModeAnswer
from edgemeter.agent.verdict.words import not_counted_text
from edgemeter.collector.compare.boards import fold_boards
from edgemeter.collector.compare.comparison import Comparison, answers_of
from edgemeter.collector.index.index_file import IndexedCase
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.comparison_charts import HOW_TO_READ_MARKS, anchor, energy_against_accuracy, latency_against_accuracy
from edgemeter.collector.show.wording import level_text, listed, runtime_name
from edgemeter.collector.web.case_table import CaseTable, evidence
from edgemeter.collector.web.choice_filter import choice_filter, choice_inputs
from edgemeter.collector.web.context import ViewContext, compare, reference_names
from edgemeter.collector.web.headline import cautions, lead, title
from edgemeter.collector.web.queries import CaseFilter, cases
from edgemeter.collector.web.view import FileLinks, View, ViewColumn, ViewGrid, ViewRequest

MORE_FILTERS = ("reference", "model", "board", "device", "fleet", "precision", "runtime", "days", "level")
REASONS_SHOWN, RUNS_NAMED = 40, 8
# What the template asks of a case.
WORDS = {
    "anchor": anchor,
    "level_text": level_text,
    "listed": listed,
    "not_counted_text": not_counted_text,
    "runtime_name": runtime_name,
}


def compare_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the comparison with the reference that was picked, else with the first there is."""
    every_case = cases(context.connection, case_filter)
    if not every_case:
        body = context.render("message.html", text="Pick another model, board or device.")
        return View("No run matches", body, more_filters=MORE_FILTERS)
    reference = request.get("reference") or reference_names(context.connection, case_filter.model)[0]
    picked = {"reference": reference}
    comparison = compare(context, every_case, case_filter, reference)
    left_out = _left_out(comparison, every_case)
    if not comparison.rows:
        body = context.render("left_out.html", left_out=left_out)
        return View(f"No case matches the reference {reference}", body, picked=picked, more_filters=MORE_FILTERS)
    folded = fold_boards(comparison)
    by_limits = choice_filter(request, folded, {case.key for case in every_case}, context.margins)
    table = CaseTable(context, comparison, folded, by_limits)
    # A file cannot choose again.
    is_file = isinstance(context.links, FileLinks)
    body = context.render(
        "compare.html",
        by_limits=by_limits,
        table=table,
        page=table.page(request),
        cautions=cautions(comparison),
        galleries=[make(folded, table.styles, with_boards=is_file) for make in (latency_against_accuracy, energy_against_accuracy)],
        how_to_read_marks=HOW_TO_READ_MARKS,
        modes=[(answer.title, _mode_table(answer)) for answer in answers_of(comparison)],
        evidence=evidence(comparison),
        left_out=left_out,
        **WORDS,
    )
    # What was replayed or simulated does not share the headline of what was measured, unless nothing was.
    measured = tuple(row for row in comparison.rows if row.case.key.provenance == "measured")
    has_measured = any(not row.is_reference for row in measured)
    text = by_limits.sentence or lead(replace(comparison, rows=measured) if has_measured else comparison)
    inputs = () if is_file else choice_inputs(request, comparison)
    return View(title(comparison), body, text, (table.plain, *by_limits.tables()), (), picked, inputs, MORE_FILTERS)


def _mode_table(answer: ModeAnswer) -> ViewGrid[tuple[str, ...]]:
    columns = [
        ViewColumn[tuple[str, ...]](heading, heading, itemgetter(number), is_text=True) for number, heading in enumerate(answer.columns)
    ]
    return ViewGrid("modes", columns, [list(zip(*answer.columns.values(), strict=True))])


class _LeftOut(NamedTuple):
    """The runs that are left out: how many for each reason, with the names of some; the sum; how many more reasons there are."""

    lines: Sequence[tuple[str, str, str]]
    summary: str
    further: int


def _left_out(comparison: Comparison, shown_cases: Sequence[IndexedCase]) -> _LeftOut:
    runs_by_reason = grouped((entry.reason, entry.run or "a record whose id cannot be read") for entry in comparison.left_out)
    if unusable := sum(case.runs - case.usable for case in shown_cases):
        runs_by_reason["invalid, or not comparable; the page of each says why"] = [""] * unusable
    reasons = sorted(runs_by_reason.items(), key=lambda item: -len(item[1]))
    lines = [
        (figures.count(len(runs), "run"), reason, listed(runs, RUNS_NAMED) if runs[0] else "") for reason, runs in reasons[:REASONS_SHOWN]
    ]
    summary = f"{figures.count(sum(map(len, runs_by_reason.values())), 'run')} for {figures.count(len(reasons), 'reason')}"
    return _LeftOut(lines, summary if lines else "nothing", len(reasons) - len(lines))
