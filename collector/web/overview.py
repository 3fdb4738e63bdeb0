"""The overview: what there is: devices, models and board types, what was never measured, and what needs attention."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import Any

from edgemeter.agent.base import figures
from edgemeter.agent.base.documents import Plain
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.figures import ENERGY, LATENCY, figure
from edgemeter.agent.contract.health import Health
from edgemeter.agent.ledger.presence import DevicePresence, certificate_days, clock_text, needs_attention
from edgemeter.collector.charts.chart import Chart, ViewTable, rows_table
from edgemeter.collector.charts.specs import spark_lines
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.index.index_file import IndexedCase
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.relation import like_with_like
from edgemeter.collector.show.figure_words import figure_text
from edgemeter.collector.show.wording import listed
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.web.activity import now_section
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.events import FINDING_DAYS, OutlyingDevice
from edgemeter.collector.web.findings import findings_list
from edgemeter.collector.web.markup import NOTHING, Attributes, Markup, element, join, part, render
from edgemeter.collector.web.queries import CaseFilter, cases, p50_by_day, summaries
from edgemeter.collector.web.view import BRUSH, Links, View, ViewColumn, ViewRequest, grid, link, note, section, with_small

# A device without a run for so long is silent.
SILENT_DAYS = 7
# A cell whose newest run is so much older than the newest of all is stale.
STALE_DAYS = 30
DEVICES_SHOWN = 250
SPARK_DAYS, SPARKS_SHOWN, SPARK_CASES, ALERTS_SHOWN = 30, 12, 300, 6


@dataclass(frozen=True, slots=True)
class _DeviceLine:
    fleet: str
    device: str
    board: str
    role: str
    state: str | None
    last_ns: int
    runs: int
    disturbed: int
    invalid: int
    throttled: int
    throttling_known: int
    temperature_max_c: float | None
    models: tuple[str, ...]
    is_silent: bool
    health: Health | None
    # How it differs from the others of its type; empty where it does not.
    outlying: tuple[str, ...]

    @property
    def condition(self) -> str:
        """The conditions that need attention, the worst first; empty where there is none."""
        words = {"silent": self.is_silent or self.state == "lost", "deviates": bool(self.outlying), "throttled": self.throttled > 0}
        return ", ".join(word for word, is_so in words.items() if is_so)

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, str, str]:
        """The sort key: what is silent, what deviates and what was throttled lead, then the reference."""
        words = self.condition
        return "silent" not in words, "deviates" not in words, "throttled" not in words, self.role != "reference", self.fleet, self.device


def overview(context: ViewContext, request: ViewRequest, case_filter: CaseFilter) -> View:
    """Return the overview of the fleet."""
    indexed_cases = cases(context.connection, case_filter)
    now = now_section(context.source, context.links, case_filter.fleet) or NOTHING
    if not indexed_cases:
        return View(
            "Nothing here yet",
            join([now, note("No run matches. Measure one: edgemeter run FILE --broker ADDRESS.")]),
            filters=("fleet", "board"),
        )
    newest_ns = max(case.newest_ns for case in indexed_cases)
    present = {(device.fleet, device.device): device for device in context.source.devices()}
    lines = _devices(indexed_cases, present, newest_ns, context.events.outlying)
    covered, coverage_table = coverage(indexed_cases, context.links, newest_ns)
    devices, device_table = _device_table(lines, context.links, _common_case(context, indexed_cases, lines, case_filter))
    findings = findings_list(context, request.fields)
    first = _needing_attention(lines, context.links)
    lately = _spark_lines(context, indexed_cases, newest_ns)
    open_alerts = [alert for alert in context.events.alerts() if alert.closed_ns is None]
    titles = [join([element("b", None, alert.firing.severity), f": {alert.firing.title}"]) for alert in open_alerts[-ALERTS_SHOWN:][::-1]]
    all_alerts = note(link(context.links.to("alerts"), f"All alerts ({len(open_alerts)} open)"))
    parts = [
        *(element("p", {"class": "caution"}, channel.sentence) for channel in context.events.waiting()),
        *([section("alerts", "Open alerts", part("reasons", titles), all_alerts)] if open_alerts else []),
        *([section("findings", "What changed", findings)] if findings else []),
        *([section("first", "Needs attention", first)] if first else []),
        now,
        _cards(context, indexed_cases, lines, newest_ns),
        *([section("lately", f"The last {SPARK_DAYS} days", lately)] if lately else []),
        section(
            "coverage",
            "What was measured where",
            covered,
            *([note(f"Stale: the newest run is {STALE_DAYS} days older than the newest of all.")] if "stale, last" in covered else []),
        ),
        section("devices", "Devices", devices, note(_doubted(indexed_cases))),
    ]
    title = f"{figures.count(len(lines), 'device')}, {figures.count(len({case.key.model for case in indexed_cases}), 'model')}"
    return View(title, join(parts), _lead(indexed_cases, newest_ns), (device_table, coverage_table), ("fleet", "board", "days", "level"))


def _spark_lines(context: ViewContext, indexed_cases: Sequence[IndexedCase], newest_ns: int) -> Markup | None:
    """Return a small line for each board type: the p50 of its runs of a day against the median of their cases."""
    usual = {case.number: (case.board, case.latency_p50_ms) for case in indexed_cases if case.latency_p50_ms}
    of_board = grouped((board, number) for number, (board, _) in usual.items())
    followed = [number for numbers in of_board.values() for number in numbers[:: -(-len(numbers) // SPARK_CASES)]]
    days: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, day, p50_ms in p50_by_day(context.connection, newest_ns - SPARK_DAYS * NS_PER_DAY, followed):
        board, middle = usual[number]
        days[board][day].append(p50_ms / middle)
    boards = [board for board in sorted(days) if len(days[board]) > 1][:SPARKS_SHOWN]
    rows: list[dict[str, Plain]] = []
    for lane, board in enumerate(boards):
        points = [(day, median(values), len(values)) for day, values in sorted(days[board].items())]
        reach = max(0.02, *(abs(value - 1) for _, value, _ in points))
        rows += [
            {"lane": board, "started_at_ns": day * NS_PER_DAY, "height": lane - 0.42 * (value - 1) / reach, "value": value, "runs": runs}
            for day, value, runs in points
        ]
    if not rows:
        return None
    text = (
        "p50 of the runs of a day against the usual p50 of their cases, which is the middle; upwards is slower."
        f" Each line has its own height: of 2% at least. Narrow the devices below to a period: {BRUSH}."
    ) + (f" Of a type with more than {SPARK_CASES} cases, so many of them at most." if len(followed) < len(usual) else "")
    chart = Chart("Latency of each board type", spark_lines(boards), rows_table(rows), text, brushes=True, kind="wide")
    return part("gallery", [context.sheet.draw(chart)])


def _lead(indexed_cases: Sequence[IndexedCase], newest_ns: int) -> str:
    boards = sorted({case.board for case in indexed_cases})
    runs, usable = sum(case.runs for case in indexed_cases), sum(case.usable for case in indexed_cases)
    is_simulated = any(case.key.fleet == "simulated" for case in indexed_cases)
    simulated = " The fleet named simulated is simulated: none of its figures was measured." if is_simulated else ""
    return (
        f"{figures.count(runs, 'run')} of {figures.count(len(indexed_cases), 'case')} on {listed(boards)}; {usable:,} of the runs"
        f" may be compared. The newest is of {figures.stamp(newest_ns)} UTC.{simulated}"
    )


def _doubted(indexed_cases: Sequence[IndexedCase]) -> str:
    runs, disturbed = sum(case.runs for case in indexed_cases), sum(case.disturbed for case in indexed_cases)
    invalid = sum(case.runs - case.usable for case in indexed_cases)
    return f"Of {figures.count(runs, 'run')} {disturbed:,} are disturbed; {invalid:,} are invalid and never compared."


def _devices(
    indexed_cases: Sequence[IndexedCase],
    present: Mapping[tuple[str, str], DevicePresence],
    newest_ns: int,
    outlying: Sequence[OutlyingDevice],
) -> list[_DeviceLine]:
    lines = []
    differing = grouped(((outlier.fleet, outlier.device), outlier.text) for outlier in outlying)
    for (fleet, device), members in grouped(((case.key.fleet, case.key.device), case) for case in indexed_cases).items():
        newest = max(members, key=lambda case: case.newest_ns)
        presence = present.get((fleet, device))
        is_revoked = presence is not None and presence.state == "revoked"
        hot = [case.temperature_max_c for case in members if case.temperature_max_c is not None]
        lines.append(
            _DeviceLine(
                fleet=fleet,
                device=device,
                board=newest.board,
                role=newest.key.role,
                state=presence.state if presence else None,
                last_ns=newest.newest_ns,
                runs=sum(case.runs for case in members),
                disturbed=sum(case.disturbed for case in members),
                invalid=sum(case.runs - case.usable for case in members),
                throttled=sum(case.throttled for case in members),
                throttling_known=sum(case.throttling_known for case in members),
                temperature_max_c=max(hot, default=None),
                models=tuple(sorted({case.key.model for case in members})),
                is_silent=not is_revoked and newest_ns - newest.newest_ns > SILENT_DAYS * NS_PER_DAY,
                health=presence.health if presence else None,
                outlying=tuple(differing.get((fleet, device), ())),
            )
        )
    return sorted(lines, key=attrgetter("rank"))


@dataclass(frozen=True, slots=True)
class _CommonCase:
    """The case that most devices ran, in words, and its figures by fleet and device."""

    name: str
    summaries: Mapping[tuple[str, str], CaseSummary]

    def value(self, line: _DeviceLine, name: str) -> float | None:
        """Return a figure on a device, None where it did not run the case."""
        case = self.summaries.get((line.fleet, line.device))
        return case.figures[name].value if case and name in case.figures else None

    def cell(self, line: _DeviceLine, name: str) -> Markup:
        """Return a figure on a device with its interval, an energy also with its class: others rank with their own only."""
        case = self.summaries.get((line.fleet, line.device))
        if case is None or name not in case.figures:
            return join([figures.typeset(figures.ABSENT)])
        return with_small(
            figure_text(figure(name), case.figures[name]), str(case.energy.ranks_as) if name == ENERGY and case.energy else ""
        )


def _common_case(
    context: ViewContext, indexed_cases: Sequence[IndexedCase], lines: Sequence[_DeviceLine], case_filter: CaseFilter
) -> _CommonCase:
    """Return the case that most devices ran, with its figures on those that are listed."""
    alike = grouped((like_with_like(case.key), case) for case in indexed_cases if case.usable)
    members_of_most = max(alike.values(), key=lambda members: len({(case.key.fleet, case.key.device) for case in members}), default=[])
    listed_devices = {(line.fleet, line.device) for line in lines[:DEVICES_SHOWN]}
    shown_cases = [case for case in members_of_most if (case.key.fleet, case.key.device) in listed_devices]
    key = members_of_most[0].key if members_of_most else None
    name = f"{key.model}, {key.precision} on {key.runtime}" if key else "no case"
    return _CommonCase(name, {case.device: case for case in summaries(context.connection, shown_cases, case_filter)})


def _cards(context: ViewContext, indexed_cases: Sequence[IndexedCase], lines: Sequence[_DeviceLine], newest_ns: int) -> Markup:
    """Return what there is in four figures: devices, cases, the newest run, and what changed."""
    runs, models = sum(case.runs for case in indexed_cases), len({case.key.model for case in indexed_cases})
    lost, silent = sum(line.state == "lost" for line in lines), sum(line.is_silent for line in lines)
    newest = max(indexed_cases, key=lambda case: case.newest_ns)
    findings = context.events.findings
    cards = [
        (
            "Devices",
            str(len(lines)),
            figures.count(len({line.board for line in lines}), "board type"),
            f"{lost} lost" if lost else "",
            f"{silent} without a run for {SILENT_DAYS} days" if silent else "",
        ),
        ("Cases", f"{len(indexed_cases):,}", figures.count(models, "model"), figures.count(runs, "run")),
        ("Newest run", f"{figures.age(time.time_ns() - newest_ns)} ago", newest.key.model, newest.key.device),
        (
            "Changes found",
            str(len(findings)),
            f"in the last {FINDING_DAYS} days",
            f"the newest on {iso(max(finding.day for finding in findings))}" if findings else "",
        ),
    ]
    return part("cards", [{"heading": heading, "figure": number, "lines": texts} for heading, number, *texts in cards])


def _needing_attention(lines: Sequence[_DeviceLine], links: Links) -> Markup | None:
    alarming = []
    for line in lines:
        reasons = [*line.outlying]
        if line.state == "lost":
            reasons.append("its connection was lost")
        if line.is_silent:
            reasons.append(f"no run since {figures.stamp(line.last_ns)[:10]}")
        if line.health is not None:
            reasons += needs_attention(line.health, time.time_ns())
        if line.throttled:
            reasons.append(f"throttled in {line.throttled} of {figures.count(line.throttling_known, 'run')}")
        if line.invalid:
            reasons.append(f"{figures.count(line.invalid, 'invalid run')}")
        if reasons:
            name = link(links.to("device", fleet=line.fleet, device=line.device), line.device)
            alarming.append(join([name, f": {'; '.join(reasons)}"]))
    return part("reasons", alarming) if alarming else None


def _device_table(lines: Sequence[_DeviceLine], links: Links, common: _CommonCase) -> tuple[Markup, ViewTable]:
    now_ns = time.time_ns()

    def of_health(name: str, heading: str, value: Callable[[Health], Plain], *, is_text: bool = False) -> ViewColumn[_DeviceLine]:
        return ViewColumn(name, heading, lambda line: value(line.health) if line.health else None, is_text=is_text, needs_width=True)

    def name(line: _DeviceLine) -> Markup:
        device = link(links.to("device", fleet=line.fleet, device=line.device), line.device)
        text = with_small(device, f"{line.fleet}, reference" if line.role == "reference" else line.fleet)
        return join([text, element("small", {"class": "doubt"}, line.condition)]) if line.condition else text

    def of_common(name: str) -> ViewColumn[_DeviceLine]:
        heading = figure(name).heading
        return ViewColumn(name, heading, lambda line: common.value(line, name), lambda line: common.cell(line, name), common.name)

    columns: list[ViewColumn[_DeviceLine]] = [
        ViewColumn("device", "Device", lambda line: line.device, name, is_text=True),
        ViewColumn("fleet", "Fleet", lambda line: line.fleet, is_shown=False),
        ViewColumn("board", "Board", lambda line: line.board, is_text=True),
        ViewColumn("role", "", lambda line: line.role, is_shown=False),
        ViewColumn("state", "State", lambda line: line.state, lambda line: line.state or "not reported", is_text=True),
        ViewColumn("condition", "", lambda line: line.condition or None, is_shown=False),
        of_common(LATENCY),
        of_common(ENERGY),
        ViewColumn("last_started_at_ns", "Last run (UTC)", lambda line: line.last_ns, lambda line: figures.stamp(line.last_ns)[:16]),
        *(ViewColumn(count, count.capitalize(), attrgetter(count), needs_width=True) for count in ("runs", "disturbed", "invalid")),
        ViewColumn("throttled", "Throttled", lambda line: line.throttled if line.throttling_known else None, needs_width=True),
        ViewColumn("temperature_max_c", "temperature °C", lambda line: line.temperature_max_c, needs_width=True),
        of_health("agent", "Agent", lambda health: health.agent, is_text=True),
        of_health("certificate_days", "Certificate, days left", lambda health: certificate_days(health, now_ns)),
        of_health("clock", "Clock", clock_text, is_text=True),
        of_health(
            "disk_free_gb", "Disk free, GB", lambda health: health.disk.free_bytes / 1e9 if health.disk.free_bytes is not None else None
        ),
        ViewColumn(
            "models", "Models", lambda line: " | ".join(line.models), lambda line: listed(line.models), is_text=True, needs_width=True
        ),
    ]
    shown_lines = lines[:DEVICES_SHOWN]

    def facts(line: _DeviceLine) -> Attributes:
        return {"data-fleet": line.fleet, "data-device": line.device, "data-board": line.board, "data-at": str(line.last_ns)}

    markup, table = grid("devices", columns, shown_lines, facts)
    remarks = [note(f"Latency and energy are of {common.name}, which most devices ran. Silent, deviating and throttled ones come first.")]
    if len(lines) > DEVICES_SHOWN:
        remarks.append(note(f"{len(lines) - DEVICES_SHOWN} more devices: pick a fleet or a board."))
    return join([markup, *remarks]), table


def coverage(indexed_cases: Sequence[IndexedCase], links: Links, newest_ns: int) -> tuple[Markup, ViewTable]:
    """Return models by board types: how often and when last, and what was never measured."""
    boards = sorted({case.board for case in indexed_cases})
    by_place = grouped(((case.key.model, case.board), case) for case in indexed_cases)
    models = sorted({case.key.model for case in indexed_cases})
    cells = {
        (model, board): _covered(by_place.get((model, board), ()), links, newest_ns, model, board) for model in models for board in boards
    }
    lines = [(link(links.to("compare", model=model), model), [cells[model, board] for board in boards]) for model in models]
    rows = tuple((model, board, cell["devices"], cell["runs"], cell["last_ns"], cell["is_stale"]) for (model, board), cell in cells.items())
    plain = ViewTable("coverage", ("model", "board", "devices", "runs", "last_started_at_ns", "is_stale"), rows)
    if len(boards) == 1:
        # A table of one column says no more than a list.
        texts = [join([name, ": ", cell["figure"], f", {cell['detail']}", cell["stale"]]) for name, (cell,) in lines]
        return join([element("p", None, boards[0]), part("reasons", texts)]), plain
    return render("coverage.html", boards=boards, lines=lines), plain


def _covered(members: Sequence[IndexedCase], links: Links, newest_ns: int, model: str, board: str) -> dict[str, Any]:
    if not members:
        return {"devices": 0, "runs": 0, "last_ns": None, "is_stale": None, "figure": "never", "detail": "", "stale": NOTHING}
    last_ns, runs = max(case.newest_ns for case in members), sum(case.runs for case in members)
    devices = len({(case.key.fleet, case.key.device) for case in members})
    is_stale = newest_ns - last_ns > STALE_DAYS * NS_PER_DAY
    return {
        "devices": len({case.key.device for case in members}),
        "runs": runs,
        "last_ns": last_ns,
        "is_stale": is_stale,
        "figure": link(links.to("compare", model=model, board=board), figures.count(len(members), "case")),
        "detail": f"{figures.count(devices, 'device')}, {figures.count(runs, 'run')}",
        "stale": element("small", None, f"stale, last {figures.stamp(last_ns)[:10]}") if is_stale else NOTHING,
    }
