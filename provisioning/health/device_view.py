"""The table of `edgemeter fleet list` and the sheet of `edgemeter fleet show`, for people and as JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.table import Table

from edgemeter.agent.base import figures
from edgemeter.agent.base.figures import ABSENT, age, count, size
from edgemeter.agent.base.terminal import TableColumn, fitted_table
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.health_issues import clock_text, last_words, sensors_text
from edgemeter.agent.contract.messages import ACTIVITY_STALE_NS
from edgemeter.provisioning.health.overview import DeviceOverview
from edgemeter.provisioning.inventory.formatting import plain, stamp

# The columns, and which of them a narrow terminal drops first.
HEADINGS = {"device": 0, "board": 2, "presence": 0, "agent": 3, "activity": 1, "issue": 0}


def fleet_table(lines: Sequence[DeviceOverview], now_ns: int, width: int) -> Table:
    """Return the devices, a row each, in the columns that have something to show and fit."""
    rows = []
    for line in lines:
        state = line.state if line.since_ns is None else f"{line.state} {age(now_ns - line.since_ns)}"
        issue = _joined(*(each.sentence for each in line.issues[:1]), line.job and line.job.reason, separator="; ")
        cells = (line.device.device, line.board, state, line.heard.agent, _activity(line, now_ns), issue)
        rows.append([plain(cell or "") or ABSENT for cell in cells])
    columns = [
        TableColumn(heading, cells, "left", rank, narrowed="folds" if heading == "issue" else "")
        for (heading, rank), cells in zip(HEADINGS.items(), zip(*rows, strict=True), strict=True)
    ]
    return fitted_table(columns, width, remedy="`edgemeter fleet show DEVICE` has them")


def _activity(line: DeviceOverview, now_ns: int) -> str | None:
    """Return what a device measures, else its job, else its last run."""
    measuring, job, newer, health = line.heard.measuring, line.job, line.newer_job, line.heard.health
    if measuring is not None:
        return f"run {measuring.run:,} of {measuring.runs:,}{_since_report(line, now_ns)}"
    if job is not None:
        progress = "" if job.done_ratio is None else f" {job.done_ratio:.0%}"
        return f"{job.job.partition('-')[0]} {job.state}{progress}"
    if newer is not None:
        return f"measured {age(now_ns - (newer.ended_ns or now_ns))} ago, {newer.state.replace('_', ' ')}"
    if health is not None and health.runs.last_ns is not None:
        return f"measured {age(now_ns - health.runs.last_ns)} ago, {health.runs.last_verdict}"
    return None


def _since_report(line: DeviceOverview, now_ns: int) -> str:
    """Return how long nothing was reported of a measurement, where that is long."""
    silent_ns = now_ns - (line.heard.activity_ns or now_ns)
    return f", no report for {age(silent_ns)}" if silent_ns > ACTIVITY_STALE_NS else ""


def overview_document(line: DeviceOverview) -> dict[str, Any]:
    """Return a device as JSON shows it; absent is null."""
    health, newer = line.heard.health, line.newer_job
    return {
        "device": line.device.device,
        "fleet": line.device.fleet,
        "board": line.board,
        "serial": line.serial,
        "tags": line.device.tags,
        "standing": line.device.trust,
        "presence": line.state,
        "presence_since": stamp(line.since_ns),
        "takes_no_orders": line.heard.takes_no_orders,
        "issues": msgspec.to_builtins(line.issues),
        # What it reported and cannot be true: these fields are not shown; `said` has them.
        "implausible": line.implausible,
        "agent": line.heard.agent,
        "certificate_not_after": stamp(health.certificate_not_after_ns) if health else None,
        "last_run": stamp(health.runs.last_ns) if health else None,
        "last_verdict": health.runs.last_verdict if health else None,
        "newer_job": None if newer is None else {"ended": stamp(newer.ended_ns), "state": newer.state},
        "job": None if line.job is None else {name: getattr(line.job, name) for name in ("job", "state", "done_ratio", "reason")},
        "measuring": msgspec.to_builtins(line.heard.measuring),
    }


def device_sheet(line: DeviceOverview, now_ns: int) -> list[str]:
    """Return everything about a device as lines, its issues first; what is not known has none."""
    device, health, job, newer = line.device, line.heard.health, line.job, line.newer_job
    since = line.since_ns and f"{line.state} since {figures.stamp(line.since_ns)} UTC ({age(now_ns - line.since_ns)})"
    facts: list[tuple[str, object]] = [
        ("board", _joined(device.board, line.heard.board)),
        ("serial", line.serial),
        ("tags", _joined(*device.tags)),
        ("presence", since),
        ("job", job and _joined(job.job, job.state, job.doing or job.reason)),
        ("measuring", line.heard.measuring and f"{line.heard.measuring.text}{_since_report(line, now_ns)}"),
    ]
    if newer is not None:
        outcome = f"{newer.state.replace('_', ' ')}, {count(len(newer.runs), 'run')}"
        facts.append(("last job", f"ended {age(now_ns - (newer.ended_ns or now_ns))} ago: {outcome}; its next report has the rest"))
    facts.append(("agent", line.heard.agent))
    facts += [("health", "not reported")] if health is None else _health_facts(health, now_ns)
    issues = [issue.sentence for issue in line.issues]
    return [f"{device.device}  {device.fleet}, {line.state}", *issues, "", *(f"{name + ':':<15}{text}" for name, text in facts if text)]


def _health_facts(health: Health, now_ns: int) -> list[tuple[str, object]]:
    end_ns, disk, runs, words = health.certificate_not_after_ns, health.disk, health.runs, health.last_words
    python, glibc = health.python and f"Python {health.python}", health.glibc and f"glibc {health.glibc}"
    mode, governor = health.power_mode and f"power mode {health.power_mode}", health.governor and f"governor {health.governor}"
    is_known = disk.free_bytes is not None and disk.size_bytes is not None
    space = f"{size(disk.free_bytes or 0)} of {size(disk.size_bytes or 0)} free" if is_known else None
    wear = None if disk.wear_ratio is None else f"up to {disk.wear_ratio:.0%} of its life used"
    dropped = f"dropped {health.dropped_records} results, {health.dropped_traces} traces" if health.dropped_records else None
    waiting = "unknown" if health.waiting_records is None else f"{health.waiting_records} waiting"
    verdicts = _joined(*(f"{number} {verdict}" for verdict, number in runs.verdicts.items()))
    last_run = (
        runs.last_ns
        and f"last {age(now_ns - runs.last_ns)} ago: {runs.last_verdict}; of the last {sum(runs.verdicts.values())}: {verdicts}"
    )
    answer = {True: "yes", False: "no", None: "unknown"}
    throttled, weak = answer[health.is_throttled_since_boot], answer[health.is_under_voltage_since_boot]
    return [
        ("agents before", _joined(health.previous_agent, *(f"{agent} failed" for agent in health.bad_agents))),
        ("system", _joined(health.os, health.kernel, health.arch, python, glibc)),
        ("mode", _joined(mode, governor)),
        ("sensors", sensors_text(health) or "none"),
        ("certificate", end_ns and f"{'expires' if end_ns > now_ns else 'expired'} {figures.stamp(end_ns)} UTC"),
        ("clock", _joined(clock_text(health), health.clock.offset_ms and f"{health.clock.offset_ms:+.3g} ms off")),
        ("disk", _joined(space, wear)),
        ("outbox", _joined(waiting, health.outbox_trouble, dropped)),
        ("runs", last_run),
        ("temperatures", _joined(*(f"{name} {value_c:.0f} C" for name, value_c in sorted(health.temperatures_c.items())))),
        ("since boot", f"throttled: {throttled}, under-voltage: {weak}"),
        ("up", health.uptime_s and _joined(age(int(health.uptime_s * 1e9)), health.reset_reason and f"reset reason {health.reset_reason}")),
        ("last stop", _joined(last_words(health), words.at_ns and f"{figures.stamp(words.at_ns)} UTC")),
        ("reported", f"{figures.stamp(health.told_ns)} UTC by its own clock"),
    ]


def _joined(*texts: object, separator: str = ", ") -> str | None:
    """Return the texts that there are as one, None where there is none."""
    return separator.join(str(text) for text in texts if text) or None
