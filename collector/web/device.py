"""The page of one device.

It shows the machine, its difference from others of its type, its trend and newest runs.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from edgemeter.agent.base import number_text
from edgemeter.agent.base.documents import Plain
from edgemeter.agent.contract.energy_provenance import MEASURED
from edgemeter.agent.contract.figures import (
    ENERGY,
    LATENCY,
    TPOT,
    TTFT,
    Figure,
    FigureView,
    figure,
    in_view,
)
from edgemeter.agent.contract.health_issues import health_facts, needs_attention
from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.agent.contract.series import UNKNOWN_BOARD
from edgemeter.collector.charts.chart import Chart
from edgemeter.collector.compare.case_book import BookedCase
from edgemeter.collector.runs.figure_names import with_part
from edgemeter.collector.web.queries import CaseFilter, ViewContext, picked_cases
from edgemeter.collector.web.run import machine_facts
from edgemeter.collector.web.series import series, series_groups, titles
from edgemeter.collector.web.view import View, ViewColumn, ViewGrid, ViewRequest

RUNS_SHOWN, LONGEST_ID = 60, 24
CHARTS = 6
# The figures that are drawn over the days, for calls and for generated text.
DRAWN = {False: (figure(LATENCY), figure(ENERGY)), True: (figure(TTFT), figure(TPOT))}


def device_view(
    context: ViewContext,
    request: ViewRequest,  # noqa: ARG001 - every view has the same signature
    case_filter: CaseFilter,
) -> View:
    """Return the page of the selected device, else of the first that matches."""
    if case_filter.device is None:
        devices = (case.key.device for case in filter(case_filter.takes, context.book.cases))
        case_filter = replace(case_filter, device=min(devices, default=""))
    device_cases = picked_cases(
        context.book, replace(case_filter, board=None, model=None, runtime=None, precision=None)
    )
    if not device_cases:
        return View(
            "No run matches", context.render("message.html", text="No run has this device.")
        )
    newest = max(device_cases, key=lambda case: case.newest_ns)
    runs = _runs(context, device_cases)
    body = context.render(
        "device.html",
        findings=context.events.findings_of(
            {"device": newest.key.device, "fleet": newest.key.fleet}
        ),
        measuring=context.activities.of(newest.key.fleet, newest.key.device),
        machine=_machine(context, newest),
        board=newest.board,
        deviations=context.events.outlying.get((newest.key.fleet, newest.key.device), ()),
        same_board=None
        if newest.board == UNKNOWN_BOARD
        else context.links.to("compare", board=newest.board),
        trends=_trends(context, device_cases),
        runs=runs,
    )
    simulated = "" if newest.key.provenance == "measured" else f", {newest.key.provenance}"
    counted = (
        f"{number_text.count(sum(case.runs for case in device_cases), 'run')} of "
        f"{number_text.count(len(device_cases), 'case')}"
    )
    lead = (
        f"{newest.board}, fleet {newest.key.fleet}, role {newest.key.role}{simulated}: {counted}."
    )
    return View(newest.key.device, body, lead, (runs.plain,))


def _machine(context: ViewContext, newest: BookedCase) -> dict[str, str | None]:
    device_name = (newest.key.fleet, newest.key.device)
    presence = next(
        (
            device
            for device in context.store.devices()
            if (device.fleet, device.device) == device_name
        ),
        None,
    )
    state = (
        f"{presence.state or 'not reported'}, since {number_text.stamp(presence.changed_ns)} UTC"
        if presence
        else None
    )
    facts = machine_facts(
        context.store.record(context.store.runs_of(newest.members).values_of("row")[-1])
    )
    if presence and presence.health:
        now_ns = time.time_ns()
        facts |= {
            "Needs attention": "; ".join(needs_attention(presence.health, now_ns)) or "nothing"
        }
        facts |= health_facts(presence.health, now_ns)
    return {"State": state} | facts


def _trends(context: ViewContext, device_cases: Sequence[BookedCase]) -> list[Chart]:
    span = (
        float(min(case.first_ns for case in device_cases)),
        float(max(case.newest_ns for case in device_cases) + 1),
    )
    groups = series_groups(device_cases)
    return [
        charted.chart
        for members, title in zip(groups[:CHARTS], titles(groups)[:CHARTS], strict=True)
        for entry in DRAWN[members[0].key.generates]
        if (charted := series(context, members, entry, days=None, span=span, title=title))
    ]


def _runs(context: ViewContext, device_cases: Sequence[BookedCase]) -> ViewGrid[RunFigures]:
    runs = [
        run
        for case in device_cases
        for run in context.store.runs_of(case.members).part(slice(-RUNS_SHOWN, None)).each()
    ]
    columns: list[ViewColumn[RunFigures]] = [
        ViewColumn(
            "run",
            "Run",
            attrgetter("id"),
            lambda run: run.id if len(run.id) <= LONGEST_ID else f"{run.id[: LONGEST_ID // 2]}…",
            leads_to=("run", {"id": attrgetter("id")}),
            is_text=True,
        ),
        ViewColumn(
            "started_at_ns",
            "Started (UTC)",
            attrgetter("started_at_ns"),
            lambda run: number_text.stamp(run.started_at_ns),
        ),
        ViewColumn("verdict", "Verdict", attrgetter("verdict.state"), is_text=True),
        *(
            ViewColumn(name, name.capitalize(), attrgetter(f"subject.key.{name}"), is_text=True)
            for name in ("model", "precision")
        ),
        ViewColumn(
            "runtime",
            "Runtime",
            attrgetter("subject.key.runtime"),
            small=lambda run: number_text.count(run.subject.key.threads, "thread"),
            is_text=True,
        ),
        *(
            ViewColumn(hidden, "", attrgetter(f"subject.key.{hidden}"))
            for hidden in ("backend", "threads", "batch")
        ),
        *(column for entry in in_view(FigureView.LIST) for column in _figure_columns(entry)),
        ViewColumn("energy_provenance", "", attrgetter("subject.energy_provenance")),
    ]
    newest = sorted(runs, key=lambda run: -run.started_at_ns)[:RUNS_SHOWN]
    return ViewGrid("runs", columns, [newest], lambda run: {"data-at": str(run.started_at_ns)})


def _figure_columns(entry: Figure) -> list[ViewColumn[RunFigures]]:
    def plain(run: RunFigures) -> Plain:
        value = run.value(entry.name)
        return value if value is None or not entry.is_truth else bool(value)

    def text(run: RunFigures) -> str:
        value = run.value(entry.name)
        if entry.is_truth:
            return "not reported" if value is None else "yes" if value else "no"
        return number_text.typeset(entry.shown(value))

    def provenance(run: RunFigures) -> str | None:
        energy_provenance = run.subject.energy_provenance
        return (
            energy_provenance if entry.group == "energy" and energy_provenance != MEASURED else None
        )

    columns = [
        ViewColumn(
            entry.name,
            entry.heading,
            plain,
            text,
            provenance,
            is_text=entry.is_truth,
            needs_width=not entry.is_main,
        )
    ]
    if entry.u:
        columns.append(ViewColumn(with_part(entry.name, "_u"), "", lambda run: run.u(entry)))
    return columns
