"""The site: which views there are, what their forms offer, and how a view becomes the content of a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.collector.show.markup import Markup, element, join, raw
from edgemeter.collector.web.book import Book, baselines
from edgemeter.collector.web.device import device
from edgemeter.collector.web.model import model
from edgemeter.collector.web.overview import overview
from edgemeter.collector.web.queries import PERIODS, Narrowing, choices, parse
from edgemeter.collector.web.run import run
from edgemeter.collector.web.series import DEFAULT_METRIC, METRICS
from edgemeter.collector.web.side_by_side import side_by_side
from edgemeter.collector.web.trend import trend
from edgemeter.collector.web.view import ROUTES, Asked, Links, View, address

VIEWS: dict[str, Callable[[Book, Asked, Narrowing], View]] = {
    "overview": overview,
    "compare": side_by_side,
    "model": model,
    "trend": trend,
    "device": device,
    "run": run,
}
NAVIGATION = {"overview": "Overview", "compare": "Compare", "model": "Model", "trend": "Trend", "device": "Device"}
NEEDED = {"model": "model", "device": "device"}
LABELS = {"days": "Period", "baseline": "Baseline", "metric": "Figure"}
# With more values than this a field is typed, not picked.
MOST_CHOICES = 400


@dataclass(frozen=True, slots=True)
class Choices:
    """What the forms offer: the values of each field, and how they are called."""

    values: Mapping[str, Mapping[str, str]]

    def of(self, name: str) -> Mapping[str, str]:
        """Return the values of a field with their names."""
        return self.values.get(name, {})


def offered(book: Book) -> Choices:
    """Return what the forms offer, read from what is there."""
    found: dict[str, Mapping[str, str]] = {name: {value: value for value in values} for name, values in choices(book.connection).items()}
    found["baseline"] = {name: "all in the role reference" if name == "reference" else name for name in baselines(book.connection)}
    found["days"] = PERIODS
    found["metric"] = {metric.name: metric.title for metric in METRICS.values()}
    return Choices(found)


def show(book: Book, asked: Asked) -> View | None:
    """Return the view that an address asks for, None where there is no such view."""
    made = VIEWS.get(asked.view)
    return made(book, asked, parse(asked.fields)) if made else None


def content(view: View, asked: Asked, offered_here: Choices, links: Links, exports: Markup) -> Markup:
    """Return what stands on a page: heading, form, exports and the view itself."""
    return join(
        [
            navigation(asked, links),
            element("header", None, element("h1", None, view.title), *([element("p", {"class": "lead"}, view.lead)] if view.lead else [])),
            form(view, asked, offered_here),
            exports,
            element("main", {"id": "content", "tabindex": "-1"}, view.body),
        ]
    )


def navigation(asked: Asked, links: Links) -> Markup:
    """Return the way to the other views; what was picked goes along."""
    kept = {name: value for name, value in asked.fields.items() if name in {"model", "device", "fleet", "board", "baseline"}}
    items = []
    for name, text in NAVIGATION.items():
        fields = {field: value for field, value in kept.items() if field in ROUTES[name]} if name != "overview" else {}
        reference = links.to(name, **fields) or links.to(name)
        current = {"aria-current": "page"} if name == asked.view else {}
        if reference:
            items.append(element("a", {"href": reference, **current}, text))
    return element("nav", {"aria-label": "Views"}, element("span", {"class": "brand"}, "Edgemeter"), *items)


def form(view: View, asked: Asked, offered_here: Choices) -> Markup:
    """Return the form with the view's filters; without a script it is sent with its button."""
    if not view.filters:
        return join([])
    fields = [_field(name, asked, values) for name in view.filters if (values := offered_here.of(name))]
    if not fields:
        return join([])
    button = element("button", {"type": "submit"}, "Apply")
    attributes = {
        "class": "filters",
        "method": "get",
        "action": f"/{asked.view}",
        "data-view": asked.view,
        "data-route": " ".join(ROUTES[asked.view]),
    }
    return element("form", attributes, *fields, button)


def served_exports(asked: Asked) -> Markup:
    """Return the links to CSV and JSON of a served view."""

    def to(form: str) -> str:
        return f"/{address(asked.view, {**asked.fields, 'format': form})}"

    return _exports(
        element("a", {"href": to("csv"), "download": f"edgemeter-{asked.view}.csv"}, "CSV"), element("a", {"href": to("json")}, "JSON")
    )


def held_exports(view: View, asked: Asked) -> Markup:
    """Return the buttons for CSV and JSON of a view within a file, and the figures that they write."""
    if not view.tables:
        return join([])
    tables = [{"name": table.name, "columns": table.columns, "rows": table.rows} for table in view.tables]
    data = msgspec.json.encode({"view": asked.address, "tables": tables}).decode()
    # In a script element nothing is escaped, so that no text can end it.
    held = raw(data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
    buttons = [element("button", {"type": "button", "data-export": name.lower()}, name) for name in ("CSV", "JSON")]
    return join([_exports(*buttons), element("script", {"type": "application/json", "class": "tables"}, held)])


def _exports(*items: Markup) -> Markup:
    return element("p", {"class": "exports"}, "This view as ", items[0], " or ", items[1])


def _field(name: str, asked: Asked, values: Mapping[str, str]) -> Markup:
    label = LABELS.get(name, name.capitalize())
    picked = asked.get(name)
    if len(values) > MOST_CHOICES:
        box = element("input", {"name": name, "value": picked, "placeholder": f"all {len(values):,}"})
        return element("label", None, element("span", None, label), box)
    options = _options(name, asked, values)
    return element("label", None, element("span", None, label), element("select", {"name": name}, *options))


def _options(name: str, asked: Asked, values: Mapping[str, str]) -> list[Markup]:
    # What a view cannot do without is never left open: the first stands until another is picked.
    blank = None if name in {"baseline", "metric"} or name == NEEDED.get(asked.view) else "all days" if name == "days" else "all"
    picked = asked.get(name)
    entries: Sequence[tuple[str, str]] = [*([("", blank)] if blank else []), *values.items()]
    if picked and picked not in values:
        entries = [*entries, (picked, f"{picked} (nothing here)")]
    current = picked or (DEFAULT_METRIC if name == "metric" else "")
    return [
        element("option", {"value": value, "selected": "selected" if value == current and current else None}, text)
        for value, text in entries
    ]
