"""The table of `edgemeter fleet list` and the sheet of `edgemeter fleet show`, for people and as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from edgemeter.agent.base import figures
from edgemeter.agent.base.figures import age, count, size
from edgemeter.agent.base.terminal import TableColumn, fitted_table
from edgemeter.agent.contract.health_issues import clock_text, last_words, sensors_text
from edgemeter.agent.contract.messages import ACTIVITY_STALE_NS
from edgemeter.provisioning.health.overview import DeviceOverview
from edgemeter.provisioning.inventory.formatting import ABSENT, plain, stamp

STATES = ("online", "offline", "lost", "joined, silent", "not joined", "pending", "banned", "revoked")
# The columns, and which of them a narrow terminal drops first.
HEADINGS = {"device": 0, "board": 2, "presence": 0, "agent": 3, "activity": 1, "issue": 0}


def fleet_table(lines: Sequence[DeviceOverview], now_ns: int, width: int) -> Table:
    """Return the devices, a row each, in the columns that have something to show and fit."""
    cells = zip(*(_cells(line, now_ns) for line in lines), strict=True)
    columns = [
        TableColumn(heading, column, "left", rank, narrowed="folds" if heading == "issue" else "")
        for (heading, rank), column in zip(HEADINGS.items(), cells, strict=True)
    ]
    return fitted_table(columns, width, remedy="`edgemeter fleet show DEVICE` has them")


def _cells(line: DeviceOverview, now_ns: int) -> list[str]:
    state = line.state if line.since_ns is None else f"{line.state} {age(now_ns - line.since_ns)}"
    reason = line.job.reason if line.job else None
    issue = "; ".join(filter(None, (*(text for issue in line.issues[:1] for text in (issue.text, line.remedy(issue))), reason)))
    return [
        line.device.device,
        *(plain(text or "") or ABSENT for text in (line.board, state, line.heard.agent, _activity(line, now_ns), issue)),
    ]


def _activity(line: DeviceOverview, now_ns: int) -> str:
    """Return what a device measures, else its job, else its last run."""
    health = line.heard.health
    if line.heard.measuring is not None:
        return f"run {line.heard.measuring.run:,} of {line.heard.measuring.runs:,}{_since_report(line, now_ns)}"
    if line.job is not None:
        progress = "" if line.job.done_ratio is None else f" {line.job.done_ratio:.0%}"
        return f"{line.job.job.partition('-')[0]} {line.job.state}{progress}"
    if line.newer_job is not None:
        return f"measured {age(now_ns - (line.newer_job.ended_ns or now_ns))} ago, {line.newer_job.state.replace('_', ' ')}"
    if health is not None and health.runs.last_ns is not None:
        return f"measured {age(now_ns - health.runs.last_ns)} ago, {health.runs.last_verdict}"
    return ABSENT


def _since_report(line: DeviceOverview, now_ns: int) -> str:
    """Return how long nothing was reported of a measurement, where that is long."""
    silent_ns = now_ns - (line.heard.activity_ns or now_ns)
    return f", no report for {age(silent_ns)}" if silent_ns > ACTIVITY_STALE_NS else ""


def fleet_summary(lines: Sequence[DeviceOverview]) -> str:
    """Return how many devices there are, by state."""
    counts = Counter(line.state for line in lines)
    return f"{count(len(lines), 'device')}: {', '.join(f'{counts[name]} {name}' for name in STATES if counts[name]) or 'none'}"


def overview_document(line: DeviceOverview) -> dict[str, Any]:
    """Return a device as JSON shows it; absent is null."""
    health, newer, measuring = line.heard.health, line.newer_job, line.heard.measuring
    return {
        "device": line.device.device,
        "fleet": line.device.fleet,
        "board": line.board,
        "serial": line.device.serial or (health.serial if health else None),
        "tags": list(line.device.tags),
        "standing": line.device.trust,
        "presence": line.state,
        "presence_since": stamp(line.since_ns),
        "takes_no_orders": line.heard.takes_no_orders,
        "issues": [{"kind": issue.kind, "text": issue.text, "remedy": line.remedy(issue)} for issue in line.issues],
        # What it reported and cannot be true: these fields are not shown; `said` has them.
        "implausible": list(line.implausible),
        "agent": line.heard.agent,
        "certificate_not_after": stamp(health.certificate_not_after_ns) if health else None,
        "last_run": stamp(health.runs.last_ns) if health else None,
        "last_verdict": health.runs.last_verdict if health else None,
        "newer_job": None if newer is None else {"ended": stamp(newer.ended_ns), "state": newer.state},
        "job": None if line.job is None else {name: getattr(line.job, name) for name in ("job", "state", "done_ratio", "reason")},
        "measuring": None if measuring is None else msgspec.to_builtins(measuring),
    }


def device_sheet(line: DeviceOverview, now_ns: int) -> RenderableType:
    """Return everything about a device, its issues first."""
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in _facts(line, now_ns):
        if text:
            facts.add_row(name, Text(plain(str(text))))
    issues = [Text(plain(_joined(issue.text, line.remedy(issue), separator="; ") or ""), style="red") for issue in line.issues]
    return Group(Text(f"{line.device.device}  {line.device.fleet}, {line.state}", style="bold"), *issues, Text(""), facts)


def _facts(line: DeviceOverview, now_ns: int) -> Iterator[tuple[str, object]]:
    """Yield names and texts; what is not known is empty."""
    device, health, job, newer = line.device, line.heard.health, line.job, line.newer_job
    yield "board", _joined(device.board, line.heard.board)
    yield "serial", device.serial or (health.serial if health else None)
    yield "tags", _joined(*device.tags)
    yield (
        "presence",
        None if line.since_ns is None else f"{line.state} since {figures.stamp(line.since_ns)} UTC ({age(now_ns - line.since_ns)})",
    )
    yield "job", job and _joined(job.job, job.state, job.doing or job.reason)
    yield "measuring", line.heard.measuring and f"{line.heard.measuring.text}{_since_report(line, now_ns)}"
    if newer is not None:
        outcome = f"{newer.state.replace('_', ' ')}, {count(len(newer.runs), 'run')}"
        yield "last job", f"ended {age(now_ns - (newer.ended_ns or now_ns))} ago: {outcome}; its next report has the rest"
    yield "agent", line.heard.agent
    if health is None:
        yield "health", "not reported"
        return
    yield "agents before", _joined(health.previous_agent, *(f"{agent} failed" for agent in health.bad_agents))
    yield "system", _joined(health.os, health.kernel, health.arch, _labelled("Python", health.python), _labelled("glibc", health.glibc))
    yield "mode", _joined(_labelled("power mode", health.power_mode), _labelled("governor", health.governor))
    yield "sensors", sensors_text(health) or "none"
    end_ns, disk, runs = health.certificate_not_after_ns, health.disk, health.runs
    yield "certificate", end_ns and f"{'expires' if end_ns > now_ns else 'expired'} {figures.stamp(end_ns)} UTC"
    yield "clock", _joined(clock_text(health), health.clock.offset_ms and f"{health.clock.offset_ms:+.3g} ms off")
    if disk.free_bytes is not None and disk.size_bytes is not None:
        wear = None if disk.wear_ratio is None else f"up to {disk.wear_ratio:.0%} of its life used"
        yield "disk", _joined(f"{size(disk.free_bytes)} of {size(disk.size_bytes)} free", wear)
    dropped = f"dropped {health.dropped_records} results, {health.dropped_traces} traces" if health.dropped_records else None
    waiting = "unknown" if health.waiting_records is None else f"{health.waiting_records} waiting"
    yield "outbox", _joined(waiting, health.outbox_trouble, dropped)
    if runs.last_ns is not None:
        verdicts = _joined(*(f"{number} {verdict}" for verdict, number in runs.verdicts.items()))
        yield "runs", f"last {age(now_ns - runs.last_ns)} ago: {runs.last_verdict}; of the last {sum(runs.verdicts.values())}: {verdicts}"
    yield "temperatures", _joined(*(f"{name} {value_c:.0f} C" for name, value_c in sorted(health.temperatures_c.items())))
    answer = {True: "yes", False: "no", None: "unknown"}
    throttled, weak = answer[health.is_throttled_since_boot], answer[health.is_under_voltage_since_boot]
    yield "since boot", f"throttled: {throttled}, under-voltage: {weak}"
    yield "up", health.uptime_s and _joined(age(int(health.uptime_s * 1e9)), _labelled("reset reason", health.reset_reason))
    yield "last stop", _joined(last_words(health), health.last_words.at_ns and f"{figures.stamp(health.last_words.at_ns)} UTC")
    yield "reported", f"{figures.stamp(health.told_ns)} UTC by its own clock"


def _joined(*texts: object, separator: str = ", ") -> str | None:
    """Return the texts that there are as one, None where there is none."""
    return separator.join(str(text) for text in texts if text) or None


def _labelled(label: str, text: str | None) -> str | None:
    return text and f"{label} {text}"
