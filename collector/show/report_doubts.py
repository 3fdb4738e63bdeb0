"""What to know before trusting the figures: the verdicts with their reasons, and what was left out and why."""

from edgemeter.collector.compare.comparison import MARKS, Comparison, Row
from edgemeter.collector.show import figures
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.report_table import anchor

IDS_SHOWN = 20


def verdicts(comparison: Comparison) -> Markup:
    """Return the suspect cases with their reasons, and what the marks of the rows mean."""
    suspect = [row for row in comparison.rows if row.case.suspect]
    if not suspect:
        opening = element("p", None, "No rule of measuring was broken in any of the runs shown.")
    else:
        opening = element("ul", {"class": "reasons"}, *(_doubt(comparison, row) for row in suspect))
    marks = [mark for mark in MARKS if any(mark in row.marks for row in comparison.rows) and mark not in {"reference", "suspect"}]
    lines = [
        element(
            "li",
            None,
            element("b", None, mark),
            f" ({figures.count(sum(mark in row.marks for row in comparison.rows), 'case')}): {MARKS[mark]}",
        )
        for mark in marks
    ]
    return join([opening, element("ul", {"class": "reasons"}, *lines) if lines else ""])


def left_out(comparison: Comparison) -> Markup:
    """Return what was left out: each reason with the runs that it holds for."""
    if not comparison.left_out:
        return element("p", None, "Nothing was left out.")
    grouped: dict[str, list[str]] = {}
    for entry in comparison.left_out:
        grouped.setdefault(entry.reason, []).append(entry.run or "a record whose id cannot be read")
    lines = []
    for reason, runs in sorted(grouped.items(), key=lambda item: -len(item[1])):
        ids = ", ".join(runs[:IDS_SHOWN]) + (f" and {len(runs) - IDS_SHOWN} more" if len(runs) > IDS_SHOWN else "")
        lines.append(element("li", None, element("b", None, figures.count(len(runs), "run")), f": {reason}", element("small", None, ids)))
    return element("ul", {"class": "reasons"}, *lines)


def _doubt(comparison: Comparison, row: Row) -> Markup:
    case = element(
        "a",
        {"href": f"#{anchor(comparison, row)}"},
        f"{row.case.key.model}, {row.case.key.precision} on {row.case.key.runtime}, {row.case.key.device}",
    )
    return element("li", None, case, element("ul", None, *(element("li", None, reason) for reason in row.case.verdict_reasons)))
