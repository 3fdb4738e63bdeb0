"""The overview shows devices, models and board types.

It also shows combinations that were never measured, and devices that need attention.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from edgemeter.agent.base import number_text
from edgemeter.agent.base.documents import JOINT, Plain
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.figures import ENERGY, LATENCY, figure
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.health_issues import certificate_days, clock_text, needs_attention
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.alerts.check import undelivered_texts
from edgemeter.collector.alerts.firing import page_address
from edgemeter.collector.alerts.rules import SEVERITIES
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.compare.case_book import BookedCase
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.relation import like_with_like
from edgemeter.collector.show.words import figure_text, listed
from edgemeter.collector.web.events import FINDING_DAYS
from edgemeter.collector.web.queries import CaseFilter, ViewContext, picked_cases, summaries
from edgemeter.collector.web.view import View, ViewColumn, ViewGrid, ViewRequest

# A device without a run for this long is silent.
SILENT_DAYS = 7
# Cases whose newest run is older than the newest of all by this much are stale.
STALE_DAYS = 30
DEVICES_SHOWN = 250


class _DeviceLine:
    """A device, with a summary of its cases, and its reports.

    It has its difference from others of its type (empty if there is none).
    """

    def __init__(
        self,
        members: Sequence[BookedCase],
        presence: DevicePresence | None,
        outlying: Sequence[str],
        newest_ns: int,
    ) -> None:
        newest = max(members, key=lambda case: case.newest_ns)
        self.name = self.fleet, self.device = newest.key.fleet, newest.key.device
        self.board, self.role, self.last_ns = newest.board, newest.key.role, newest.newest_ns
        self.runs, self.disturbed, self.throttled, self.throttling_known = (
            sum(getattr(case, name) for case in members)
            for name in ("runs", "disturbed", "throttled", "throttling_known")
        )
        self.invalid = self.runs - sum(case.usable for case in members)
        self.temperature_max_c = max(
            [case.temperature_max_c for case in members if case.temperature_max_c is not None],
            default=None,
        )
        self.models = sorted({case.key.model for case in members})
        self.state, self.health = (presence.state, presence.health) if presence else (None, None)
        self.is_silent = (
            self.state != "revoked" and newest_ns - self.last_ns > SILENT_DAYS * NS_PER_DAY
        )
        self.outlying = outlying
        words = {
            "silent": self.is_silent or self.state == "lost",
            "deviates": bool(outlying),
            "throttled": self.throttled > 0,
        }
        # Worst first; empty if there is none.
        self.condition = ", ".join(word for word, is_so in words.items() if is_so)
        self.rank = *(not is_so for is_so in words.values()), self.role != "reference", *self.name

    @property
    def reasons(self) -> list[str]:
        """Why somebody should look at it."""
        reasons = {
            "its connection was lost": self.state == "lost",
            f"no run since {number_text.stamp(self.last_ns)[:10]}": self.is_silent,
            **dict.fromkeys(
                needs_attention(self.health, time.time_ns()) if self.health else (), True
            ),
            (
                f"throttled in {self.throttled} of the "
                f"{number_text.count(self.throttling_known, 'run')} that reported it"
            ): self.throttled > 0,
            number_text.count(self.invalid, "invalid run"): self.invalid > 0,
        }
        return [*self.outlying, *(text for text, is_so in reasons.items() if is_so)]


def overview(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    every_case = picked_cases(context.book, case_filter)
    activities = context.activities
    now = {
        "jobs": [job for job in activities.jobs if job.progress.is_current],
        "measuring": [
            activity
            for activity in activities.devices
            if case_filter.fleet in (None, activity.fleet)
        ],
    }
    if not every_case:
        return View("Nothing here yet", context.render("overview.html", newest=None, **now))
    newest = max(every_case, key=lambda case: case.newest_ns)
    present = {(device.fleet, device.device): device for device in context.store.devices()}
    of_devices = grouped(((case.key.fleet, case.key.device), case) for case in every_case)
    lines = sorted(
        (
            _DeviceLine(
                members, present.get(name), context.events.outlying.get(name, ()), newest.newest_ns
            )
            for name, members in of_devices.items()
        ),
        key=attrgetter("rank"),
    )
    common, common_cases = _common_case(every_case, lines[:DEVICES_SHOWN], case_filter)
    devices, covered = (
        _device_table(lines[:DEVICES_SHOWN], common_cases),
        _coverage(every_case, newest.newest_ns),
    )
    totals = {
        name: sum(getattr(case, name) for case in every_case)
        for name in ("runs", "usable", "disturbed")
    }
    boards, models = (
        sorted({case.board for case in every_case}),
        {case.key.model for case in every_case},
    )
    alerts, notified = context.events.alerts()
    body = context.render(
        "overview.html",
        **now,
        **totals,
        newest=newest,
        age=number_text.age(time.time_ns() - newest.newest_ns),
        cases=len(every_case),
        boards=boards,
        models=len(models),
        waiting=undelivered_texts(notified),
        open_alerts=sorted(
            (alert for alert in reversed(alerts) if alert.state == "open"),
            key=lambda alert: SEVERITIES.index(alert.severity),
        ),
        page_address=page_address,
        findings=context.events.findings_of(request.fields),
        found=context.events.findings,
        finding_days=FINDING_DAYS,
        lines=lines,
        silent_days=SILENT_DAYS,
        coverage=covered,
        stale_days=STALE_DAYS,
        devices=devices,
        common=common,
        hidden_devices=len(lines) - DEVICES_SHOWN,
    )
    simulated = (
        " The fleet named simulated is simulated: none of its figures was measured."
        if any(case.key.fleet == "simulated" for case in every_case)
        else ""
    )
    lead = (
        f"{number_text.count(totals['runs'], 'run')} of "
        f"{number_text.count(len(every_case), 'case')} on {listed(boards)};"
        f" {totals['usable']:,} of the runs may be compared. The newest is of "
        f"{number_text.stamp(newest.newest_ns)} UTC.{simulated}"
    )
    title = f"{number_text.count(len(lines), 'device')}, {number_text.count(len(models), 'model')}"
    coverage = ViewTable("coverage", _Covered._fields[:-1], tuple(cell[:-1] for cell in covered))
    return View(title, body, lead, (devices.plain, coverage))


def _common_case(
    every_case: Sequence[BookedCase], lines: Sequence[_DeviceLine], case_filter: CaseFilter
) -> tuple[str, Mapping[tuple[str, str], CaseSummary]]:
    """Return the case that most devices ran, in words, and its figures.

    The figures are by fleet and device for the listed ones.
    """
    members = max(
        grouped((like_with_like(case.key), case) for case in every_case if case.usable).values(),
        key=lambda members: len({(case.key.fleet, case.key.device) for case in members}),
        default=[],
    )
    if not members:
        return "no case", {}
    listed_devices = {line.name for line in lines}
    shown_cases = [case for case in members if (case.key.fleet, case.key.device) in listed_devices]
    key = members[0].key
    common_cases = {case.device: case for case in summaries(shown_cases, case_filter)}
    return f"{key.model}, {key.precision} on {key.runtime}", common_cases


def _device_table(
    lines: Sequence[_DeviceLine], common_cases: Mapping[tuple[str, str], CaseSummary]
) -> ViewGrid[_DeviceLine]:
    def of_common(name: str) -> ViewColumn[_DeviceLine]:
        with_figure = {
            device: case for device, case in common_cases.items() if name in case.figures
        }

        def value(line: _DeviceLine) -> float | None:
            return with_figure[line.name].figures[name].value if line.name in with_figure else None

        def text(line: _DeviceLine) -> str:
            is_there = line.name in with_figure
            return (
                figure_text(figure(name), with_figure[line.name].figures[name])
                if is_there
                else number_text.typeset(number_text.ABSENT)
            )

        def rank(line: _DeviceLine) -> str | None:
            # Energies rank with their own class only.
            energy = (
                with_figure[line.name].energy
                if name == ENERGY and line.name in with_figure
                else None
            )
            return str(energy.ranks_as) if energy else None

        return ViewColumn(name, figure(name).heading, value, text, rank)

    def of_health(
        name: str, heading: str, value: Callable[[Health], Plain], **settings: Any
    ) -> ViewColumn[_DeviceLine]:
        return ViewColumn(
            name,
            heading,
            lambda line: value(line.health) if line.health else None,
            needs_width=True,
            **settings,
        )

    def of_runs(line: _DeviceLine) -> str:
        return ", ".join(
            f"{count:,} {name}"
            for name in ("disturbed", "invalid", "throttled")
            if (count := getattr(line, name))
        )

    now_ns = time.time_ns()
    columns: list[ViewColumn[_DeviceLine]] = [
        ViewColumn("device", "Device", attrgetter("device"), is_text=True),
        ViewColumn("fleet", "", attrgetter("fleet")),
        ViewColumn("board", "Board", attrgetter("board"), is_text=True),
        ViewColumn("role", "", attrgetter("role")),
        ViewColumn(
            "state",
            "State",
            attrgetter("state"),
            lambda line: line.state or "not reported",
            is_text=True,
        ),
        ViewColumn("condition", "", lambda line: line.condition or None),
        of_common(LATENCY),
        of_common(ENERGY),
        ViewColumn(
            "last_started_at_ns",
            "Last run (UTC)",
            attrgetter("last_ns"),
            lambda line: number_text.stamp(line.last_ns)[:16],
        ),
        ViewColumn("runs", "Runs", attrgetter("runs"), small=of_runs, needs_width=True),
        *(ViewColumn(count, "", attrgetter(count)) for count in ("disturbed", "invalid")),
        ViewColumn("throttled", "", lambda line: line.throttled if line.throttling_known else None),
        ViewColumn(
            "temperature_max_c", "Max °C", attrgetter("temperature_max_c"), needs_width=True
        ),
        of_health(
            "agent",
            "Agent",
            attrgetter("agent"),
            small=lambda line: f"clock {clock_text(line.health)}" if line.health else None,
            is_text=True,
        ),
        of_health(
            "certificate_days",
            "Certificate, days left",
            lambda health: certificate_days(health, now_ns),
        ),
        of_health("clock", "", clock_text),
        of_health(
            "disk_free_gb",
            "Disk free, GB",
            lambda health: health.disk.free_bytes and health.disk.free_bytes / 1e9,
        ),
        ViewColumn(
            "models",
            "Models",
            lambda line: JOINT.join(line.models),
            lambda line: listed(line.models),
            is_text=True,
            needs_width=True,
        ),
    ]
    return ViewGrid(
        "devices",
        columns,
        [lines],
        lambda line: {
            "data-fleet": line.fleet,
            "data-device": line.device,
            "data-board": line.board,
            "data-at": str(line.last_ns),
        },
    )


class _Covered(NamedTuple):
    """How often a model was measured on a type of board, and when last; None if never."""

    model: str
    board: str
    devices: int
    runs: int
    last_started_at_ns: int | None
    is_stale: bool | None
    cases: int


def _coverage(every_case: Sequence[BookedCase], newest_ns: int) -> list[_Covered]:
    """Return models by board types, including those that were never measured."""
    members_of = grouped(((case.key.model, case.board), case) for case in every_case)
    models, boards = ({name[index] for name in members_of} for index in (0, 1))
    covered = []
    for model, board in ((model, board) for model in sorted(models) for board in sorted(boards)):
        members = members_of.get((model, board), [])
        last_ns = max((case.newest_ns for case in members), default=None)
        is_stale = None if last_ns is None else newest_ns - last_ns > STALE_DAYS * NS_PER_DAY
        devices, runs = (
            len({(case.key.fleet, case.key.device) for case in members}),
            sum(case.runs for case in members),
        )
        covered.append(_Covered(model, board, devices, runs, last_ns, is_stale, len(members)))
    return covered
