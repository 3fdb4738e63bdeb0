"""A view: what one address of the page shows, as markup and as plain tables; and how addresses are written."""

import csv
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec

from edgemeter.collector.show import figures
from edgemeter.collector.show.markup import Attributes, Markup, element, join

Plain = str | int | float | bool | None
Item = TypeVar("Item")
# No address of ours is longer; what comes from outside is cut here.
LONGEST_FIELD = 300

# Of each view the fields that say which page it is; the others narrow what is on it.
ROUTES: dict[str, tuple[str, ...]] = {
    "overview": (),
    "compare": ("baseline",),
    "model": ("model",),
    "trend": ("model", "metric"),
    "device": ("fleet", "device"),
    "run": ("id",),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for: the view and its fields, those that are empty left away."""

    view: str
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Return the address as text, the same for the same fields in any order: `compare?baseline=server&model=yolo`."""
        return address(self.view, self.fields)

    def get(self, name: str) -> str:
        """Return a field, empty where it is not asked for."""
        return self.fields.get(name, "")


def address(view: str, fields: Mapping[str, str]) -> str:
    """Return view and fields as text; fields that are empty are left away."""
    kept = sorted((name, value) for name, value in fields.items() if value)
    return f"{view}?{urlencode(kept)}" if kept else view


def read_address(text: str) -> Asked:
    """Return what an address (without its leading slash) asks for."""
    view, _, query = text.partition("?")
    return Asked(view or "overview", {name: value[:LONGEST_FIELD] for name, value in parse_qsl(query, max_num_fields=40) if value})


class Links(Protocol):
    """How one view refers to another: served under a path, or within one file."""

    def to(self, view: str, **fields: str) -> str | None:
        """Return the reference to a view, None where it is not there."""
        ...


@dataclass(frozen=True, slots=True)
class ServedLinks:
    """Links of the served page."""

    def to(self, view: str, **fields: str) -> str | None:
        """Return `/view?...`."""
        return f"/{address(view, fields)}"


@dataclass(frozen=True, slots=True)
class FileLinks:
    """Links within one file: to the views that are in it."""

    held: Collection[str]

    def to(self, view: str, **fields: str) -> str | None:
        """Return `#/view?...`, None for a view that the file does not hold; what only narrows a view may be any."""
        route = {name: value for name, value in fields.items() if name in ROUTES[view]}
        return f"#/{address(view, fields)}" if address(view, route) in self.held else None


def link(reference: str | None, text: str, attributes: Attributes | None = None) -> Markup:
    """Return a link, or the text alone where there is nothing to refer to."""
    return element("a", {**(attributes or {}), "href": reference}, text) if reference else element("span", attributes, text)


@dataclass(frozen=True, slots=True)
class Table:
    """Plain values for CSV and JSON: names end in their unit, absent is None."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Plain, ...], ...]

    def to_csv(self) -> str:
        """Return the table as CSV (RFC 4180), header first."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows([[_cell(value) for value in row] for row in self.rows])
        return text.getvalue()


@dataclass(frozen=True, slots=True)
class View:
    """One view; `tables` are its figures in plain form, the first is what CSV holds. `filters` are the facets its form offers."""

    title: str
    body: Markup
    lead: str = ""
    tables: tuple[Table, ...] = ()
    filters: tuple[str, ...] = ()

    def to_json(self, asked: Asked) -> bytes:
        """Return all tables as JSON: `{"view", "tables": {name: [{column: value}]}}`."""
        tables = {table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in self.tables}
        document = {"view": asked.address, "title": self.title, "tables": tables}
        return msgspec.json.format(msgspec.json.encode(document), indent=2)


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """One column: its name in plain form, its heading, the plain value, and the cell where that is not the value as text."""

    name: str
    heading: str
    value: Callable[[Item], Plain]
    cell: Callable[[Item], str] | None = None
    tells: str | None = None
    is_text: bool = False
    is_shown: bool = True


def grid(
    name: str,
    columns: Sequence[Column[Item]],
    items: Sequence[Item],
    attributes: Callable[[Item], Attributes] = lambda _: {},
) -> tuple[Markup, Table]:
    """Return the table to look at, and the same in plain form."""
    shown = [column for column in columns if column.is_shown]
    headings = [
        element("th", {"scope": "col", "title": column.tells, "class": "text" if column.is_text else None}, column.heading)
        for column in shown
    ]
    lines = [element("tr", attributes(item), *(_markup(column, item) for column in shown)) for item in items]
    head = element("thead", None, element("tr", None, *headings))
    drawn = element("table", {"class": "grid"}, head, element("tbody", None, *lines))
    region = {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": name}
    plain = Table(name, tuple(column.name for column in columns), tuple(tuple(column.value(item) for column in columns) for item in items))
    return element("div", region, drawn), plain


def section(identity: str, heading: str, *content: str) -> Markup:
    """Return a part of a view under its heading."""
    return element("section", {"id": identity}, element("h2", None, heading), *content)


def note(*text: str) -> Markup:
    """Return a remark below a figure."""
    return element("p", {"class": "note"}, *text)


def _markup(column: Column[Item], item: Item) -> Markup:
    value = column.value(item)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    sortable = f"{value:.9g}" if is_number and not column.is_text else None
    text = join([column.cell(item)]) if column.cell else join([_text(value)])
    return element("td", {"class": "text" if column.is_text else None, "data-value": sortable}, text)


def _text(value: Plain) -> str:
    if value is None:
        return figures.typeset(figures.ABSENT)
    if isinstance(value, float):
        return figures.significant(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cell(value: Plain) -> Plain:
    return str(value).lower() if isinstance(value, bool) else value
