"""The overview: what there is: devices, models and board types, what was never measured, and what to look at first."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgemeter.agent.health.contract import Health
from edgemeter.collector.keep import device_health
from edgemeter.collector.keep.presence import Device
from edgemeter.collector.show import figures
from edgemeter.collector.show.markup import Markup, element, join
from edgemeter.collector.show.wording import listed
from edgemeter.collector.web.book import Apart, Book
from edgemeter.collector.web.queries import NS_PER_DAY, Narrowing, cases
from edgemeter.collector.web.run_index import IndexedCase
from edgemeter.collector.web.view import Asked, Column, Links, Table, View, grid, link, note, section

# A cell of the table of coverage whose newest run is older than this is stale; a device is silent from then on.
STALE_DAYS, SILENT_DAYS = 30, 7
DEVICES_SHOWN = 500
METRICS = ("p50_ms", "temperature_c")
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class _DeviceLine:
    fleet: str
    device: str
    board: str
    role: str
    state: str | None
    last_ns: int
    runs: int
    suspect: int
    invalid: int
    throttled: int
    throttling_known: int
    hottest_c: float | None
    models: tuple[str, ...]
    is_silent: bool
    health: Health | None


def overview(book: Book, asked: Asked, narrowing: Narrowing) -> View:  # noqa: ARG001 - every view is asked alike
    """Return the overview of the fleet."""
    found = cases(book.connection, narrowing, metrics=METRICS)
    if not found:
        return View(
            "Nothing here yet",
            note("No run matches. Measure one: edgemeter run --model FILE --broker ADDRESS."),
            filters=("fleet", "board"),
        )
    newest_ns = max(case.figures.last_ns for case in found)
    present = {(one.fleet, one.device): one for one in book.source.devices()}
    lines = _devices(found, present, newest_ns)
    coverage, coverage_table = _coverage(found, book.links, newest_ns)
    devices, device_table = _device_table(lines, book.links)
    parts = [
        _cards(found, lines, newest_ns),
        section(
            "coverage",
            "What was measured where",
            coverage,
            note(
                "Lowest and highest p50 of its cases (medians over runs)."
                f" A cell is stale when its newest run is {STALE_DAYS} days older than the newest of all."
            ),
        ),
        section("devices", "Devices", devices),
    ]
    first = _look_first(lines, book.happenings.apart(), book.links)
    if first:
        parts.insert(1, section("first", "Look at these first", first))
    title = f"{figures.count(len(lines), 'device')}, {figures.count(len({case.key.model for case in found}), 'model')}"
    return View(title, join(parts), _lead(found, newest_ns), (device_table, coverage_table), ("fleet", "board", "days"))


def _lead(found: Sequence[IndexedCase], newest_ns: int) -> str:
    boards = sorted({case.board for case in found})
    runs, usable = sum(case.figures.runs for case in found), sum(case.figures.usable for case in found)
    simulated = (
        " The fleet named simulated is simulated: no number of it was measured."
        if any(case.key.fleet == "simulated" for case in found)
        else ""
    )
    return (
        f"{figures.count(runs, 'run')} of {figures.count(len(found), 'case')} on {listed(boards)}; {usable:,} of the runs may be compared."
        f" The newest is of {figures.stamp(newest_ns)} UTC.{simulated}"
    )


def _devices(found: Sequence[IndexedCase], present: Mapping[tuple[str, str], Device], newest_ns: int) -> list[_DeviceLine]:
    grouped: dict[tuple[str, str], list[IndexedCase]] = defaultdict(list)
    for case in found:
        grouped[case.key.fleet, case.key.device].append(case)
    lines = []
    for (fleet, device), members in grouped.items():
        newest = max(members, key=lambda case: case.figures.last_ns)
        said = present.get((fleet, device))
        is_revoked = said is not None and said.state == "revoked"
        hot = [spread.high for case in members if (spread := case.figures.spread("temperature_c"))]
        lines.append(
            _DeviceLine(
                fleet=fleet,
                device=device,
                board=newest.board,
                role=newest.key.role,
                state=said.state if said else None,
                last_ns=newest.figures.last_ns,
                runs=sum(case.figures.runs for case in members),
                suspect=sum(case.figures.suspect for case in members),
                invalid=sum(case.figures.invalid for case in members),
                throttled=sum(case.figures.throttled for case in members),
                throttling_known=sum(case.figures.throttling_known for case in members),
                hottest_c=max(hot, default=None),
                models=tuple(sorted({case.key.model for case in members})),
                is_silent=not is_revoked and newest_ns - newest.figures.last_ns > SILENT_DAYS * NS_PER_DAY,
                health=said.health if said else None,
            )
        )
    return sorted(lines, key=lambda line: (line.role != "reference", line.fleet, line.device))


def _cards(found: Sequence[IndexedCase], lines: Sequence[_DeviceLine], newest_ns: int) -> Markup:
    runs = sum(case.figures.runs for case in found)
    suspect, invalid = sum(line.suspect for line in lines), sum(line.invalid for line in lines)
    lost = [line for line in lines if line.state == "lost"]
    silent = [line for line in lines if line.is_silent]
    age_days = max(0.0, (time.time_ns() - newest_ns) / NS_PER_DAY)
    age = f"newest {figures.significant(age_days, 2)} days ago" if age_days >= 1 else "newest today"
    return element(
        "div",
        {"class": "cards figures"},
        _card(
            "Devices",
            str(len(lines)),
            figures.count(len({line.board for line in lines}), "board type"),
            f"{len(lost)} lost, {len(silent)} silent for {SILENT_DAYS} days",
        ),
        _card("Runs", f"{runs:,}", age, f"{figures.count(len(found), 'case')}"),
        _card("Suspect", f"{suspect:,}", f"{suspect / runs:.1%} of the runs", "a rule of measuring was broken"),
        _card("Invalid", f"{invalid:,}", f"{invalid / runs:.1%} of the runs", "never compared"),
    )


def _card(heading: str, figure: str, *lines: str) -> Markup:
    items = element("ul", None, *(element("li", None, line) for line in lines))
    return element("section", {"class": "card"}, element("h3", None, heading), element("p", {"class": "figure"}, figure), items)


def _look_first(lines: Sequence[_DeviceLine], apart: Sequence[Apart], links: Links) -> Markup | None:
    told = []
    for line in lines:
        reasons = [one.text for one in apart if (one.fleet, one.device) == (line.fleet, line.device)]
        if line.state == "lost":
            reasons.append("its connection was lost")
        if line.is_silent:
            reasons.append(f"no run since {figures.stamp(line.last_ns)[:10]}")
        if line.health is not None:
            reasons += device_health.look_at(line.health, time.time_ns())
        if line.throttled:
            reasons.append(f"throttled in {line.throttled} of {figures.count(line.throttling_known, 'run')}")
        if line.invalid:
            reasons.append(f"{figures.count(line.invalid, 'invalid run')}")
        if reasons:
            name = link(links.to("device", fleet=line.fleet, device=line.device), line.device)
            told.append(element("li", None, name, f": {'; '.join(reasons)}"))
    return element("ul", {"class": "reasons"}, *told) if told else None


def _coverage(found: Sequence[IndexedCase], links: Links, newest_ns: int) -> tuple[Markup, Table]:
    """Return models by board types: how often and when last, and what was never measured."""
    boards = sorted({case.board for case in found})
    grouped: dict[tuple[str, str], list[IndexedCase]] = defaultdict(list)
    for case in found:
        grouped[case.key.model, case.board].append(case)
    models = sorted({case.key.model for case in found})
    heading = element("tr", None, element("th", {"class": "text"}, "Model"), *(element("th", {"scope": "col"}, board) for board in boards))
    lines = []
    for model in models:
        cells = [_covered(grouped.get((model, board), []), links, newest_ns, model, board) for board in boards]
        lines.append(
            element("tr", None, element("th", {"scope": "row", "class": "text"}, link(links.to("model", model=model), model)), *cells)
        )
    drawn = element("table", {"class": "coverage"}, element("thead", None, heading), element("tbody", None, *lines))
    plain = Table(
        "coverage",
        ("model", "board", "devices", "runs", "last_started_at_ns", "is_stale"),
        tuple(
            (
                model,
                board,
                len({case.key.device for case in members}),
                sum(case.figures.runs for case in members),
                last,
                None if last is None else newest_ns - last > STALE_DAYS * NS_PER_DAY,
            )
            for model in models
            for board in boards
            for members in [grouped.get((model, board), [])]
            for last in [max((case.figures.last_ns for case in members), default=None)]
        ),
    )
    return element("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": "coverage"}, drawn), plain


def _covered(members: Sequence[IndexedCase], links: Links, newest_ns: int, model: str, board: str) -> Markup:
    if not members:
        return element("td", {"class": "never"}, "never")
    last = max(case.figures.last_ns for case in members)
    is_stale = newest_ns - last > STALE_DAYS * NS_PER_DAY
    p50 = sorted(spread.median for case in members if (spread := case.figures.spread("p50_ms")))
    best = f"{figures.span(p50[0], p50[-1])} ms" if p50 else "no p50"
    devices = len({(case.key.fleet, case.key.device) for case in members})
    detail = f"{figures.count(devices, 'device')}, {figures.count(sum(case.figures.runs for case in members), 'run')}"
    reference = links.to("compare", model=model, board=board)
    return element(
        "td",
        {"class": "stale" if is_stale else None},
        link(reference, best),
        element("small", None, detail),
        element("small", None, f"stale, last {figures.stamp(last)[:10]}") if is_stale else "",
    )


def _told(line: _DeviceLine, tell: Callable[[Health], Told]) -> Told | None:
    return tell(line.health) if line.health else None


def _certificate_days(health: Health) -> float | None:
    return device_health.certificate_days(health, time.time_ns())


def _disk_free_gb(health: Health) -> float | None:
    return None if health.disk.free_bytes is None else health.disk.free_bytes / 1e9


def _device_table(lines: Sequence[_DeviceLine], links: Links) -> tuple[Markup, Table]:
    # Only agents that are connected tell of their health: without one there is nothing to show.
    is_told = any(line.health for line in lines)
    columns: list[Column[_DeviceLine]] = [
        Column(
            "device",
            "Device",
            lambda line: line.device,
            lambda line: join(
                [
                    link(links.to("device", fleet=line.fleet, device=line.device), line.device),
                    element("small", None, f"{line.fleet}, reference" if line.role == "reference" else line.fleet),
                ]
            ),
            is_text=True,
        ),
        Column("fleet", "Fleet", lambda line: line.fleet, is_shown=False),
        Column("board", "Board", lambda line: line.board, is_text=True),
        Column("role", "", lambda line: line.role, is_shown=False),
        Column("state", "State", lambda line: line.state, lambda line: line.state or "not told", is_text=True),
        Column("last_started_at_ns", "Last run (UTC)", lambda line: line.last_ns, lambda line: figures.stamp(line.last_ns)),
        Column("runs", "Runs", lambda line: line.runs),
        Column("suspect", "Suspect", lambda line: line.suspect),
        Column("invalid", "Invalid", lambda line: line.invalid),
        Column("throttled", "Throttled", lambda line: line.throttled if line.throttling_known else None),
        Column("temperature_max_c", "Hottest °C", lambda line: line.hottest_c),
        Column("agent", "Agent", lambda line: line.health.agent if line.health else None, is_text=True, is_shown=is_told),
        Column("calibration_age_days", "Calibrated, days ago", lambda line: _told(line, device_health.calibration_days), is_shown=is_told),
        Column("certificate_days", "Certificate, days left", lambda line: _told(line, _certificate_days), is_shown=is_told),
        Column("clock", "Clock", lambda line: _told(line, device_health.clock), is_text=True, is_shown=is_told),
        Column("disk_free_gb", "Disk free, GB", lambda line: _told(line, _disk_free_gb), is_shown=is_told),
        Column("models", "Models", lambda line: " | ".join(line.models), lambda line: listed(line.models), is_text=True),
    ]
    shown = lines[:DEVICES_SHOWN]
    markup, table = grid(
        "devices", columns, shown, lambda line: {"data-fleet": line.fleet, "data-device": line.device, "data-board": line.board}
    )
    more = [note(f"{len(lines) - DEVICES_SHOWN} more devices: pick a fleet or a board.")] if len(lines) > DEVICES_SHOWN else []
    return join([markup, *more]), table
