"""The context of a view: the cases and the records behind them, its charts, and how views refer to each other."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.collector.charts.chart import Chart, script_data
from edgemeter.collector.compare.case_book import BookedCase, CaseBook
from edgemeter.collector.compare.comparison import Comparison, of_summaries
from edgemeter.collector.published.readers import PublishedFolder, default_folder
from edgemeter.collector.runs.store import RunStore
from edgemeter.collector.web.activity import Activities, read_activities
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.markup import Markup, render
from edgemeter.collector.web.queries import CaseFilter, picked_cases, summaries
from edgemeter.collector.web.view import Links

REFERENCE = "reference"


def live_chart(chart: Chart, fallback: str = "") -> Markup:
    """Return a chart that the page's script draws; `fallback` (SVG) is what a browser without scripts shows."""
    return render("chart.html", chart=chart, fallback=Markup(fallback), document=Markup(script_data(chart.document())))


@dataclass(frozen=True, slots=True)
class ViewContext:
    """The data that a view is made from; used by one thread, for one view."""

    book: CaseBook
    links: Links
    events: TrendEvents
    draw: Callable[[Chart], Markup] = live_chart
    published: PublishedFolder = field(default_factory=default_folder)

    @property
    def store(self) -> RunStore:
        """The runs, and what devices reported."""
        return self.book.store

    @property
    def activities(self) -> Activities:
        """What is measured now; nothing in a file, which is read later."""
        return Activities() if self.links.is_file else read_activities(self.store, time.time_ns())

    def render(self, template: str, **values: object) -> Markup:
        """Return what a template makes of values, which may refer to other views and draw charts."""
        return render(template, links=self.links, draw=self.draw, **values)


def reference_names(book: CaseBook, model: str | None = None) -> list[str]:
    """Return what may be compared with (what ran a given `model`): the role `reference` if there is one, then devices, its own first."""
    keys = [case.key for case in book.cases if model in (None, case.key.model)]
    roles = [REFERENCE] if any(key.role == REFERENCE for key in keys) else []
    devices = sorted({(key.role != REFERENCE, key.device) for key in keys})
    return list(dict.fromkeys([*roles, *(device for _, device in devices)]))


def compare(context: ViewContext, cases_to_compare: Sequence[BookedCase], case_filter: CaseFilter, reference: str) -> Comparison:
    """Return the cases `cases_to_compare` compared with those of `reference` (a device, or the role), whatever else was picked."""

    def belongs(key: CaseKey) -> bool:
        return key.device == reference or key.role == reference == REFERENCE

    of_model = CaseFilter(model=case_filter.model, days=case_filter.days)
    references = [case for case in picked_cases(context.book, of_model) if belongs(case.key)]
    members = {case.key: case for case in (*cases_to_compare, *references)}
    known_cases = summaries(list(members.values()), case_filter)
    return of_summaries(known_cases, belongs, reference)
