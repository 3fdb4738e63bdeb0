"""The page as one file: every view that fits, in a file that loads nothing and works offline."""

import time
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base import number_text
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.progress import Tell, no_progress
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, LATENCY
from edgemeter.collector.charts import vega
from edgemeter.collector.charts.chart import Chart
from edgemeter.collector.compare.case_book import CaseBook, book_of
from edgemeter.collector.runs.store import RunStore
from edgemeter.collector.web.case_table import CASES_SHOWN
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.markup import Markup
from edgemeter.collector.web.queries import (
    FACETS,
    REFERENCE,
    CaseFilter,
    ViewContext,
    live_chart,
    picked_cases,
    reference_names,
)
from edgemeter.collector.web.site import (
    WrittenView,
    content,
    held_exports,
    offered,
    one_file_page,
    show,
)
from edgemeter.collector.web.view import Links, ViewRequest, read_address

# The content of a file, limited so that it can be sent and opened; the served page has all.
REFERENCES, PAGES, MODELS, DEVICES, RUNS = 8, 10, 12, 60, 40
METRICS = (LATENCY, ENERGY, ACCURACY, "is_throttled")


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The content of a file: the cases and the number of runs with raw samples.

    The comparison with `reference` is first.
    """

    case_filter: CaseFilter = CaseFilter()  # noqa: RUF009 - frozen
    runs: int = RUNS
    reference: str | None = None


def write_file_of(
    store: RunStore, path: Path, choice: FileChoice, progress: Tell = no_progress
) -> int:
    """Write the page of a store as one file and return its size in bytes.

    It raises ConfigError if `choice` selects no run, or on failure.
    """
    case_filter, book = choice.case_filter, book_of(store, progress)
    if book.cases and not any(map(case_filter.takes, book.cases)):
        request = ", ".join(f"{name} {value!r}" for name, value in _fixed(case_filter).items())
        raise ConfigError(
            f"no run has {request}: nothing is written; `edgemeter runs` shows what is kept"
        )
    events = TrendEvents(store)
    events.refresh()
    text = whole_page(book, events, choice, progress)
    with os_error_as(ConfigError, f"cannot write the report to {str(path)!r}", "name another file"):
        return path.write_bytes(text.encode())


def whole_page(
    book: CaseBook, events: TrendEvents, choice: FileChoice, progress: Tell = no_progress
) -> str:
    addresses, left_away = _held(ViewContext(book, Links(()), events), choice)
    written_views: list[WrittenView] = []

    def write(chart: Chart) -> Markup:
        # Without a script only the first view is visible.
        return live_chart(chart, "" if written_views else vega.svg(chart))

    context = ViewContext(book, Links(frozenset(addresses)), events, write)
    choices = offered(context)
    for count, text in enumerate(addresses, start=1):
        request = read_address(text)
        view = show(
            context, ViewRequest(request.view, {**_fixed(choice.case_filter), **request.fields})
        )
        written_views.append(
            WrittenView(
                text,
                content(view, request, choices, context.links, held_exports(view, request)),
                view.title,
            )
        )
        progress("making views", count, len(addresses))
    left_out = f" Not in this file: {'; '.join(left_away)}." if left_away else ""
    remark = (
        f"Written on {number_text.stamp(time.time_ns())} UTC: "
        f"{number_text.count(len(written_views), 'view')} in one file.{left_out}"
    )
    return one_file_page(
        written_views[0], [(view.address, view.content) for view in written_views[1:]], remark
    )


def _fixed(case_filter: CaseFilter) -> dict[str, str]:
    fields = {name: getattr(case_filter, name) for name in CaseFilter.__slots__}
    return {
        name: str(value)
        for name, value in fields.items()
        if value is not None and (name, value) != ("level", "current")
    }


def _held(context: ViewContext, choice: FileChoice) -> tuple[list[str], list[str]]:
    """Return the addresses of a file, and the omissions."""
    every_case = picked_cases(context.book, choice.case_filter)
    models = list(dict.fromkeys(case.key.model for case in every_case))
    devices = list(dict.fromkeys((case.key.fleet, case.key.device) for case in every_case))
    role_devices = {case.key.device for case in context.book.cases if case.key.role == REFERENCE}
    offered_references = {REFERENCE, *(device for _, device in devices), *role_devices}
    every_reference = [name for name in reference_names(context.book) if name in offered_references]
    references = every_reference if choice.reference is None else [choice.reference]
    kept_models, kept_devices, kept_references = (
        models[:MODELS],
        devices[:DEVICES],
        references[:REFERENCES],
    )
    # The newest run of each case, ordered by what a comparison needs: references first.
    newest = [
        context.store.runs_of(case.members).values_of("id")[-1]
        for case in sorted(
            every_case, key=lambda case: (case.key.role != "reference", -case.newest_ns)
        )[: choice.runs]
    ]
    # The first page for the other references.
    pages = min(PAGES, -(-len(every_case) // CASES_SHOWN))
    requests = [
        *([ViewRequest("compare", {"reference": choice.reference})] if choice.reference else []),
        ViewRequest("overview"),
        # Published figures use other names for models and devices: the filter of a file does not
        # apply to them.
        *([] if _fixed(choice.case_filter).keys() & set(FACETS) else [ViewRequest("published")]),
        *(
            ViewRequest("compare", {"reference": name})
            for name in kept_references
            if name != choice.reference
        ),
        *(
            ViewRequest("compare", {"reference": name, "page": str(page)})
            for name in kept_references[:1]
            for page in range(2, pages + 1)
        ),
        # With one model this would repeat that model's trend.
        *([ViewRequest("trend")] if len(kept_models) > 1 else []),
        *(
            ViewRequest("trend", {"model": name, "metric": metric})
            for name in kept_models
            for metric in METRICS
        ),
        *(
            ViewRequest("device", {"fleet": fleet, "device": device})
            for fleet, device in kept_devices
        ),
        *(ViewRequest("run", {"id": name}) for name in newest),
        *([ViewRequest("alerts")] if context.events.alerts()[0] else []),
    ]
    left_counts = [
        (len(models) - len(kept_models), "model"),
        (len(devices) - len(kept_devices), "device"),
        (len(references) - len(kept_references), "reference"),
        (len(every_case) - PAGES * CASES_SHOWN, "case"),
        (sum(case.runs for case in every_case) - len(newest), "run"),
    ]
    away = [
        f"{number_text.count(number, f'more {noun}')}" for number, noun in left_counts if number > 0
    ]
    return [request.address for request in requests], away
