"""The table of figures: what each is called in every view."""

from collections.abc import Iterator

from edgemeter.agent.contract.figures import FIGURES, Figure
from tests.docs.reference.tables import table

HEAD = """# Figures

Every figure of a run: its name in InfluxDB, CSV and Parquet, in `edgemeter compare --json`, as `--figure` of a matrix and
of a trend. A dash: that view does not have it. Of the median of several runs `_min`, `_max`, `_low` and `_high` are the range and the
bounds of 95%, `_u` is an expanded uncertainty.

"""


def page() -> str:
    """Return the page."""
    head = ["figure", "unit", "better", "record, InfluxDB, CSV", "compare", "`compare --figure`", "`trend --figure`", "bounds"]
    return HEAD + table(head, (list(_cells(entry)) for entry in FIGURES))


def _cells(entry: Figure) -> Iterator[str]:
    def where(view: str, name: str) -> str:
        return f"`{name}`" if view in entry.views else "-"

    yield entry.title
    yield entry.unit or "1"
    yield entry.better or "-"
    yield f"`{entry.name}`" if entry.path else where("csv", entry.name)
    column = where("compare", entry.column)
    yield "same" if entry.path and column == f"`{entry.name}`" else column
    yield where("matrix", entry.choice)
    yield ", ".join(f"`{rule.name}`" for rule in entry.trends) or "-"
    yield "uncertainty" if entry.u else "95%" if entry.low else "-"
