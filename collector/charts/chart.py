"""A chart is a Vega-Lite specification without data, its plain table, and its form in a page."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from edgemeter.agent.base.documents import Plain, csv_document
from edgemeter.agent.base.nanoseconds import NS_PER_MS

Spec = dict[str, Any]
# Digits of a figure in a chart's data: a table shows fewer; times are rounded to ms.
DIGITS = 6
# Width of a drawing where no browser decides it.
WIDTH_PX = 560


@dataclass(frozen=True, slots=True)
class ViewTable:
    """Plain values for charts, CSV and JSON.

    Names end in their unit, an absent value is None, and `rows` may be read more than once.
    """

    name: str
    columns: tuple[str, ...]
    rows: Iterable[tuple[Plain, ...]]

    def to_csv(self) -> str:
        return csv_document(self.columns, self.rows)

    def dicts(self) -> list[dict[str, Plain]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def between(self, first_ns: int, last_ns: int) -> "ViewTable":
        """Return the rows that started in a period.

        A table without `started_at_ns` is unchanged.
        """
        if "started_at_ns" not in self.columns:
            return self
        column = self.columns.index("started_at_ns")
        return replace(
            self,
            rows=tuple(row for row in self.rows if first_ns <= int(str(row[column])) <= last_ns),
        )


def rows_table(rows: Sequence[Mapping[str, Any]]) -> ViewTable:
    columns = tuple(rows[0]) if rows else ()
    return ViewTable(
        "values", columns, tuple(tuple(row[column] for column in columns) for row in rows)
    )


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart.

    `legend` is (name, colour, shape) of each series, which `series` names in the rows; `brushes`:
    it selects a period.

    `facts` are `data-...` attributes by which a page filters it; `kind` is a class of the style
    sheet.
    """

    title: str
    spec: Spec
    table: ViewTable
    note: str = ""
    legend: tuple[tuple[str, str, str], ...] = ()
    brushes: bool = False
    facts: Mapping[str, str | float | None] = field(default_factory=dict)
    events: Sequence[Any] = ()
    kind: str = ""

    @property
    def has_hollow_marks(self) -> bool:
        """Whether a mark is of a disturbed run or case, which is drawn hollow."""
        if "verdict" not in self.table.columns:
            return False
        column = self.table.columns.index("verdict")
        return any(row[column] == "disturbed" for row in self.table.rows)

    def document(self) -> Spec:
        """Return the chart for a page: columns and rows apart, so that no name is repeated."""
        times = [name.endswith("_ns") for name in self.table.columns]
        return {
            "spec": self.spec,
            "columns": self.table.columns,
            "rows": [
                [
                    value // NS_PER_MS * NS_PER_MS
                    if is_time and isinstance(value, int)
                    else short(value)
                    for value, is_time in zip(row, times, strict=True)
                ]
                for row in self.table.rows
            ],
            "legend": self.legend,
            "brushes": self.brushes,
        }


def script_data(value: object) -> str:
    """Return a value as JSON that cannot end its script element."""
    return (
        msgspec.json.encode(value)
        .decode()
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
    )


def short(value: Plain, digits: int = DIGITS) -> Plain:
    """Return a figure rounded to significant digits.

    A figure that is not finite becomes None; anything else is unchanged.
    """
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value
