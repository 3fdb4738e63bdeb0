"""The comparison of every case with its reference.

It also shows the cases that meet the reader's limits, and cost against accuracy.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter

from edgemeter.agent.base import number_text
from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.figures import figure
from edgemeter.agent.contract.mode_answer import ModeAnswer
from edgemeter.agent.verdict.words import not_counted_text
from edgemeter.collector.compare.boards import fold_boards
from edgemeter.collector.compare.case_book import BookedCase
from edgemeter.collector.compare.comparison import MARKS, ComparedCase, Comparison, answers_of
from edgemeter.collector.compare.figure_differences import better_of, deciding, speed_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show import words
from edgemeter.collector.show.comparison_charts import (
    HOW_TO_READ_MARKS,
    anchor,
    energy_against_accuracy,
    latency_against_accuracy,
)
from edgemeter.collector.show.series_style import GLYPHS
from edgemeter.collector.show.words import (
    assumed_in_changes,
    decisions_text,
    figure_name,
    figure_text,
    listed,
)
from edgemeter.collector.web.case_table import CaseTable
from edgemeter.collector.web.choice_filter import choice_filter, choice_inputs
from edgemeter.collector.web.queries import (
    CaseFilter,
    ViewContext,
    compare,
    picked_cases,
    reference_names,
)
from edgemeter.collector.web.view import View, ViewColumn, ViewGrid, ViewRequest

# With more devices than this the title counts them, and a lead would be too long.
NAMED = 3


def compare_view(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the comparison with the selected reference, else with the first."""
    every_case = picked_cases(context.book, case_filter)
    if not every_case:
        body = context.render("message.html", text="Pick another model, board or device.")
        return View("No run matches", body)
    reference = request.get("reference") or reference_names(context.book, case_filter.model)[0]
    picked = {"reference": reference}
    comparison = compare(context, every_case, case_filter, reference)
    left_out = _left_out(comparison, every_case)
    if not comparison.rows:
        body = context.render("left_out.html", left_out=left_out, words=words)
        return View(f"No case matches the reference {reference}", body, picked=picked)
    folded = fold_boards(comparison)
    by_limits, caution = choice_filter(request, folded, {case.key for case in every_case})
    table = CaseTable(context, comparison, folded, by_limits)
    # A file has only one reference.
    is_file = context.links.is_file
    body = context.render(
        "compare.html",
        by_limits=by_limits,
        outlying=context.events.outlying,
        glyphs=GLYPHS,
        caution=caution,
        table=table,
        page=table.page(request),
        rows=comparison.rows,
        cases=[row.case for row in comparison.rows],
        fewest=FEWEST,
        galleries=[
            make(folded, table.styles, with_boards=is_file)
            for make in (latency_against_accuracy, energy_against_accuracy)
        ],
        how_to_read_marks=HOW_TO_READ_MARKS,
        modes=[(answer.title, _mode_table(answer)) for answer in answers_of(comparison)],
        marks=_marks(comparison),
        assumed=list(
            assumed_in_changes(
                decision for row in comparison.rows for decision in row.decisions.values()
            )
        ),
        not_compared=len(comparison.left_out),
        left_out=left_out,
        words=words,
        anchor=anchor,
        not_counted_text=not_counted_text,
    )
    # Replayed or simulated runs do not share the headline with measured ones, unless nothing was
    # measured.
    measured = tuple(row for row in comparison.rows if row.case.key.provenance == "measured")
    text = (
        by_limits.sentence
        if by_limits
        else _lead(
            replace(comparison, rows=measured)
            if any(not row.is_reference for row in measured)
            else comparison
        )
    )
    return View(
        _title(comparison),
        body,
        text,
        (table.plain, by_limits.table) if by_limits else (table.plain,),
        picked,
        () if is_file else choice_inputs(request, comparison),
    )


def _title(comparison: Comparison) -> str:
    compared = comparison.compared
    references = sorted({row.reference.key.device for row in comparison.rows})
    devices = sorted({row.case.key.device for row in compared or comparison.rows})
    models = sorted({row.case.key.model for row in compared or comparison.rows})
    if not models:
        return "Nothing could be compared"
    is_short = len(devices) <= NAMED
    subject = (
        f"{listed(models, NAMED)} on "
        f"{listed(devices) if is_short else number_text.count(len(devices), 'device')}"
    )
    return (
        f"{subject}, against {listed(references, NAMED)}"
        if compared and devices != references
        else subject
    )


def _lead(comparison: Comparison) -> str:
    """Return a summary of the models on the devices, if these are few."""
    identity = attrgetter("fleet", "device", "model", "dataset_sha256", "scenario")
    groups = grouped(
        (identity(row.case.key), row) for row in comparison.compared or comparison.rows
    ).values()
    fastest = [
        min(rows, key=lambda row: (row.not_ranked is not None, _duration(row.case)))
        for rows in groups
    ]
    return " ".join(map(_sentence, fastest)) if len(fastest) <= NAMED else ""


def _duration(case: CaseSummary) -> float:
    """Return the time of a case, for a throughput its inverse; infinite without either."""
    name = speed_of(case)
    value = case.figures[name].value if name in case.figures else 0.0
    return math.inf if value <= 0 else value if better_of(name, case) == "lower" else 1 / value


def _sentence(row: ComparedCase) -> str:
    """Return the figures of a case, and their differences from those of its reference."""
    case, other = row.case, row.reference
    texts = [
        (
            f"{figure_name(name, case)} "
            f"{figure_text(figure(name), case.figures[name], figure(name).unit)}"
        )
        for name in deciding(case, case)
    ]
    kind = f"{case.key.precision} on {case.key.runtime_text}"
    text = (
        f"{case.key.device} with {case.key.model}, {kind}: {', '.join(texts) or 'too few queries'}."
    )
    if row.is_reference:
        return text
    against = f"{other.key.precision} on {other.key.runtime_text}, {other.key.device}"
    return f"{text} Against {against}: {decisions_text(row)}."


def _mode_table(answer: ModeAnswer) -> ViewGrid[tuple[str, ...]]:
    return ViewGrid(
        "modes",
        [
            ViewColumn(heading, heading, itemgetter(number), is_text=True)
            for number, heading in enumerate(answer.columns)
        ],
        [list(zip(*answer.columns.values(), strict=True))],
    )


def _marks(comparison: Comparison) -> list[tuple[str, int, str]]:
    """Return the marks of the rows that need an explanation.

    Each has its number of cases, and its meaning.
    """
    counts = Counter(mark for row in comparison.rows for mark in row.marks)
    return [
        (mark, counts[mark], text)
        for mark, text in MARKS.items()
        if counts[mark] and mark not in {"reference", "disturbed"}
    ]


def _left_out(
    comparison: Comparison, shown_cases: Sequence[BookedCase]
) -> list[tuple[str, Sequence[str]]]:
    """Return the reasons why runs are left out, the most frequent first.

    Each has the runs' names, empty if unknown.
    """
    runs_by_reason = grouped((entry.reason, entry.name) for entry in comparison.left_out)
    if unusable := sum(case.runs - case.usable for case in shown_cases):
        runs_by_reason["invalid, or not comparable; the page of each says why"] = [""] * unusable
    return sorted(runs_by_reason.items(), key=lambda item: -len(item[1]))
