"""A view is the content of one address of the page, as markup and as plain tables.

This also defines the syntax of addresses.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, urlencode

from edgemeter.agent.base import number_text
from edgemeter.agent.base.documents import Plain
from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.web.markup import Attributes, Markup

Item = TypeVar("Item")
# No address of ours is longer; input is cut here.
LONGEST_FIELD, LONGEST_NUMBER, MOST_FIELDS = 300, 9, 40

# The fields that identify a page of each view; the others filter its content.
ROUTES: dict[str, tuple[str, ...]] = {
    "overview": (),
    "compare": ("reference", "page", "require", "cheapest", "show"),
    "trend": ("model", "metric"),
    "device": ("fleet", "device"),
    "run": ("id",),
    "jobs": ("job",),
    "alerts": (),
    "published": (),
}


def address(view: str, fields: Mapping[str, str]) -> str:
    """Return view and fields as text, without empty fields."""
    filled_fields = sorted((name, value) for name, value in fields.items() if value)
    return f"{view}?{urlencode(filled_fields)}" if filled_fields else view


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """The request in an address: the view and its fields, without empty ones."""

    view: str
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Return the address as text, such as `compare?reference=server&model=yolo`.

        It is the same for the same fields in any order.
        """
        return address(self.view, self.fields)

    def get(self, name: str) -> str:
        """Return a field, empty if absent."""
        return self.fields.get(name, "")


def read_address(text: str) -> ViewRequest:
    """Return the request in an address (without its leading slash).

    It raises ConfigError for more than `MOST_FIELDS` fields.
    """
    view, _, query = text.partition("?")
    if query.count("&") >= MOST_FIELDS:
        raise ConfigError(
            f"the address has {query.count('&') + 1} fields: leave all but {MOST_FIELDS} away"
        )
    return ViewRequest(
        view or "overview",
        {name: value[:LONGEST_FIELD] for name, value in parse_qsl(query) if value},
    )


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one view to others.

    They are served under a path, or within one file, to the views that are `held` in it.
    """

    held: Collection[str] | None = None
    _views: dict[str, list[Mapping[str, str]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for request in map(read_address, self.held or ()):
            self._views.setdefault(request.view, []).append(request.fields)

    @property
    def is_file(self) -> bool:
        """Whether the views are in one file, which is static and read later."""
        return self.held is not None

    def to(self, view: str, **fields: str) -> str | None:
        """Return `/view?...`, in a file `#/view?...`, or None for a view that it lacks.

        Unspecified fields match any there.
        """
        if not self.is_file:
            return f"/{address(view, fields)}"
        route = {name: value for name, value in fields.items() if name in ROUTES[view]}
        fits = any(
            all(held_fields.get(name, "") == value for name, value in route.items())
            for held_fields in self._views.get(view, ())
        )
        return f"#/{address(view, fields)}" if fits else None


def read_period(text: str) -> tuple[int, int] | None:
    """Return the period (ns since 1970) in the field `between`.

    The field is `FIRST,LAST` in ms; the period is None without one.
    """
    match = re.fullmatch(r"(\d{1,14}),(\d{1,14})", text, re.ASCII)
    return (int(match[1]) * 1_000_000, int(match[2]) * 1_000_000 + 999_999) if match else None


@dataclass(frozen=True, slots=True)
class Pager:
    """The valid `page` (from 0) of `count` items in an address, and links to the others.

    There are `size` items on each.
    """

    page: int
    count: int
    size: int
    noun: str
    before: str | None
    after: str | None

    @property
    def shown(self) -> range:
        """The indexes of the items on the page, from 0."""
        return range(self.page * self.size, min(self.count, (self.page + 1) * self.size))


def pager(request: ViewRequest, links: Links, count: int, size: int, noun: str = "Cases") -> Pager:
    text, last = request.get("page"), max(1, -(-count // size))
    number = int(text) if text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER else 1
    page = min(max(number, 1), last)
    fields = {name: value for name, value in request.fields.items() if name != "page"}
    before = links.to(request.view, **fields, page=str(page - 1) if page > 2 else "")
    return Pager(
        page - 1, count, size, noun, before, links.to(request.view, **fields, page=str(page + 1))
    )


@dataclass(frozen=True, slots=True)
class FormInput:
    """A field of a view's own in its form.

    It is typed, with a hint in `placeholder`, or selected from `options` (value and text).
    """

    name: str
    label: str
    picked: str
    placeholder: str = ""
    options: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """One view, with its figures in `tables`.

    CSV has the first table. `inputs` are its own fields, `picked` fills fields that the address
    omits.
    """

    title: str
    body: Markup
    lead: str = ""
    tables: tuple[ViewTable, ...] = ()
    picked: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[FormInput, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewColumn(Generic[Item]):
    """One column of a view's table.

    It has its name in plain form, its heading, the plain value, and the text of the cell with
    `small` text below it.

    A template's macro of the same name may make the cell instead; the text of a column that
    `leads_to` another view (its name, and how its fields are read) is a link. A column without a
    heading is in exports only; one without any value is not shown, and one that `needs_width` is
    not shown on a phone.
    """

    name: str
    heading: str
    value: Callable[[Item], Plain]
    cell: Callable[[Item], Any] | None = None
    small: Callable[[Item], str | None] | None = None
    leads_to: tuple[str, Mapping[str, Callable[[Item], str]]] | None = None
    is_text: bool = False
    needs_width: bool = False

    @property
    def css_class(self) -> str | None:
        return (
            " ".join(
                name
                for name, is_so in (("text", self.is_text), ("needs-width", self.needs_width))
                if is_so
            )
            or None
        )

    def attributes(self, item: Item) -> Attributes:
        """Return the attributes of a cell.

        They are its sort key, and its heading, which a phone shows only here.
        """
        value = self.value(item)
        is_number = (
            isinstance(value, int | float) and not isinstance(value, bool) and not self.is_text
        )
        return {
            "class": self.css_class,
            "data-label": self.heading,
            "data-value": f"{value:.9g}" if is_number else None,
        }

    def reference(self, links: Links, item: Item) -> str | None:
        """Return the link to the view of a cell; None if it has none, or the view is not there."""
        if self.leads_to is None:
            return None
        view, fields = self.leads_to
        return links.to(view, **{name: read(item) for name, read in fields.items()})

    def text(self, item: Item) -> str:
        if self.cell:
            return str(self.cell(item))
        value = self.value(item)
        if value is None:
            return number_text.typeset(number_text.ABSENT)
        if isinstance(value, float):
            return number_text.significant(value)
        return (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )


@dataclass(frozen=True, slots=True)
class PlainRows(Generic[Item]):
    """The rows of a table in plain form.

    They are computed when they are read: a page that is only viewed needs none.
    """

    columns: Sequence[ViewColumn[Item]]
    items: Sequence[Item]

    def __iter__(self) -> Iterator[tuple[Plain, ...]]:
        return (tuple(column.value(item) for column in self.columns) for item in self.items)


@dataclass(frozen=True, slots=True)
class ViewGrid(Generic[Item]):
    """A table of groups of rows.

    If the first row of a group has `details`, the others show while that is open.
    """

    name: str
    columns: Sequence[ViewColumn[Item]]
    groups: Sequence[Sequence[Item]]
    attributes: Callable[[Item], Attributes] = lambda _: {}

    @property
    def shown_columns(self) -> Sequence[ViewColumn[Item]]:
        items = [item for group in self.groups for item in group]
        return [
            column
            for column in self.columns
            if column.heading and any(column.value(item) is not None for item in items)
        ]

    @property
    def plain(self) -> ViewTable:
        """The table in plain form, including hidden columns."""
        return ViewTable(
            self.name,
            tuple(column.name for column in self.columns),
            PlainRows(self.columns, [item for group in self.groups for item in group]),
        )
