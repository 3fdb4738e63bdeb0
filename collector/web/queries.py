"""The reader's filter, the matching cases of the book, and the context of every view."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.collector.charts.chart import Chart, script_data
from edgemeter.collector.compare.case_book import BookedCase, CaseBook
from edgemeter.collector.compare.comparison import Comparison, of_summaries
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted
from edgemeter.collector.published.readers import PublishedFolder, default_folder
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.store import RunStore
from edgemeter.collector.web.activity import Activities, read_activities
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.markup import Markup, render
from edgemeter.collector.web.view import Links

REFERENCE = "reference"
# The fields that filter a view.
FACETS = ("fleet", "device", "board", "model", "runtime", "precision")
LEVELS: dict[DaysCounted, str] = {"current": "current level", "all": "all levels"}
PERIODS = {"7": "last 7 days", "30": "last 30 days", "90": "last 90 days"}
_in_order = attrgetter(
    "key.model", "key.fleet", "key.device", "key.precision", "key.runtime", "first_ns"
)


@dataclass(frozen=True, slots=True)
class CaseFilter:
    """The reader's filter, with facets (None: all).

    `days` count back from the newest run (None: all); `level` is whether only the current level
    counts.
    """

    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    runtime: str | None = None
    precision: str | None = None
    days: int | None = None
    level: DaysCounted = "current"

    def takes(self, case: BookedCase) -> bool:
        return all(getattr(self, name) in (None, facet(case, name)) for name in FACETS)


def parse_filter(fields: Mapping[str, str]) -> CaseFilter:
    """Return the filter in an address; empty fields are ignored.

    Raises ConfigError if the period or the level is invalid.
    """
    days = fields.get("days", "")
    if days and not re.fullmatch(r"[1-9]\d{0,4}", days, re.ASCII):
        raise ConfigError(f"days={days!r} is not a period: give a number of days, such as days=30")
    level = fields.get("level", "current")
    if level not in LEVELS:
        raise ConfigError(
            f"level={level!r} is unknown: give level=all for every run, or leave it out for the "
            "current level"
        )
    return CaseFilter(
        **{name: fields.get(name) or None for name in FACETS},
        days=int(days) if days else None,
        level=level,
    )


def facet(case: BookedCase, name: str) -> str:
    return case.board if name == "board" else str(getattr(case.key, name))


def picked_cases(book: CaseBook, case_filter: CaseFilter) -> list[BookedCase]:
    """Return the cases, counted over all their runs, or over those of the period."""
    picked = sorted(filter(case_filter.takes, book.cases), key=_in_order)
    return (
        picked
        if case_filter.days is None
        else book.within(since_ns(book, case_filter.days), picked)
    )


def of_every_board(cases: Sequence[BookedCase]) -> list[BookedCase]:
    """Return cases in an order that has one of each board type in turn."""
    of_boards = grouped((case.board, case) for case in sorted(cases, key=attrgetter("board")))
    return [case for turn in zip_longest(*of_boards.values()) for case in turn if case is not None]


def summaries(cases: Sequence[BookedCase], case_filter: CaseFilter) -> list[CaseSummary]:
    """Return the summaries of the cases with a usable run, in the order of their first runs."""
    return sorted(
        [summary for case in cases if (summary := case.summary(case_filter.level))],
        key=attrgetter("first"),
    )


def since_ns(book: CaseBook, days: int) -> int:
    """Return the start of a period of days that ends now, or at the newest run if that is older."""
    newest = max((case.newest_ns for case in book.cases), default=0)
    return min(newest, time.time_ns()) - days * NS_PER_DAY


def live_chart(chart: Chart, fallback: str = "") -> Markup:
    """Return a chart that the page's script draws.

    `fallback` (SVG) is for browsers without scripts.
    """
    return render(
        "chart.html",
        chart=chart,
        fallback=Markup(fallback),
        document=Markup(script_data(chart.document())),
    )


@dataclass(frozen=True, slots=True)
class ViewContext:
    """The data for one view; used by one thread."""

    book: CaseBook
    links: Links
    events: TrendEvents
    draw: Callable[[Chart], Markup] = live_chart
    published: PublishedFolder = field(default_factory=default_folder)

    @property
    def store(self) -> RunStore:
        """The runs, and the devices' reports."""
        return self.book.store

    @property
    def activities(self) -> Activities:
        """The current measurements; none in a file, which is read later."""
        return Activities() if self.links.is_file else read_activities(self.store, time.time_ns())

    def render(self, template: str, **values: object) -> Markup:
        """Return a rendered template with values.

        They may refer to other views and draw charts.
        """
        return render(template, links=self.links, draw=self.draw, **values)


def reference_names(book: CaseBook, model: str | None = None) -> list[str]:
    """Return the possible references (which ran a given `model`).

    The role `reference` is first if there is one, then devices, its own first.
    """
    keys = [case.key for case in book.cases if model in (None, case.key.model)]
    roles = [REFERENCE] if any(key.role == REFERENCE for key in keys) else []
    devices = sorted({(key.role != REFERENCE, key.device) for key in keys})
    return list(dict.fromkeys([*roles, *(device for _, device in devices)]))


def compare(
    context: ViewContext,
    cases_to_compare: Sequence[BookedCase],
    case_filter: CaseFilter,
    reference: str,
) -> Comparison:
    """Return the comparison of these cases with those of `reference`.

    The reference is a device, or the role; the filter does not affect its cases.
    """

    def belongs(key: CaseKey) -> bool:
        return key.device == reference or key.role == reference == REFERENCE

    of_model = CaseFilter(model=case_filter.model, days=case_filter.days)
    references = [case for case in picked_cases(context.book, of_model) if belongs(case.key)]
    members = {case.key: case for case in (*cases_to_compare, *references)}
    return of_summaries(
        summaries(list(members.values()), case_filter), belongs, reference, context.store.left_out()
    )
