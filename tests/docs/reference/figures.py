"""The table of figures: what each is called, and where it is shown."""

from collections.abc import Iterator

from edgemeter.agent.contract.figures import FIGURES, Figure, FigureView
from tests.docs.reference.tables import table

HEAD = """# Figures

Every figure of a run. Its name is the same in the record (a `.` for the first `_` of a part), in JSON, CSV, Parquet and InfluxDB, in the
addresses of the page and in the metrics of the trend. Options take the name, the name without its unit, or the title: `--figure p99`.
In a comparison `_min`, `_max`, `_low` and `_high` before the unit are the range over runs and the bounds of 95%, `_u` is an expanded
uncertainty.

"""
_VIEWS = {
    FigureView.RUN: "run", FigureView.TABLE: "tables", FigureView.JUDGED: "judged", FigureView.LIST: "lists", FigureView.CHART: "charts",
}  # fmt: skip


def page() -> str:
    """Return the page."""
    head = ["name", "title", "unit", "better", "shown in", "followed by the trend", "bounds"]
    return HEAD + table(head, (list(_cells(entry)) for entry in FIGURES))


def _cells(entry: Figure) -> Iterator[str]:
    yield f"`{entry.name}`"
    yield entry.title
    yield entry.unit or "1"
    yield entry.better or "-"
    yield ", ".join(name for view, name in _VIEWS.items() if view in entry.views) or "exports"
    yield "-" if entry.trend is None else "yes" if entry.trend.is_default else "if asked for"
    yield "uncertainty" if entry.u else "95%" if entry.low else "-"
