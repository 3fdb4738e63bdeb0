"""The site: its views, forms and exports, and the page around a view, served or in one file."""

import base64
import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple, TypeAlias

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.figures import LATENCY
from edgemeter.collector.charts import vega
from edgemeter.collector.charts.chart import script_data, short
from edgemeter.collector.show.series_style import GLYPHS
from edgemeter.collector.web.alerts_view import alerts_view
from edgemeter.collector.web.device import device_view
from edgemeter.collector.web.jobs_view import jobs_view
from edgemeter.collector.web.markup import Markup, render, text_of
from edgemeter.collector.web.overview import overview
from edgemeter.collector.web.published_view import published_view
from edgemeter.collector.web.queries import (
    FACETS,
    LEVELS,
    PERIODS,
    REFERENCE,
    CaseFilter,
    ViewContext,
    facet,
    parse_filter,
    reference_names,
)
from edgemeter.collector.web.run import run_view
from edgemeter.collector.web.series import FOLLOWED, trend_view
from edgemeter.collector.web.side_by_side import compare_view
from edgemeter.collector.web.view import ROUTES, FormInput, Links, View, ViewRequest

SERVED_POLICY = (
    "default-src 'none'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
STYLE_SHEET = "page.css"


def script() -> str:
    """Return the script; everything is readable without it."""
    constants = {"THEME": vega.theme(), "GLYPHS": GLYPHS, "ROUTES": ROUTES, "FACETS": FACETS}
    return "".join(
        f"const {name} = {script_data(value)};\n" for name, value in constants.items()
    ) + text_of("page.js")


def served_page(title: str, content: Markup, remark: str, tag: str = "") -> str:
    """Return a page that loads its style and scripts.

    It checks for a newer version by its `tag`, if given.
    """
    return render(
        "page.html",
        title=title,
        content=content,
        remark=remark,
        tag=tag,
        charts=vega.bundle_name() if "chart-data" in content else None,
        is_file=False,
        version=version("edgemeter"),
    )


def packed(text: str) -> str:
    """Return a text for a file: compressed (gzip, always the same bytes), base64."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


class WrittenView(NamedTuple):
    """A view as a page contains it."""

    address: str
    content: Markup
    title: str


def one_file_page(first: WrittenView, held_views: Sequence[tuple[str, Markup]], remark: str) -> str:
    """Return a page that loads nothing.

    It shows the `first` view, and contains the others as templates.

    Its policy names the scripts that may run: a device's text stays text.
    """
    return render(
        "page.html",
        is_file=True,
        title=first.title,
        address=first.address,
        content=first.content,
        held_views=[(address, packed(text)) for address, text in held_views],
        remark=remark,
        tag="",
        digests=[
            base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            for text in (vega.bundle(), script())
        ],
        style=Markup(text_of(STYLE_SHEET)),
        charts=packed(vega.bundle()),
        script=Markup(script()),
        version=version("edgemeter"),
    )


# The options of each field of the forms, with their labels.
FormChoices: TypeAlias = Mapping[str, Mapping[str, str]]
VIEWS: dict[str, Callable[[ViewContext, ViewRequest, CaseFilter], View]] = {
    "overview": overview,
    "compare": compare_view,
    "trend": trend_view,
    "device": device_view,
    "run": run_view,
    "jobs": jobs_view,
    "alerts": alerts_view,
    "published": published_view,
}
# The facets of a view's form, and those that are folded until one of them is selected.
FILTERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "overview": (("fleet", "board", "days", "level"), ()),
    "compare": (
        (),
        ("reference", "model", "board", "device", "fleet", "precision", "runtime", "days", "level"),
    ),
    "trend": (("metric", "model"), ("board", "device", "fleet", "precision", "runtime", "days")),
    "device": (("device", "fleet", "days", "level"), ()),
}
# The label of an empty field.
BLANK = {"days": "all days", "level": LEVELS["current"]}
LABELS = {"days": "Period", "level": "Level", "reference": "Reference", "metric": "Figure"}
# With more values than this a field is typed, not selected.
MOST_CHOICES = 400
# Significant digits of figures in a file: no measurement has more.
DIGITS_HELD = 8


def offered(context: ViewContext) -> FormChoices:
    """Return the options of the forms, from the present data; in a file only its content."""
    book, links = context.book, context.links
    offers: dict[str, Mapping[str, str]] = {
        name: {value: value for value in sorted({facet(case, name) for case in book.cases})}
        for name in FACETS
    }
    references = {
        name: "role reference" if name == REFERENCE else name for name in reference_names(book)
    }
    offers["reference"] = {
        name: text for name, text in references.items() if links.to("compare", reference=name)
    }
    offers["metric"] = {
        name: entry.heading
        for name, entry in FOLLOWED.items()
        if name == LATENCY or links.to("trend", metric=name)
    }
    if not links.is_file:
        offers["days"], offers["level"] = (
            PERIODS,
            {name: text for name, text in LEVELS.items() if name != "current"},
        )
    return offers


def show(context: ViewContext, request: ViewRequest) -> View:
    """Return the view of an address.

    It raises ConfigError if there is no such view, or nothing to show.
    """
    if request.view not in VIEWS:
        raise ConfigError(f"there is no view {request.view!r}: there are {', '.join(VIEWS)}")
    return VIEWS[request.view](context, request, parse_filter(request.fields))


def content(
    view: View,
    request: ViewRequest,
    choices_here: FormChoices,
    links: Links,
    exports: Mapping[str, str],
) -> Markup:
    """Return the parts of a page: navigation, heading, form, exports and the view itself."""
    current = ViewRequest(request.view, {**view.picked, **request.fields})
    filters, more_filters = FILTERS.get(request.view, ((), ()))
    return render(
        "content.html",
        view=view,
        request=request,
        navigation=navigation(request, links),
        route=ROUTES[request.view],
        # Without a script the form has a button.
        action=links.to(request.view),
        fields=[
            *view.inputs,
            *(
                _field(name, current, values)
                for name in filters
                if (values := choices_here.get(name))
            ),
        ],
        more_fields=[
            _field(name, current, values)
            for name in more_filters
            if (values := choices_here.get(name))
        ],
        picked_more=", ".join(
            choices_here.get(name, {}).get(value, value)
            for name in more_filters
            if (value := request.get(name))
        ),
        exports=exports,
    )


def navigation(request: ViewRequest, links: Links) -> list[dict[str, object]]:
    """Return the links to the views, with the present selection."""
    picked = {
        name: value
        for name, value in request.fields.items()
        if name in {"model", "device", "fleet", "board", "reference"}
    }
    return [
        {"reference": reference, "text": name.capitalize(), "is_current": name == request.view}
        for name in VIEWS
        if name != "run"
        if (
            reference := links.to(
                name, **{field: picked[field] for field in ROUTES[name] if field in picked}
            )
            or links.to(name)
        )
    ]


def held_exports(view: View, request: ViewRequest) -> dict[str, str]:
    """Return the figures of a view within a file, which its buttons write as CSV and JSON."""
    if not view.tables:
        return {}
    tables = [
        {
            "name": table.name,
            "columns": table.columns,
            "rows": [[short(value, DIGITS_HELD) for value in row] for row in table.rows],
        }
        for table in view.tables
    ]
    return {"tables": Markup(script_data({"view": request.address, "tables": tables}))}


def _field(name: str, request: ViewRequest, values: Mapping[str, str]) -> FormInput:
    """Return the form field of a facet, or of another choice of a view."""
    label, picked, hint = (
        LABELS.get(name, name.capitalize()),
        request.get(name),
        f"all {len(values):,}",
    )
    if len(values) > MOST_CHOICES:
        return FormInput(name, label, picked, hint)
    # A required field is never empty: the first option is used until you pick another.
    is_fixed = name in {"reference", "metric"} or (name, request.view) == ("device", "device")
    blank = () if is_fixed else (("", BLANK.get(name, "all")),)
    missing = ((picked, f"{picked} (nothing here)"),) if picked and picked not in values else ()
    return FormInput(
        name,
        label,
        picked or (LATENCY if name == "metric" else ""),
        hint,
        (*blank, *values.items(), *missing),
    )
