"""The summary table of the report: a row per case, grouped by what may be compared, the reference first."""

import base64
from collections.abc import Sequence

from edgemeter.collector.compare.columns import to_csv
from edgemeter.collector.compare.comparison import Comparison, Row, comparable
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.show import figures
from edgemeter.collector.show.looks import Look, Looks, outline
from edgemeter.collector.show.markup import Attributes, Markup, element, join
from edgemeter.collector.show.notes import Notes
from edgemeter.collector.show.report_columns import Column, columns
from edgemeter.collector.show.wording import case_names


def anchor(comparison: Comparison, row: Row) -> str:
    """Return the fragment under which the runs of `row` stand."""
    return f"case-{next(index for index, one in enumerate(comparison.rows, start=1) if one is row)}"


def key(look: Look) -> Markup:
    """Return the mark of a series, as large as a letter."""
    mark = element("path", {"d": outline(look.shape, 7, 7, 4.6), "class": f"mark {look.colour}"})
    return element("svg", {"class": "key", "viewBox": "0 0 14 14", "aria-hidden": "true"}, mark)


def summary_table(comparison: Comparison, looks: Looks) -> Markup:
    """Return the table, the notes that its cells cite, and a link to its figures as CSV."""
    notes = Notes()
    shown = columns(comparison.rows, notes)
    headings = [element("th", {"scope": "col", "class": "case"}, "Case")]
    headings += [element("th", {"scope": "col", "title": column.tells}, column.heading) for column in shown]
    bodies = [_body(comparison, members, shown, looks) for members in comparable(comparison.rows)]
    table = element("table", {"class": "summary"}, element("thead", None, element("tr", None, *headings)), *bodies)
    scroll = element("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": "Summary of all cases"}, table)
    cited = [element("li", None, text) for text in notes.texts]
    data = base64.b64encode(to_csv(comparison.rows).encode()).decode()
    csv = element("a", {"href": f"data:text/csv;charset=utf-8;base64,{data}", "download": "edgemeter-comparison.csv"}, "All columns as CSV")
    explained = "Medians over runs, the range over runs below them; below the ratio what it is to. "
    return join([scroll, element("ol", {"class": "note"}, *cited) if cited else "", element("p", {"class": "note"}, explained, csv, ".")])


def _body(comparison: Comparison, rows: Sequence[Row], shown: Sequence[Column], looks: Looks) -> Markup:
    newest = rows[0].case.newest
    data = f" {newest.model.task}, {newest.dataset.name} ({figures.count(newest.dataset.images, 'image')}), {newest.scenario}"
    heading = element("th", {"colspan": len(shown) + 1, "scope": "rowgroup"}, element("b", None, newest.model.name), data)
    lines = [element("tr", {"class": "group"}, heading)]
    for row, name in zip(rows, case_names([row.case for row in rows]), strict=True):
        cells = [_cell(column, row, rows) for column in shown]
        lines.append(element("tr", {"class": _class(row)}, _first(comparison, row, name, looks), *cells))
    return element("tbody", None, *lines)


def _class(row: Row) -> str | None:
    return " ".join([*(["reference"] if row.is_reference else []), *(["suspect"] if row.case.suspect else [])]) or None


def _first(comparison: Comparison, row: Row, name: str, looks: Looks) -> Markup:
    link = element("a", {"href": f"#{anchor(comparison, row)}"}, name)
    owner = f"{row.case.key.device}, reference" if row.is_reference else row.case.key.device
    detail = f"{owner}, {row.case.key.runtime} {row.case.key.runtime_version}, {figures.count(row.case.key.threads, 'thread')}"
    return element("th", {"scope": "row", "class": "case"}, key(looks.of(row)), link, element("small", None, detail))


def _cell(column: Column, row: Row, rows: Sequence[Row]) -> Markup:
    value = column.value(row)
    attributes: Attributes = {"data-value": None if value is None else f"{value:.6g}"}
    if column.has_bar and value is not None:
        largest = max(median_of(one.case.p50_ms) or 0.0 for one in rows) or 1.0
        attributes = {**attributes, "class": "bar", "style": f"--share:{max(0.0, value / largest):.1%}"}
    return element("td", attributes, column.cell(row))
