"""The table of `edgemeter fleet list` and the sheet of `edgemeter fleet show`.

Both are for people and as JSON.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from edgemeter.agent.base import number_text
from edgemeter.agent.base.console import Table
from edgemeter.agent.base.number_text import ABSENT, age, iso_stamp, on_one_line
from edgemeter.agent.base.terminal import TableColumn, fitted_table
from edgemeter.agent.contract.health_issues import health_facts, joined
from edgemeter.agent.contract.messages import ACTIVITY_STALE_NS
from edgemeter.provisioning.health.overview import DeviceOverview

# The columns, and the order in which a narrow terminal drops them.
HEADINGS = {"device": 0, "board": 2, "presence": 0, "agent": 3, "activity": 1, "issue": 0}


def fleet_table(lines: Sequence[DeviceOverview], now_ns: int, width: int) -> Table:
    """Return the devices, a row each, in the columns that have content and fit."""
    rows = []
    for line in lines:
        state = (
            line.state if line.since_ns is None else f"{line.state} {age(now_ns - line.since_ns)}"
        )
        health, reason = line.heard.health, line.job.reason if line.job else None
        issue = "; ".join(filter(None, (*(issue.sentence for issue in line.issues[:1]), reason)))
        board, agent = line.device.board or (health and health.board), health and health.agent
        cells = (line.device.device, board, state, agent, _activity(line, now_ns), issue)
        rows.append([on_one_line(cell or "") or ABSENT for cell in cells])
    columns = [
        TableColumn(heading, cells, "left", rank, narrowed="folds" if heading == "issue" else "")
        for (heading, rank), cells in zip(HEADINGS.items(), zip(*rows, strict=True), strict=True)
    ]
    return fitted_table(columns, width, remedy="`edgemeter fleet show DEVICE` shows them")


def _activity(line: DeviceOverview, now_ns: int) -> str | None:
    """Return a device's current measurement, else its job, else its last run."""
    measuring, job, health = line.heard.measuring, line.job, line.heard.health
    if measuring is not None:
        return f"run {measuring.run:,} of {measuring.runs:,}{_since_report(line, now_ns)}"
    if job is not None:
        progress = "" if job.done_ratio is None else f" {job.done_ratio:.0%}"
        return f"{job.job.partition('-')[0]} {job.state}{progress}"
    if health is not None and health.runs.last_ns is not None:
        return f"measured {age(now_ns - health.runs.last_ns)} ago, {health.runs.last_verdict}"
    return None


def _since_report(line: DeviceOverview, now_ns: int) -> str:
    """Return how long a measurement has had no report, if that is long."""
    silent_ns = now_ns - (line.heard.activity_ns or now_ns)
    return f", no report for {age(silent_ns)}" if silent_ns > ACTIVITY_STALE_NS else ""


def overview_document(line: DeviceOverview) -> dict[str, Any]:
    """Return a device as JSON; unknown is null."""
    health = line.heard.health
    return {
        "device": line.device.device,
        "fleet": line.device.fleet,
        "board": line.device.board or (health and health.board),
        "serial": line.device.serial or (health and health.serial),
        "tags": line.device.tags,
        "standing": line.device.trust,
        "presence": line.state,
        "presence_since": iso_stamp(line.since_ns),
        "issues": msgspec.to_builtins(line.issues),
        "agent": health and health.agent,
        "certificate_not_after": iso_stamp(health.certificate_not_after_ns) if health else None,
        "last_run": iso_stamp(health.runs.last_ns) if health else None,
        "last_verdict": health.runs.last_verdict if health else None,
        "job": None
        if line.job is None
        else {name: getattr(line.job, name) for name in ("job", "state", "done_ratio", "reason")},
        "measuring": msgspec.to_builtins(line.heard.measuring),
    }


def device_sheet(line: DeviceOverview, now_ns: int) -> list[str]:
    """Return everything about a device as lines, its issues first; unknown facts have none."""
    device, health, job = line.device, line.heard.health, line.job
    facts = {
        "Board": joined(device.board, health and health.board),
        "Serial": device.serial or (health and health.serial),
        "Tags": joined(*device.tags),
        "Presence": line.since_ns
        and (
            f"{line.state} since {number_text.stamp(line.since_ns)} UTC "
            f"({age(now_ns - line.since_ns)})"
        ),
        "Job": job and joined(job.job, job.state, job.doing or job.reason),
        "Measuring": line.heard.measuring
        and f"{line.heard.measuring.text}{_since_report(line, now_ns)}",
    }
    facts |= {"Health": "not reported"} if health is None else health_facts(health, now_ns)
    issues = [issue.sentence for issue in line.issues]
    title = f"{device.device}  {device.fleet}, {line.state}"
    return [
        title,
        *issues,
        "",
        *(f"{label + ':':<24}{text}" for label, text in facts.items() if text),
    ]
