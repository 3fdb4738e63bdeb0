"""The summary table of the report: a row per case, grouped by what may be compared, the reference first."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgemeter.agent.base import figures
from edgemeter.collector.compare.columns import to_csv
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow, comparable
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.show.markup import Attributes, Markup, element, join, render
from edgemeter.collector.show.series_style import GLYPHS, SeriesStyle, SeriesStyles
from edgemeter.collector.show.wording import Notes, accuracy_name, case_names, gross_text, level_text, runtime_name


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """One column; `has_bar` draws the value as a bar below the figure."""

    heading: str
    explanation: str
    cell: Callable[[ComparisonRow], Markup]
    value: Callable[[ComparisonRow], float | None]
    has_bar: bool = False


def report_columns(rows: Sequence[ComparisonRow], notes: Notes) -> list[ReportColumn]:
    """Return the columns; what a cell has no room for is cited from `notes`."""
    energy = [
        ReportColumn(
            "Gross mJ",
            "energy per inference, idle included, 95 %",
            lambda row: gross_cell(row, lambda reason: _none(f"No energy: {reason}", notes)),
            _value(lambda case: case.gross_mj),
        ),
        ReportColumn("Net mJ", "energy per inference, idle taken off, 95 %", _net, _value(lambda case: case.net_mj)),
    ]
    return [
        _spread("p50 ms", "median latency of an inference", lambda case: case.p50_ms, has_bar=True),
        ReportColumn("to ref", "p50 against the reference's p50", lambda row: _against(row, notes), lambda row: row.ratios.p50),
        _spread("p90 ms", "nine of ten inferences are faster", lambda case: case.p90_ms),
        _spread("per s", "inferences per second", lambda case: case.throughput_per_s),
        ReportColumn(
            accuracy_name([row.case for row in rows]),
            "accuracy of the same model file, and its difference to the reference",
            lambda row: accuracy_cell(row, lambda reason: _none(f"No accuracy: {reason}", notes)),
            _value(lambda case: case.accuracy_value),
        ),
        _spread("Peak MB", "highest resident memory of the process", lambda case: case.peak_mb),
        *(energy if any(row.case.energy for row in rows) else energy[:1]),
        ReportColumn(
            "Runs",
            "independent processes",
            lambda row: _over(str(len(row.case.runs)), level_text(row.case)),
            lambda row: len(row.case.runs),
        ),
        ReportColumn("Verdict", "whether to believe the runs", _verdict, lambda row: row.case.suspect),
    ]


def _value(figure: Callable[[CaseSummary], Spread | None]) -> Callable[[ComparisonRow], float | None]:
    return lambda row: median_of(figure(row.case))


def _spread(heading: str, explanation: str, figure: Callable[[CaseSummary], Spread | None], *, has_bar: bool = False) -> ReportColumn:
    return ReportColumn(heading, explanation, lambda row: spread_cell(figure(row.case)), _value(figure), has_bar)


def spread_cell(found: Spread | None) -> Markup:
    """Return a median with the range over runs below it."""
    if found is None:
        return join([figures.typeset(figures.ABSENT)])
    median, span = figures.significant(found.median), figures.span(found.low, found.high)
    return _over(median, "" if span == median else span)


def accuracy_cell(row: ComparisonRow, absent: Callable[[str], Markup]) -> Markup:
    """Return the accuracy with its difference to the reference's; `absent` shows why there is none."""
    if row.case.accuracy is None:
        return absent(row.case.accuracy_reason or "not scored")
    difference = None if row.is_reference else row.ratios.accuracy_difference
    beside = "" if difference is None else figures.typeset(figures.difference(difference))
    return _over(figures.accuracy(row.case.accuracy.value.median), beside)


def gross_cell(row: ComparisonRow, absent: Callable[[str], Markup]) -> Markup:
    """Return the gross energy with its scope and ratio; `absent` shows why there is none."""
    energy = row.case.energy
    if energy is None:
        return absent(row.case.energy_reason or "not measured")
    ratio = None if row.is_reference else row.ratios.energy_gross
    return _over(
        gross_text(row.case), str(energy.ranks_as) if ratio is None else f"{energy.ranks_as}, {figures.typeset(figures.times(ratio))}"
    )


def _over(figure: str, beside: str) -> Markup:
    """Return a figure with something small below it."""
    return join([figure, element("small", None, beside)] if beside else [figure])


def _none(note: str, notes: Notes, word: str = "none") -> Markup:
    return element("span", {"class": "none", "title": note}, word, element("sup", None, f" {notes.cite(note)}"))


def _against(row: ComparisonRow, notes: Notes) -> Markup:
    if row.not_ranked:
        return _none(row.not_ranked, notes, "not ranked")
    if row.is_reference:
        return element("em", None, "reference")
    beside = element("small", {"title": row.choice}, other_kind(row) or "same kind")
    return join([figures.typeset(figures.times(row.ratios.p50)), beside])


def other_kind(row: ComparisonRow) -> str:
    """Return precision and runtime of the reference where they are not those of the case."""
    key = row.reference.key
    return f"{key.precision} {key.runtime}" if (key.precision, key.runtime) != (row.case.key.precision, row.case.key.runtime) else ""


def _net(row: ComparisonRow) -> Markup:
    energy = row.case.energy
    if energy is None:
        return join([figures.typeset(figures.ABSENT)])
    if energy.net_mj is None:
        return element("span", {"class": "none"}, energy.net_state.replace("_", " "))
    ratio = None if row.is_reference else row.ratios.energy_net
    beside = "" if ratio is None else figures.typeset(figures.times(ratio))
    return _over(figures.with_uncertainty(energy.net_mj.median, energy.net_u_mj), beside)


def _verdict(row: ComparisonRow) -> Markup:
    if not row.case.suspect:
        return join(["valid"])
    return element("a", {"class": "doubt", "href": "#verdicts", "title": "; ".join(row.case.verdict_reasons)}, "? suspect")


def anchor(comparison: Comparison, row: ComparisonRow) -> str:
    """Return the fragment under which the runs of `row` stand."""
    return f"case-{next(index for index, one in enumerate(comparison.rows, start=1) if one is row)}"


def summary_key(style: SeriesStyle) -> Markup:
    """Return the mark of a series, as large as a letter."""
    return element("span", {"class": f"key {style.colour}", "aria-hidden": "true"}, GLYPHS[style.shape])


def summary_table(comparison: Comparison, styles: SeriesStyles) -> Markup:
    """Return the table, the notes that its cells cite, and a link to its figures as CSV."""
    notes = Notes()
    columns = report_columns(comparison.rows, notes)
    return render(
        "show/summary_table.html",
        columns=columns,
        groups=[_group(comparison, rows, columns, styles) for rows in comparable(comparison.rows)],
        notes=notes.texts,
        csv=base64.b64encode(to_csv(comparison.rows).encode()).decode(),
    )


def _group(
    comparison: Comparison, rows: Sequence[ComparisonRow], columns: Sequence[ReportColumn], styles: SeriesStyles
) -> dict[str, object]:
    names = case_names([row.case for row in rows])
    return {
        "model": rows[0].case.newest.model.name,
        "data": group_text(rows),
        "rows": [
            {
                "css": row_class(row),
                "key": summary_key(styles.of(row)),
                "anchor": anchor(comparison, row),
                "name": name,
                "detail": _detail(row),
                "cells": [(_attributes(column, row, rows), column.cell(row)) for column in columns],
            }
            for row, name in zip(rows, names, strict=True)
        ],
    }


def group_text(rows: Sequence[ComparisonRow]) -> str:
    """Return task, data and scenario that the rows of a group share."""
    newest = rows[0].case.newest
    return f"{newest.model.task}, {newest.dataset.name} ({figures.count(newest.dataset.images, 'image')}), {newest.scenario}"


def row_class(row: ComparisonRow) -> str | None:
    """Return the style sheet's classes of a row."""
    return " ".join([*(["reference"] if row.is_reference else []), *(["suspect"] if row.case.suspect else [])]) or None


def _detail(row: ComparisonRow) -> str:
    key = row.case.key
    owner = f"{key.device}, reference" if row.is_reference else key.device
    return f"{owner}, {runtime_name(row.case)}, {figures.count(key.threads, 'thread')}"


def _attributes(column: ReportColumn, row: ComparisonRow, rows: Sequence[ComparisonRow]) -> Attributes:
    value = column.value(row)
    if value is None:
        return {}
    attributes: Attributes = {"data-value": f"{value:.6g}"}
    if not column.has_bar:
        return attributes
    largest = max(median_of(one.case.p50_ms) or 0.0 for one in rows) or 1.0
    return {**attributes, "class": "bar", "style": f"--share:{max(0.0, value / largest):.1%}"}
