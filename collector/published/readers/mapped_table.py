"""Any CSV or Markdown table: `--column HEADING=FIELD` states which column holds what, such as "Model=model" or "Latency (ms)=latency:ms".

Recognises nothing by itself: `--reader table` with a mapping. A command makes it of its options, `HEADING=TARGET` each, by `column()`, and
passes the list as `defaults["columns"]`:

    --column "Model=model" --column "Latency (ms)=latency:ms" --column "tok/s=tokens"

A target is a field of `PublishedRow`, or a figure with its unit. Without a unit each cell has to state it (`3.28 s`), unless the figure
has one unit only. Each figure's column makes a row of its own; a cell that is no number, or in an unknown unit, is left out and named.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import ReadTable, RowCollector
from edgemeter.collector.published.numbers import quantity
from edgemeter.collector.published.readers.markup_tables import MarkupTable, markdown_tables
from edgemeter.collector.published.row import KINDS, PublishedRow

_FIELDS = frozenset(PublishedRow.__struct_fields__) - {"figure", "value", "unit"}


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """A column of the user's table: `target` is a field of `PublishedRow`, or a name of `KINDS` whose cells are in `unit`."""

    heading: str
    target: str
    unit: str = ""

    @property
    def is_figure(self) -> bool:
        """Whether the cells are figures, not facts about them."""
        return self.target in KINDS


def column(text: str) -> ColumnMapping:
    """Return the column that `HEADING=FIELD` or `HEADING=FIGURE:UNIT` describes; raises ConfigError if it is neither."""
    heading, _, target = text.rpartition("=")
    name, _, unit = target.strip().partition(":")
    if not heading.strip() or (name not in KINDS and name not in _FIELDS):
        raise ConfigError(
            f"column {text!r} is not HEADING=FIELD or HEADING=FIGURE:UNIT; "
            f"fields: {', '.join(sorted(_FIELDS))}; figures: {', '.join(KINDS)}"
        )
    if name in KINDS and unit and KINDS[name].factor(unit) is None:
        raise ConfigError(f"column {text!r}: {unit!r} is not a unit of {name}: {', '.join(KINDS[name].units)}")
    if name in _FIELDS and unit:
        raise ConfigError(f"column {text!r}: the field {name} has no unit, only figures have one")
    return ColumnMapping(heading.strip(), name, unit)


class MappedTable:
    """Reads a table by the columns in `defaults["columns"]`, a sequence of `ColumnMapping`."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - a mapping cannot be guessed
        """Return False: without a mapping a table says nothing."""
        return False

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return a row for each figure; raises ConfigError without a mapping, and if no table has all of its columns."""
        columns: Sequence[ColumnMapping] = defaults.get("columns", ())
        if not any(entry.is_figure for entry in columns):
            raise ConfigError('a table needs its columns, one of them a figure: --column "Model=model" --column "Latency (ms)=latency:ms"')
        headings = [entry.heading for entry in columns]
        collector = RowCollector({name: value for name, value in defaults.items() if name != "columns"})
        tables = markdown_tables(text) or _csv_tables(text, headings)
        for table in tables:
            if table.has(*headings):
                _read_table(table, columns, collector)
            else:
                collector.leave_out(f"table at line {table.line}", f"it has the columns {', '.join(table.names)}")
        if not any(table.has(*headings) for table in tables):
            present = "; ".join(", ".join(table.names) for table in tables) or "none"
            raise ConfigError(f"no table has the columns {', '.join(headings)}: those of the file are {present}")
        return collector.table()


def _csv_tables(text: str, headings: Sequence[str]) -> list[MarkupTable]:
    """Return the CSV table in `text`, split by the separator whose header has the columns asked for, else by commas."""
    tables = {separator: _csv_table(text.strip().partition("\n")[0], separator) for separator in ",;\t"}
    separator = next((candidate for candidate, header in tables.items() if header and header.has(*headings)), ",")
    table = _csv_table(text, separator)
    return [table] if table else []


def _csv_table(text: str, separator: str) -> MarkupTable | None:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        rows = [(reader.line_num, tuple(cell.strip() for cell in cells)) for cells in reader if cells]
    except csv.Error as error:
        raise ConfigError(f"line {reader.line_num}: not a CSV table: {error}") from error
    return MarkupTable(rows[0][0], rows[0][1], tuple(rows[1:])) if rows else None


def _read_table(table: MarkupTable, columns: Sequence[ColumnMapping], collector: RowCollector) -> None:
    mapped = {entry.heading.casefold() for entry in columns}
    if unmapped := [name for name in table.names if name.casefold() not in mapped]:
        collector.leave_out(f"table at line {table.line}", f"columns without a mapping: {', '.join(unmapped)}")
    for line, cells in table.records(collector):
        facts = {entry.target: cells[entry.heading.casefold()] or None for entry in columns if not entry.is_figure}
        for entry in columns:
            if entry.is_figure:
                _add(collector, f"line {line}, {entry.heading}", cells[entry.heading.casefold()], entry, facts)


def _add(collector: RowCollector, where: str, cell: str, entry: ColumnMapping, facts: Mapping[str, str | None]) -> None:
    kind = KINDS[entry.target]
    units = kind.units
    try:
        value, unit = quantity(cell)
    except ValueError as error:
        collector.leave_out(where, str(error))
        return
    if unit and entry.unit and kind.factor(unit) != kind.factor(entry.unit):
        collector.leave_out(where, f"{cell!r} is not in {entry.unit}")
        return
    unit = unit or entry.unit or (next(iter(units)) if len(set(units.values())) == 1 else "")
    if unit:
        collector.add(where, figure=entry.target, value=value, unit=unit, **facts)
    else:
        collector.leave_out(where, f"{cell!r} has no unit: map the column as {entry.target}:{next(iter(units))}, or another unit")
