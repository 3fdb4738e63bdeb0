"""A view: what one address of the page shows, as markup and as plain tables; and how addresses are written."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar
from urllib.parse import parse_qsl

from edgemeter.agent.base import figures
from edgemeter.agent.base.documents import Plain, json_document
from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.charts.chart import ChartSheet, ViewTable
from edgemeter.collector.show.comparison_charts import Charts
from edgemeter.collector.web.markup import Attributes, Markup, element, join, part, render
from edgemeter.collector.web.page_links import address

Item = TypeVar("Item")
# No address of ours is longer; what comes from outside is cut here.
LONGEST_FIELD, LONGEST_NUMBER, MOST_FIELDS = 300, 9, 40
# What is done to a chart over time, below such charts.
BRUSH = "drag over a chart, which zooms all of them; Ctrl + wheel zooms, Shift + drag moves"

# The fields of each view that identify a page; the others filter its content.
ROUTES: dict[str, tuple[str, ...]] = {
    "overview": (),
    "compare": ("reference", "page", "require", "cheapest", "show"),
    "trend": ("model", "metric", "event"),
    "device": ("fleet", "device"),
    "run": ("id",),
    "jobs": ("job",),
    "alerts": (),
    "published": (),
}


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """The request in an address: the view and its fields, without empty ones."""

    view: str
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Return the address as text, the same for the same fields in any order: `compare?reference=server&model=yolo`."""
        return address(self.view, self.fields)

    def get(self, name: str) -> str:
        """Return a field, empty if absent."""
        return self.fields.get(name, "")


def read_address(text: str) -> ViewRequest:
    """Return the request in an address (without its leading slash); raises ConfigError for more than `MOST_FIELDS` fields."""
    view, _, query = text.partition("?")
    if query.count("&") >= MOST_FIELDS:
        raise ConfigError(f"the address has {query.count('&') + 1} fields: leave all but {MOST_FIELDS} away")
    return ViewRequest(view or "overview", {name: value[:LONGEST_FIELD] for name, value in parse_qsl(query) if value})


def page_of(request: ViewRequest, count: int, size: int) -> int:
    """Return the page that was picked, from 0, one that there is."""
    text = request.get("page")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER else 1
    return min(max(number, 1), max(1, -(-count // size))) - 1


def pages_text(request: ViewRequest, page: int, count: int, size: int, links: "Links", noun: str = "Cases") -> Markup:
    """Return what of more cases (`noun`) than a page holds this is, and the way to the others."""
    if count <= size:
        return join([])
    first, last = page * size + 1, min(count, (page + 1) * size)
    fields = {name: value for name, value in request.fields.items() if name != "page"}
    before = [" ", link(links.to(request.view, **fields, page=str(page) if page > 1 else ""), "Previous")] if page else []
    after = [" ", link(links.to(request.view, **fields, page=str(page + 2)), "Next")] if last < count else []
    numbers = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    text = f"{noun} {numbers} of {count:,}; pick a model, a board or a device for less."
    return element("p", {"class": "caution pages"}, text, *before, *after)


class Links(Protocol):
    """How one view refers to another: served under a path, or within one file."""

    def to(self, view: str, **fields: str) -> str | None:
        """Return the reference to a view, None where it is not there."""


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
    _views: dict[str, list[Mapping[str, str]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for request in map(read_address, self.held):
            self._views.setdefault(request.view, []).append(request.fields)

    def to(self, view: str, **fields: str) -> str | None:
        """Return `#/view?...`, None for a view that the file does not hold; what is left open, and what narrows it, may be any."""
        route = {name: value for name, value in fields.items() if name in ROUTES[view]}
        fits = any(all(held_fields.get(name, "") == value for name, value in route.items()) for held_fields in self._views.get(view, ()))
        return f"#/{address(view, fields)}" if fits else None


def read_period(text: str) -> tuple[int, int] | None:
    """Return the period (ns since 1970) in the field `between`, `FIRST,LAST` in ms; None where there is none."""
    match = re.fullmatch(r"(\d{1,14}),(\d{1,14})", text, re.ASCII)
    return (int(match[1]) * 1_000_000, int(match[2]) * 1_000_000 + 999_999) if match else None


def link(reference: str | None, text: str) -> Markup:
    """Return a link, or the text alone where there is nothing to refer to."""
    return element("a", {"href": reference}, text) if reference else element("span", None, text)


@dataclass(frozen=True, slots=True)
class FormInput:
    """A field of a view's own in its form: typed, with a hint in `placeholder`, or picked of `options` (value and text)."""

    name: str
    label: str
    picked: str
    placeholder: str = ""
    options: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """One view; `tables` are its figures (CSV holds the first), `filters` the facets of its form, `inputs` its own fields.

    `more_filters` are folded until one is picked; `picked` is what the address leaves open.
    """

    title: str
    body: Markup
    lead: str = ""
    tables: tuple[ViewTable, ...] = ()
    filters: tuple[str, ...] = ()
    picked: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[FormInput, ...] = ()
    more_filters: tuple[str, ...] = ()

    def between(self, first_ns: int, last_ns: int) -> "View":
        """Return the view with the rows of a period only, as its tables show them where a period was picked."""
        return replace(self, tables=tuple(table.between(first_ns, last_ns) for table in self.tables))

    def to_json(self, request: ViewRequest) -> bytes:
        """Return all tables as JSON: `{"view", "tables": {name: [{column: value}]}}`."""
        tables = {table.name: table.dicts() for table in self.tables}
        document = {"view": request.address, "title": self.title, "tables": tables}
        return json_document(document).encode()


@dataclass(frozen=True, slots=True)
class ViewColumn(Generic[Item]):
    """One column: its name in plain form, its heading, the plain value, and the cell where that is not the value as text.

    It is not shown where no row has a value; one that `needs_width` is not shown on a phone.
    """

    name: str
    heading: str
    value: Callable[[Item], Plain]
    cell: Callable[[Item], str] | None = None
    explanation: str | None = None
    is_text: bool = False
    is_shown: bool = True
    needs_width: bool = False

    @property
    def css_class(self) -> str | None:
        """The class of its cells and its heading."""
        return " ".join(name for name, is_so in (("text", self.is_text), ("needs-width", self.needs_width)) if is_so) or None


@dataclass(frozen=True, slots=True)
class PlainRows(Generic[Item]):
    """The rows of a table in plain form, worked out as they are read: a page that is only looked at needs none."""

    columns: Sequence[ViewColumn[Item]]
    items: Sequence[Item]

    def __iter__(self) -> Iterator[tuple[Plain, ...]]:
        return (tuple(column.value(item) for column in self.columns) for item in self.items)


def grid(
    name: str, columns: Sequence[ViewColumn[Item]], items: Sequence[Item], attributes: Callable[[Item], Attributes] = lambda _: {}
) -> tuple[Markup, ViewTable]:
    """Return the table as markup and in plain form."""
    return folding_grid(name, columns, [items], attributes), plain_table(name, columns, items)


def folding_grid(
    name: str, columns: Sequence[ViewColumn[Item]], groups: Sequence[Sequence[Item]], attributes: Callable[[Item], Attributes]
) -> Markup:
    """Return a table of groups of rows as markup; of a group whose first row holds a `details` the others show while that is open."""
    shown_columns = [
        column for column in columns if column.is_shown and any(column.value(item) is not None for items in groups for item in items)
    ]
    bodies = [[(attributes(item), [_cell_of(column, item) for column in shown_columns]) for item in items] for items in groups]
    return render("grid.html", name=name, columns=shown_columns, bodies=bodies)


def plain_table(name: str, columns: Sequence[ViewColumn[Item]], items: Sequence[Item]) -> ViewTable:
    """Return the table in plain form, with the columns that are not shown."""
    return ViewTable(name, tuple(column.name for column in columns), PlainRows(columns, items))


def section(identity: str, heading: str, *content: str) -> Markup:
    """Return a part of a view under its heading."""
    return part("section", identity, heading, join(content))


def folded_section(identity: str, heading: str, summary: str, *content: str) -> Markup:
    """Return a part of a view that is closed until it is asked for: its heading and a summary."""
    line = element("summary", None, element("h2", None, heading), " ", element("small", None, summary))
    return element("section", {"id": identity}, element("details", {"class": "part"}, line, *content))


def chart_gallery(sheet: ChartSheet, groups: Sequence[Charts], *, has_one_legend: bool = False) -> Markup:
    """Return charts side by side, of which several may share one legend, and below them what they do not show."""
    pictures = [sheet.draw(chart) for group in groups for chart in group.charts]
    gallery = part("gallery", pictures, "one-legend" if has_one_legend else "") if pictures else ""
    return join([gallery, *(note(text) for group in groups for text in group.notes)])


def with_small(text: str, small: str) -> Markup:
    """Return a figure or a name with something small below it."""
    return join([text, element("small", None, small)] if small else [text])


def verdict_cell(state: str) -> Markup:
    """Return a verdict, marked where it is not `ok`."""
    return element("span", {"class": None if state == "ok" else "doubt"}, state)


def folded_note(summary: str, *texts: str) -> Markup:
    """Return remarks that are closed until they are asked for."""
    return element("details", {"class": "part"}, element("summary", {"class": "note"}, summary), *(note(text) for text in texts))


def note(*text: str) -> Markup:
    """Return a remark below a figure."""
    return element("p", {"class": "note"}, *text)


def _cell_of(column: ViewColumn[Item], item: Item) -> tuple[Attributes, str]:
    value = column.value(item)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    sortable = f"{value:.9g}" if is_number and not column.is_text else None
    # On a phone a row is no line below its headings.
    label = None if column.is_text else column.heading
    attributes = {"class": column.css_class, "data-label": label, "data-value": sortable}
    return attributes, column.cell(item) if column.cell else _text(value)


def _text(value: Plain) -> str:
    if value is None:
        return figures.typeset(figures.ABSENT)
    if isinstance(value, float):
        return figures.significant(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
