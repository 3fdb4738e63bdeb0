"""The context of a view: the index at one moment, the records behind it, its charts, and how views refer to each other."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.alerts.lifecycle import Alert
from edgemeter.collector.charts.chart import Chart, ChartSheet, script_data
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow, of_summaries
from edgemeter.collector.compare.judgement import SmallestDifferences
from edgemeter.collector.compare.summary import CaseSummary, summarise
from edgemeter.collector.runs.cases import Case, CaseKey
from edgemeter.collector.web.case_figures import CaseFigures, energy_kind_of
from edgemeter.collector.web.markup import NOTHING, Markup, part, raw
from edgemeter.collector.web.queries import CaseFilter, cases_of_baseline
from edgemeter.collector.web.run_index import IndexedCase
from edgemeter.collector.web.sources import RecordSource
from edgemeter.collector.web.view import Links

REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class SeriesEvent:
    """An event in a series: a step with its size, or a remark. `kind` is `step` or `remark`."""

    at_ns: int
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class OutlyingDevice:
    """A device that differs from the others of its type: by how much, and what to check first."""

    fleet: str
    device: str
    text: str


@dataclass(frozen=True, slots=True)
class FindingShown:
    """A change that was found: an event with all series that it hit, or a step that is alone.

    `who` names whom it hit, `metric` is the one in which it hit the most series; `devices` are by fleet and name.
    """

    day: int
    metric: str
    text: str
    is_worse: bool
    who: str
    devices: tuple[tuple[str, str], ...]
    boards: tuple[str, ...]
    models: tuple[str, ...]


class EventSource(Protocol):
    """Findings and annotations of a series; called once for each chart, while a view is made."""

    def of(self, run: RunRecord, metric: str) -> Sequence[SeriesEvent]:
        """Return what happened in the series that `run` belongs to, oldest first."""
        ...

    def outlying(self) -> Sequence[OutlyingDevice]:
        """Return the devices that differ from others of their type."""
        ...

    def findings(self) -> Sequence[FindingShown]:
        """Return the changes of the last weeks, the newest first."""
        ...

    def alerts(self) -> Sequence[Alert]:
        """Return all alerts, the oldest first."""
        ...

    def version(self) -> str:
        """Return what changes whenever a result does."""
        ...

    def refresh(self) -> None:
        """Take in what came since; called from one thread, while others read."""
        ...


@dataclass(frozen=True, slots=True)
class NoEvents:
    """No events."""

    def of(self, run: RunRecord, metric: str) -> Sequence[SeriesEvent]:  # noqa: ARG002 - the protocol's
        """Return nothing."""
        return ()

    def outlying(self) -> Sequence[OutlyingDevice]:
        """Return nothing."""
        return ()

    def findings(self) -> Sequence[FindingShown]:
        """Return nothing."""
        return ()

    def alerts(self) -> Sequence[Alert]:
        """Return nothing."""
        return ()

    def version(self) -> str:
        """Return always the same."""
        return ""

    def refresh(self) -> None:
        """Nothing comes."""


def live_chart(chart: Chart, _number: int, fallback: Markup = NOTHING) -> Markup:
    """Return a chart that the page's script draws; `fallback` is what a browser without scripts shows."""
    return part("chart", chart, fallback, raw(script_data(chart.document())))


@dataclass(frozen=True, slots=True)
class ViewContext:
    """What a view is made from; used by one thread, for one view."""

    connection: sqlite3.Connection
    source: RecordSource
    links: Links
    events: EventSource
    sheet: ChartSheet = field(default_factory=lambda: ChartSheet(live_chart))
    matters: SmallestDifferences = SmallestDifferences()  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class IndexedComparison:
    """A comparison together with the indexed case that each of its summaries was made from."""

    comparison: Comparison
    origin: dict[int, IndexedCase]

    def case_of(self, summary: CaseSummary) -> IndexedCase:
        """Return the case of the index behind a summary of the comparison."""
        return self.origin[id(summary)]


def baselines(connection: sqlite3.Connection) -> list[str]:
    """Return what may be compared with: the role `reference` where there is one, then every device, those of that role first."""
    query = "SELECT DISTINCT device, json_extract(key, '$.role') = ? AS is_reference FROM cases ORDER BY is_reference DESC, device"
    found = connection.execute(query, (REFERENCE,)).fetchall()
    roles = [REFERENCE] if any(is_reference for _, is_reference in found) else []
    return list(dict.fromkeys([*roles, *(device for device, _ in found)]))


def devices_of_role(connection: sqlite3.Connection) -> list[str]:
    """Return the devices in the role `reference`."""
    query = "SELECT DISTINCT device FROM cases WHERE json_extract(key, '$.role') = ?"
    return [device for (device,) in connection.execute(query, (REFERENCE,))]


def compare(
    context: ViewContext, own: Sequence[IndexedCase], case_filter: CaseFilter, baseline: str, *, with_samples: frozenset[int] = frozenset()
) -> IndexedComparison:
    """Return the cases `own` compared with those of `baseline` (a device, or the role), whatever else was picked.

    The cases of the index whose numbers are in `with_samples` come with the raw samples of their newest run.
    """
    numbers = {case.number for case in own}
    references = cases_of_baseline(context.connection, baseline, REFERENCE, case_filter)
    members = [*own, *(case for case in references if case.number not in numbers)]
    origin: dict[int, IndexedCase] = {}
    summaries = []
    for case in members:
        if not case.current.usable:
            continue
        newest = sampled(context, case) if case.number in with_samples else case.newest
        summary = summary_of(case, newest)
        origin[id(summary)] = case
        summaries.append(summary)
    found = of_summaries(summaries, lambda key: _belongs(key, baseline), baseline, matters=context.matters)
    # A summary here holds the newest run only, whatever its figures are over.
    rows = tuple(_marked(row, origin[id(row.case)].current) for row in found.rows)
    return IndexedComparison(replace(found, rows=rows), origin)


def _marked(row: ComparisonRow, figures: CaseFigures) -> ComparisonRow:
    return replace(row, marks=tuple(mark for mark in row.marks if mark != "one run" or figures.usable == 1))


def summary_of(case: IndexedCase, newest: RunRecord) -> CaseSummary:
    """Return the summary as `compare` makes it: the figures of the runs that count, the rest from the newest."""
    found = case.current
    # Of an unusable newest run the words are used, its figures are replaced below.
    summary = summarise(Case(case.key, (newest,)))
    gross, accuracy = found.spread("gross_mj"), found.spread("accuracy")
    energy = (
        replace(summary.energy, gross_mj=gross, gross_u_mj=found.gross_u_mj, net_mj=found.spread("net_mj"), net_u_mj=found.net_u_mj)
        # A newest run that cannot be used may have its energy from elsewhere: its words are not those of the figures.
        if summary.energy and gross and energy_kind_of(newest) == found.energy_kind
        else None
    )
    return replace(
        summary,
        p50_ms=found.spread("p50_ms"),
        p90_ms=found.spread("p90_ms"),
        p99_ms=found.spread("p99_ms"),
        throughput_per_s=found.spread("throughput_per_s") or summary.throughput_per_s,
        memory=replace(summary.memory, peak_mb=found.spread("peak_mb") or summary.memory.peak_mb) if summary.memory else None,
        accuracy=replace(summary.accuracy, value=accuracy) if summary.accuracy and accuracy else None,
        energy=energy,
        suspect=found.suspect,
        segment=found.segment,
    )


def sampled(context: ViewContext, case: IndexedCase) -> RunRecord:
    """Return the newest run of a case with its raw samples, without them where they were thinned away."""
    found = context.connection.execute(
        "SELECT row FROM runs WHERE case_number = ? AND is_usable ORDER BY started_at_ns DESC LIMIT 1", (case.number,)
    ).fetchone()
    return context.source.one(int(found[0])) if found else case.newest


def _belongs(key: CaseKey, baseline: str) -> bool:
    return key.device == baseline or (baseline == REFERENCE and key.role == REFERENCE)
