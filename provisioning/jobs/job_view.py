"""Jobs and executions for people and programs: tables, lines and JSON.

A job is also followed to its end here.
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.console import Console, Justify, Table, Text
from edgemeter.agent.base.live_lines import LiveLines
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.number_text import ABSENT, count, iso_stamp, on_one_line
from edgemeter.agent.contract.health import recently_refused
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.devices import find_presence
from edgemeter.provisioning.registry.jobs import IN_FLIGHT, Execution, Job, select_executions
from edgemeter.provisioning.registry.registry import Registry

LONGEST_REASON = 200
STYLES = {
    "done": "green",
    "failed": "red",
    "rejected": "red",
    "timed_out": "red",
    "cancelled": "dim",
    "running": "cyan",
    "repeating": "green",
    "held": "dim",
}
# The order in which a summary counts the states.
ORDER = (
    "done",
    "repeating",
    "running",
    "accepted",
    "sent",
    "queued",
    "held",
    "failed",
    "rejected",
    "timed_out",
    "cancelled",
)
WAITING = frozenset({"queued", "held"})
POLL_S = 0.5
# If nothing of a job was sent for this long, the reader is told what to check.
NOTHING_SENT_S = 15.0
MOST_ROWS = 30


def wait_reasons(
    registry: Registry, executions: Iterable[Execution], now_ns: int
) -> dict[int, str]:
    """Return why executions wait, by id, as far as the registry shows it.

    Only the service knows which devices are online.
    """
    in_flight = select_executions(registry, f"WHERE state IN {tuple(IN_FLIGHT)}")
    busy = {execution.device for execution in in_flight}
    exclusive = {execution.exclusive for execution in in_flight} - {None}
    reasons = {}
    for execution in executions:
        if execution.state == "held":
            reasons[execution.id] = "its wave has not begun"
        elif execution.state == "sent":
            # Its device may have refused this order recently.
            presence = find_presence(registry, execution.device)
            refused = (
                recently_refused(presence.health)
                if presence is not None and presence.health is not None
                else None
            )
            if refused is not None:
                reasons[execution.id] = f"its device refused an order: {refused.reason}"
        elif execution.state == "queued":
            reason = "waiting for its device"
            if execution.device in busy:
                reason = "its device is busy"
            elif execution.due_ns > now_ns:
                reason = f"retry in {(execution.due_ns - now_ns) / NS_PER_S:.0f} s"
            elif execution.exclusive in exclusive:
                reason = f"another of {execution.exclusive!r} is measuring"
            reasons[execution.id] = reason
    return reasons


def state_text(execution: Execution) -> str:
    """Return the state, with the progress of a running execution."""
    ratio = execution.done_ratio
    progress = f" {ratio:.0%}" if execution.state == "running" and ratio is not None else ""
    ending = ", cancelling" if execution.requested == "cancel" and not execution.is_final else ""
    return f"{execution.state.replace('_', ' ')}{progress}{ending}"


def note_text(execution: Execution, wait_reason: str | None = None) -> str:
    """Return a note: the device's activity, why it waits or ended, its number of runs."""
    runs = (
        count(len(execution.runs), "run") if execution.state == "done" and execution.runs else None
    )
    # The device's reason for its end counts the runs too.
    return one_line(
        "; ".join(part for part in (execution.doing, execution.reason or runs, wait_reason) if part)
    )


def one_line(text: str) -> str:
    """Return a device's text for a terminal: on one line, not too long, no control characters."""
    line = on_one_line(text)
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]} ..."


def executions_table(
    executions: Iterable[Execution], reasons: Mapping[int, str], now_ns: int, *, by: str = "device"
) -> Table:
    """Return a table of executions, a row each, named by `device` or by `job`."""
    table = Table()
    for heading in (by, "state", "attempt", "took", "note"):
        # On a terminal of 80 columns a name stays on one line, to be copied.
        justify: Justify = "right" if heading in {"attempt", "took"} else "left"
        table.add_column(
            heading,
            justify,
            is_whole=heading not in {"state", "note"},
            min_width=16 if heading == "note" else 0,
        )
    for execution in executions:
        began_ns = execution.running_ns or execution.accepted_ns or execution.sent_ns
        took = ABSENT
        if began_ns is not None and execution.state not in WAITING:
            took = f"{((execution.ended_ns or now_ns) - began_ns) / NS_PER_S:.0f} s"
        state = Text(state_text(execution), style=STYLES.get(execution.state, ""))
        note = Text(note_text(execution, reasons.get(execution.id)))
        table.add_row(
            Text(getattr(execution, by)), state, str(execution.attempt or ABSENT), took, note
        )
    return table


def counts_text(counts: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in ORDER if counts.get(name))
        or "none"
    )


def job_outline(job: Job, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return a job without its executions for JSON."""
    return {
        "job": job.job,
        "title": job.title,
        "kind": job.works[0].__struct_config__.tag,
        "state": job.state,
        "reason": job.reason,
        "wave": job.wave + 1,
        "waves": job.waves,
        "timeout_s": job.timeout_s,
        "made": iso_stamp(job.made_ns),
        "ended": iso_stamp(job.ended_ns),
        "states": dict(counts),
    }


def job_document(
    job: Job, executions: Sequence[Execution], reasons: Mapping[int, str]
) -> dict[str, Any]:
    """Return a job with its executions for JSON."""
    same = (
        "device",
        "fleet",
        "state",
        "attempt",
        "version",
        "reason",
        "done_ratio",
        "doing",
        "text",
        "runs",
    )
    times = ("sent", "accepted", "running", "ended")
    documents = [
        {name: getattr(execution, name) for name in same}
        | {name: iso_stamp(getattr(execution, f"{name}_ns")) for name in times}
        | {
            "wave": execution.wave + 1,
            "waits": reasons.get(execution.id),
            "is_to_be_cancelled": execution.requested == "cancel",
        }
        for execution in executions
    ]
    return job_outline(job, Counter(execution.state for execution in executions)) | {
        "executions": documents
    }


def follow_job(registry: Registry, name: str, console: Console) -> list[Execution]:
    """Return the executions of a job, by device, when it is over or was stopped.

    Meanwhile show them on `console`: a live table on a terminal, else a line for every change.
    """
    executions: dict[str, Execution] = {}
    serial, warn_s = 0, time.monotonic() + NOTHING_SENT_S
    live = LiveLines(console) if console.is_terminal else None
    with live or nullcontext():
        while True:
            for execution in select_executions(
                registry, "WHERE job = ? AND serial > ? ORDER BY serial", name, serial
            ):
                serial = execution.serial
                if live is None:
                    _print_change(console, executions.get(execution.device), execution)
                executions[execution.device] = execution
            if live is not None:
                live.draw(console.lines(_live_table(registry, list(executions.values()))))
            states = {
                execution.state for execution in executions.values() if not execution.is_settled
            }
            if not states or (
                states.isdisjoint(IN_FLIGHT) and jobs.find(registry, name).state != "running"
            ):
                return [executions[device] for device in sorted(executions)]
            if time.monotonic() > warn_s and not any(
                execution.attempt for execution in executions.values()
            ):
                warn_s = math.inf
                console.print(
                    "nothing sent yet: is `edgemeter fleet serve` running, and are "
                    "the devices online?"
                )
            interrupts.sleep(POLL_S)


def _print_change(console: Console, before: Execution | None, now: Execution) -> None:
    """Print a line, unless only the progress changed."""
    if before is None or (before.state, before.attempt, before.requested) != (
        now.state,
        now.attempt,
        now.requested,
    ):
        # Activity is shown on a terminal only, as it changes: here it would be out of date.
        note = note_text(replace(now, doing=None))
        console.print(f"{now.device}: {state_text(now)}{f': {note}' if note else ''}")


def _live_table(registry: Registry, executions: Sequence[Execution]) -> Table:
    """Return the present table; with many devices it shows those that are busy or failed."""
    now_ns = time.time_ns()
    rows = sorted(
        executions, key=lambda execution: (execution.state in {"done", *WAITING}, execution.device)
    )[:MOST_ROWS]
    table = executions_table(rows, wait_reasons(registry, rows, now_ns), now_ns)
    table.caption = Text(counts_text(Counter(execution.state for execution in executions)))
    return table
