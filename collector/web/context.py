"""The context of a view: the index at one moment, the records behind it, its charts, and how views refer to each other."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.verdict.siblings import judged_apart
from edgemeter.collector.charts.chart import Chart, script_data
from edgemeter.collector.compare.comparison import Comparison, of_summaries
from edgemeter.collector.index.index_file import WITH_ID, IndexedCase
from edgemeter.collector.index.sources import RecordSource
from edgemeter.collector.published.published_folder import PublishedFolder, default_folder
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.markup import Markup, render
from edgemeter.collector.web.queries import CaseFilter, cases_of_reference, summaries
from edgemeter.collector.web.view import Links

REFERENCE = "reference"


def live_chart(chart: Chart, fallback: str = "") -> Markup:
    """Return a chart that the page's script draws; `fallback` (SVG) is what a browser without scripts shows."""
    return render("chart.html", chart=chart, fallback=Markup(fallback), document=Markup(script_data(chart.document())))


@dataclass(frozen=True, slots=True)
class ViewContext:
    """The data that a view is made from; used by one thread, for one view."""

    connection: sqlite3.Connection
    source: RecordSource
    links: Links
    events: TrendEvents
    draw: Callable[[Chart], Markup] = live_chart
    matters_ratio: float = MATTERS_RATIO
    published: PublishedFolder = field(default_factory=default_folder)

    def render(self, template: str, **values: object) -> Markup:
        """Return what a template makes of values, which may refer to other views and draw charts."""
        return render(template, links=self.links, draw=self.draw, **values)


def reference_names(connection: sqlite3.Connection, model: str | None = None) -> list[str]:
    """Return what may be compared with (what ran a given `model`): the role `reference` if there is one, then devices, its own first."""
    condition, values = CaseFilter(model=model).condition()
    query = f"SELECT DISTINCT device, json_extract(key, '$.role') = ? AS is_reference FROM cases WHERE {condition}"  # noqa: S608 - our own
    rows = connection.execute(f"{query} ORDER BY is_reference DESC, device", (REFERENCE, *values)).fetchall()
    roles = [REFERENCE] if any(is_reference for _, is_reference in rows) else []
    return list(dict.fromkeys([*roles, *(device for device, _ in rows)]))


def compare(context: ViewContext, cases_to_compare: Sequence[IndexedCase], case_filter: CaseFilter, reference: str) -> Comparison:
    """Return the cases `cases_to_compare` compared with those of `reference` (a device, or the role), whatever else was picked."""
    references = cases_of_reference(context.connection, reference, REFERENCE, case_filter)
    members = {case.number: case for case in (*cases_to_compare, *references)}
    known_cases = summaries(context.connection, list(members.values()), case_filter)
    is_role = reference == REFERENCE
    return of_summaries(
        known_cases,
        lambda key: key.device == reference or (is_role and key.role == REFERENCE),
        reference,
        matters_ratio=context.matters_ratio,
    )


def read_run(context: ViewContext, run_id: str) -> tuple[RunRecord, Verdict]:
    """Return the run of an id with its raw samples, and its verdict among its siblings; raises ConfigError if there is no such run."""
    query = f"SELECT row, siblings_p50_ms, siblings FROM measured WHERE {WITH_ID} ORDER BY row DESC LIMIT 1"  # noqa: S608 - our own names
    for row, siblings_p50_ms, siblings in context.connection.execute(query, (run_id,)):
        run = context.source.one(row)
        return run, (judged_apart(run, siblings_p50_ms, siblings) if siblings else run).verdict
    raise ConfigError(f"there is no run {run_id!r}")
