"""The table of `edgemeter fleet list` and the sheet of `edgemeter fleet show`, for people and as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from edgemeter.agent.base.figures import age, count, size
from edgemeter.agent.base.terminal import plain_table
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.messages import ACTIVITY_STALE_NS
from edgemeter.provisioning.health.overview import DeviceOverview
from edgemeter.provisioning.inventory.formatting import ABSENT, day, plain, stamp

STYLES = {
    "online": "green",
    "offline": "yellow",
    "lost": "red",
    "banned": "bold red",
}

# The columns that a narrow terminal drops, the least needed first; JSON and `fleet show` have all.
LEAST_NEEDED = ("clock", "disk free", "certificate", "sensors", "ok runs", "agent", "last run", "board", "measuring", "job")
NOTE_WIDTH = 44
BETWEEN = 2
PRESENCES = ("online", "offline", "lost", "joined, silent", "not joined", "banned", "revoked")
RIGHT = frozenset({"ok runs", "certificate", "disk free"})


def fleet_table(lines: Sequence[DeviceOverview], now_ns: int, width: int) -> tuple[Table, list[str]]:
    """Return the devices, a row each, in as many columns as `width` holds, and the notes to print below."""
    rows = [_cells(line, now_ns) for line in lines]
    headings = _fitting(rows, width)
    table = plain_table()
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in RIGHT else "left"
        if heading == "note":
            table.add_column(heading, overflow="fold", min_width=12)
        else:
            table.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis")
    for line, row in zip(lines, rows, strict=True):
        styles = {"presence": STYLES.get(line.presence or "", "dim")}
        cells = (Text(row[heading], style=styles.get(heading, "")) for heading in headings)
        table.add_row(*cells, style="dim" if line.device.trust == "revoked" else None)
    return table, [] if "note" in headings else [f"{row['device']}: {row['note']}" for row in rows if row["note"]]


def _cells(line: DeviceOverview, now_ns: int) -> dict[str, str]:
    health, device = line.health, line.device
    end_ns = health.certificate_not_after_ns if health else None
    presence = (
        f"{line.presence} {age(now_ns - line.presence_since_ns)}"
        if line.presence and line.presence_since_ns is not None
        else line.presence_text
    )
    certificate, last_run, disk_free, job, measuring = (ABSENT,) * 5
    if end_ns is not None:
        certificate = "expired" if end_ns < now_ns else f"{age(end_ns - now_ns)} left"
    if health is not None and health.runs.last_ns is not None:
        last_run = plain(f"{age(now_ns - health.runs.last_ns)} ago, {health.runs.last_verdict}")
    if (newer := line.newer_job) is not None:
        last_run = f"{age(now_ns - newer.ended_ns)} ago, {newer.state.replace('_', ' ')}"
    if health is not None and health.disk.free_bytes is not None:
        disk_free = size(health.disk.free_bytes)
    if line.job is not None:
        progress = "" if line.job.done_ratio is None else f" {line.job.done_ratio:.0%}"
        job = f"{line.job.job.partition('-')[0]} {line.job.state}{progress}"
    if line.measuring:
        measuring = f"run {line.measuring.run:,} of {line.measuring.runs:,}{_since_report(line, now_ns)}"
    verdicts = health.runs.verdicts if health else {}
    return {
        "device": device.device,
        "fleet": device.fleet,
        "board": plain(line.board or ABSENT),
        "presence": "pending" if device.trust == "pending" else presence,
        "job": job,
        "measuring": measuring,
        "last run": last_run,
        "ok runs": f"{verdicts.get('ok', 0)} of {sum(verdicts.values())}" if verdicts else ABSENT,
        "agent": plain(line.agent or ABSENT),
        "sensors": sensors_text(health),
        "certificate": certificate,
        "clock": clock_text(health),
        "disk free": disk_free,
        "note": plain("; ".join(filter(None, (line.issues[0].text if line.issues else None, line.job.reason if line.job else None)))),
    }


def _fitting(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Return the headings that fit; a note needs room: where its column does not fit, notes are printed below the table."""
    widths = {heading: max(len(heading), *(len(row[heading]) for row in rows)) for heading in rows[0]}
    widths["note"] = min(widths["note"], NOTE_WIDTH)
    if len({row["fleet"] for row in rows}) < 2:
        del widths["fleet"]
    for heading in rows[0]:
        if all(row[heading] in ("", ABSENT) for row in rows):
            widths.pop(heading, None)
    for heading in ("note", *LEAST_NEEDED):
        if sum(widths.values()) + BETWEEN * len(widths) <= width:
            break
        widths.pop(heading, None)
    return list(widths)


def _since_report(line: DeviceOverview, now_ns: int) -> str:
    """Return how long nothing was reported of a measurement, where that is long."""
    silent_ns = now_ns - (line.heard.activity_ns or now_ns) if line.heard else 0
    return f", no report for {age(silent_ns)}" if silent_ns > ACTIVITY_STALE_NS else ""


def fleet_summary(lines: Sequence[DeviceOverview]) -> str:
    """Return how many devices there are, by presence, and how many need a look."""
    counts = Counter(line.presence_text for line in lines)
    listed = ", ".join(f"{counts[name]} {name}" for name in PRESENCES if counts[name])
    return f"{count(len(lines), 'device')}: {listed or 'none'}"


def overview_document(line: DeviceOverview) -> dict[str, Any]:
    """Return a device as JSON shows it; absent is null."""
    health = line.health
    return {
        "device": line.device.device,
        "fleet": line.device.fleet,
        "board": line.board,
        "serial": line.device.serial or (health.serial if health else None),
        "tags": list(line.device.tags),
        "standing": line.device.trust,
        "presence": line.presence,
        "presence_since": stamp(line.presence_since_ns),
        "takes_no_orders": line.heard is not None and line.heard.takes_no_orders,
        "issues": [{"kind": issue.kind, "text": issue.text} for issue in line.issues],
        # What it reported and cannot be true: these fields are not shown; `said` has them.
        "implausible": list(line.implausible),
        "agent": line.agent,
        "valid_ratio": valid_ratio(health),
        "certificate_not_after": stamp(health.certificate_not_after_ns) if health else None,
        "last_run": stamp(health.runs.last_ns) if health else None,
        "last_verdict": health.runs.last_verdict if health else None,
        "newer_job": None if line.newer_job is None else {"ended": stamp(line.newer_job.ended_ns), "state": line.newer_job.state},
        "job": None if line.job is None else {name: getattr(line.job, name) for name in ("job", "state", "done_ratio", "reason")},
        "measuring": None if line.measuring is None else msgspec.to_builtins(line.measuring),
        "measuring_reported": stamp(line.heard.activity_ns) if line.heard and line.measuring else None,
    }


def valid_ratio(health: Health | None) -> float | None:
    """Return which share of the last runs were valid, None where there was none."""
    if health is None or not (count := sum(health.runs.verdicts.values())):
        return None
    return health.runs.verdicts.get("ok", 0) / count


def sensors_text(health: Health | None) -> str:
    """Return the power sensors, marked where one cannot be read."""
    if health is None:
        return ABSENT
    texts = [f"{sensor.name}{' (cannot be read)' if sensor.trouble and sensor.id is None else ''}" for sensor in health.sensors]
    return plain(", ".join(texts)) or "none"


def clock_text(health: Health | None) -> str:
    """Return the state of the clock."""
    if health is None:
        return ABSENT
    if health.clock.is_behind_floor:
        return "behind"
    return {True: "in sync", False: "not synchronised", None: "unknown"}[health.clock.is_synchronised]


def device_sheet(line: DeviceOverview, now_ns: int) -> RenderableType:
    """Return everything about a device, its issues first."""
    trust = "" if line.device.trust == "revoked" else f"{line.device.trust}, "
    presence = (line.presence_text, STYLES.get(line.presence_text, "dim"))
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in _facts(line, now_ns):
        facts.add_row(name, Text(plain(text) or "unknown"))
    return Group(
        Text.assemble((line.device.device, "bold"), f"  {line.device.fleet}, {trust}", presence),
        *(Text(f"! {plain(issue.text)}", style="red" if issue.kind in {"banned", "lost"} else "yellow") for issue in line.issues),
        Text(""),
        facts,
    )


def device_document(line: DeviceOverview, reported: Health | None) -> dict[str, Any]:
    """Return all of it as JSON shows it, with its health as it `reported` it."""
    return {**overview_document(line), "said": msgspec.to_builtins(reported) if reported else None}


def _facts(line: DeviceOverview, now_ns: int) -> Iterator[tuple[str, str]]:
    device, health = line.device, line.health
    reported = line.heard.board if line.heard else None
    yield "board", " ".join(filter(None, (device.board, f"({reported})" if reported else None))) or "unknown"
    yield "serial", device.serial or (health.serial if health else None) or "unknown"
    if device.tags:
        yield "tags", ", ".join(device.tags)
    if line.presence_since_ns is not None:
        yield "presence", f"{line.presence} since {day(line.presence_since_ns)} UTC ({age(now_ns - line.presence_since_ns)})"
    if line.job is not None:
        doing = line.job.doing or line.job.reason
        yield "job", f"{line.job.job}, {line.job.state}{f': {plain(doing)}' if doing else ''}"
    if line.measuring is not None:
        yield "measuring", f"{line.measuring.text}{_since_report(line, now_ns)}"
    if (newer := line.newer_job) is not None:
        outcome = f"{newer.state.replace('_', ' ')}, {count(len(newer.runs), 'run')}"
        yield "last job", f"ended {age(now_ns - newer.ended_ns)} ago: {outcome}; its next report has the rest"
    if health is not None:
        yield from _reported_facts(health, now_ns)
    else:
        yield "agent", line.agent or "unknown"
        yield "health", "not reported"


def _reported_facts(health: Health, now_ns: int) -> Iterator[tuple[str, str]]:
    previous = f"; previously {health.previous_agent}" if health.previous_agent else ""
    failed = f"; failed: {', '.join(health.bad_agents)}" if health.bad_agents else ""
    yield "agent", f"{health.agent}{previous}{failed}"
    yield "system", ", ".join(filter(None, (health.os, f"kernel {health.kernel}" if health.kernel else None, health.arch)))
    yield "python", ", ".join(filter(None, (health.python, f"glibc {health.glibc}" if health.glibc else None)))
    modes = [f"power mode {health.power_mode}" if health.power_mode else None, f"governor {health.governor}" if health.governor else None]
    if any(modes):
        yield "mode", ", ".join(filter(None, modes))
    yield "sensors", sensors_text(health)
    if (end_ns := health.certificate_not_after_ns) is not None:
        yield "certificate", f"expires {day(end_ns)} UTC ({f'in {age(end_ns - now_ns)}' if end_ns > now_ns else 'expired'})"
    offset = "" if health.clock.offset_ms is None else f", {health.clock.offset_ms:+.3g} ms off"
    yield "clock", clock_text(health) + offset
    yield "disk", _disk_text(health)
    dropped = f"; dropped {health.dropped_records} results, {health.dropped_traces} traces" if health.dropped_records else ""
    unknown = f"unknown: {health.outbox_trouble or 'not reported'}"
    yield "outbox", unknown if health.waiting_records is None else f"{health.waiting_records} waiting{dropped}"
    yield "runs", _runs_text(health, now_ns)
    if health.temperatures_c:
        yield "temperatures", ", ".join(f"{name} {value_c:.0f} C" for name, value_c in sorted(health.temperatures_c.items()))
    throttled = {True: "yes", False: "no", None: "unknown"}
    weak = throttled[health.is_under_voltage_since_boot]
    yield "since boot", f"throttled: {throttled[health.is_throttled_since_boot]}, under-voltage: {weak}"
    if health.uptime_s is not None:
        reason = f", reset reason: {health.reset_reason}" if health.reset_reason else ""
        yield "up", f"{age(int(health.uptime_s * 1e9))} at its last report{reason}"
    stop = health.last_words
    when = f" ({day(stop.at_ns)} UTC)" if stop.at_ns else ""
    if stop.kind != "first":
        yield "last stop", f"{stop.kind}{when}{f': {stop.text}' if stop.text else ''}"
    yield "reported", f"{day(health.told_ns)} UTC by its own clock"


def _disk_text(health: Health) -> str:
    disk = health.disk
    if disk.free_bytes is None or not disk.size_bytes:
        return "unknown"
    wear = "" if disk.wear_ratio is None else f", up to {disk.wear_ratio:.0%} of its life used"
    written = "" if disk.written_bytes is None else f", {size(disk.written_bytes)} written"
    return f"{size(disk.free_bytes)} of {size(disk.size_bytes)} free{wear}{written}"


def _runs_text(health: Health, now_ns: int) -> str:
    runs = health.runs
    if runs.last_ns is None:
        return "none yet"
    counts = ", ".join(f"{count} {verdict}" for verdict, count in runs.verdicts.items())
    return f"last {age(now_ns - runs.last_ns)} ago: {runs.last_verdict}; of the last {sum(runs.verdicts.values())}: {counts}"
