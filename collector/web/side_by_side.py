"""The comparison: every case with its reference, what meets the limits that the reader sets, and cost against accuracy."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter

from edgemeter.agent.base import figures
from edgemeter.agent.contract.mode_answer import ModeAnswer
from edgemeter.collector.compare.boards import fold_boards
from edgemeter.collector.compare.comparison import Comparison, answers_of
from edgemeter.collector.index.index_file import IndexedCase
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.comparison_charts import HOW_TO_READ_MARKS, energy_against_accuracy, latency_against_accuracy
from edgemeter.collector.show.wording import listed
from edgemeter.collector.web.case_table import HOW_TO_READ, case_table, verdict_section
from edgemeter.collector.web.choice_filter import choice_filter, choice_inputs
from edgemeter.collector.web.context import ViewContext, compare, reference_names
from edgemeter.collector.web.headline import cautions, lead, title
from edgemeter.collector.web.markup import Markup, element, join, part
from edgemeter.collector.web.queries import CaseFilter, cases
from edgemeter.collector.web.view import (
    FileLinks,
    View,
    ViewColumn,
    ViewRequest,
    chart_gallery,
    folded_note,
    folded_section,
    folding_grid,
    note,
    section,
)

FILTERS: tuple[str, ...] = ()
MORE_FILTERS = ("reference", "model", "board", "device", "fleet", "precision", "runtime", "days", "level")
REASONS_SHOWN, RUNS_NAMED = 40, 8
METHOD = (
    "Latency is the runtime's call alone; pre- and post-processing are timed separately. A percentile that too few queries support is not"
    " shown. Accuracy is of the same model file, by its sha256. Only cases of the same model, task, scenario, data and input size are"
    " compared, and energies only at the same scope. A case meets a limit if its whole interval does, and misses it if the whole lies"
    " beyond: in between it is inconclusive."
)


def compare_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the comparison with the reference that was picked, else with the first there is."""
    every_case = cases(context.connection, case_filter)
    if not every_case:
        return View("No run matches", note("Pick another model, board or device."), filters=FILTERS, more_filters=MORE_FILTERS)
    reference = request.get("reference") or reference_names(context.connection, case_filter.model)[0]
    picked = {"reference": reference}
    comparison = compare(context, every_case, case_filter, reference)
    left_out = _left_out(comparison, every_case)
    if not comparison.rows:
        return View(f"No case matches the reference {reference}", left_out, "", (), FILTERS, picked, (), MORE_FILTERS)
    folded = fold_boards(comparison)
    by_limits = choice_filter(request, folded, {case.key for case in every_case}, context.margins)
    table = case_table(context, comparison, folded, by_limits)
    # A file cannot choose again.
    is_file = isinstance(context.links, FileLinks)
    gallery = [make(folded, table.styles, with_boards=is_file) for make in (latency_against_accuracy, energy_against_accuracy)]
    parts = [
        *([element("p", {"class": "caution", "role": "alert"}, by_limits.caution)] if by_limits.caution else []),
        section(
            "table",
            "Cases",
            table.page(request),
            *map(note, by_limits.remarks()),
            folded_note("How to read the table", *cautions(comparison), HOW_TO_READ, METHOD),
        ),
        section(
            "against-accuracy",
            "Latency and energy against accuracy",
            chart_gallery(context.sheet, gallery, has_one_legend=True),
            folded_note("How to read the marks", HOW_TO_READ_MARKS),
        ),
        *_modes(comparison),
        verdict_section(comparison),
        left_out,
    ]
    # What was replayed or simulated does not share the headline of what was measured, unless nothing was.
    measured = tuple(row for row in comparison.rows if row.case.key.provenance == "measured")
    has_measured = any(not row.is_reference for row in measured)
    text = by_limits.sentence or lead(replace(comparison, rows=measured) if has_measured else comparison)
    inputs = () if is_file else choice_inputs(request, comparison)
    return View(title(comparison), join(parts), text, (table.plain(), *by_limits.tables()), FILTERS, picked, inputs, MORE_FILTERS)


def _modes(comparison: Comparison) -> list[Markup]:
    """Return the section of cases that ran in several power modes or clocks of one board: a table of each."""
    tables = [(note(f"{answer.title}:"), _mode_table(answer)) for answer in answers_of(comparison)]
    return [section("modes", "Power modes and governors", *chain.from_iterable(tables))] if tables else []


def _mode_table(answer: ModeAnswer) -> Markup:
    columns = [
        ViewColumn[tuple[str, ...]](heading, heading, itemgetter(number), is_text=True) for number, heading in enumerate(answer.columns)
    ]
    return folding_grid("modes", columns, [list(zip(*answer.columns.values(), strict=True))], lambda _: {})


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
