"""Jobs and executions as people and programs read them: tables, lines and JSON; and a job followed to its end."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edgemeter.agent.base.figures import ABSENT, count
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.terminal import plain_table
from edgemeter.provisioning.inventory.formatting import plain, stamp
from edgemeter.provisioning.jobs.scheduler import WaitReasons
from edgemeter.provisioning.registry import jobs
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
ORDER = ("done", "repeating", "running", "accepted", "sent", "queued", "held", "failed", "rejected", "timed_out", "cancelled")
WAITING = frozenset({"queued", "held"})
POLL_S = 0.5
# When nothing of a job was sent for this long, the reader is told what to check.
NOTHING_SENT_S = 15.0
NOTHING_SENT = "nothing sent yet: is `edgemeter fleet serve` running, and are the devices online?"
MOST_ROWS = 30

Why = Callable[[Execution], str | None]


def state_text(execution: Execution) -> str:
    """Return the state, with the progress of a running execution."""
    ratio = execution.done_ratio
    progress = f" {ratio:.0%}" if execution.state == "running" and ratio is not None else ""
    ending = ", cancelling" if execution.requested == "cancel" and not execution.is_final else ""
    return f"{execution.state.replace('_', ' ')}{progress}{ending}"


def note_text(execution: Execution, why: Why) -> str:
    """Return what else is worth knowing: what the device does, why it waits or ended, how many runs it produced."""
    runs = count(len(execution.runs), "run") if execution.state == "done" and execution.runs else None
    # The reason that a device gives for its end counts the runs too.
    return one_line("; ".join(part for part in (execution.doing, execution.reason or runs, why(execution)) if part))


def one_line(text: str) -> str:
    """Return text of a device fit for a terminal: on one line, not too long, no control characters."""
    line = plain(text)
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]} ..."


def duration_text(execution: Execution, now_ns: int) -> str:
    """Return how long it was on the device, or has been."""
    began = execution.running_ns or execution.accepted_ns or execution.sent_ns
    if began is None or execution.state in WAITING:
        return ABSENT
    return f"{((execution.ended_ns or now_ns) - began) / NS_PER_S:.0f} s"


def executions_table(executions: Iterable[Execution], why: Why, now_ns: int, *, by: str = "device") -> Table:
    """Return a table of executions, a row each, named by `device` or by `job`."""
    table = plain_table()
    for heading in (by, "state", "attempt", "took", "note"):
        # On a terminal of 80 columns a name stays on one line, to be copied.
        width = {"min_width": 16} if heading == "note" else {"no_wrap": heading != "state"}
        table.add_column(heading, justify="right" if heading in {"attempt", "took"} else "left", overflow="fold", **width)
    for execution in executions:
        state, note = Text(state_text(execution), style=STYLES.get(execution.state, "")), Text(note_text(execution, why))
        table.add_row(Text(getattr(execution, by)), state, str(execution.attempt or ABSENT), duration_text(execution, now_ns), note)
    return table


def summary_of(executions: Iterable[Execution]) -> str:
    """Return how many executions are in which state."""
    return counts_text(Counter(execution.state for execution in executions))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts by state in words."""
    return ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in ORDER if counts.get(name)) or "none"


def job_outline(job: Job, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return a job without its executions as JSON shows it."""
    return {
        "job": job.job,
        "title": job.title,
        "kind": job.works[0].__struct_config__.tag,
        "state": job.state,
        "reason": job.reason,
        "wave": job.wave + 1,
        "waves": job.waves,
        "timeout_s": job.timeout_s,
        "made": stamp(job.made_ns),
        "ended": stamp(job.ended_ns),
        "states": dict(counts),
    }


def job_document(job: Job, executions: Sequence[Execution], why: Why) -> dict[str, Any]:
    """Return a job with its executions as JSON shows it."""
    counts: Counter[str] = Counter(execution.state for execution in executions)
    return job_outline(job, counts) | {"executions": [_execution_document(execution, why) for execution in executions]}


def _execution_document(execution: Execution, why: Why) -> dict[str, Any]:
    same = ("device", "fleet", "state", "attempt", "version", "reason", "done_ratio", "doing", "text")
    return {name: getattr(execution, name) for name in same} | {
        "wave": execution.wave + 1,
        "waits": why(execution),
        "is_to_be_cancelled": execution.requested == "cancel",
        "sent": stamp(execution.sent_ns),
        "accepted": stamp(execution.accepted_ns),
        "running": stamp(execution.running_ns),
        "ended": stamp(execution.ended_ns),
        "runs": list(execution.runs),
    }


def follow_job(registry: Registry, name: str, console: Console, sleep: Callable[[float], None] | None = None) -> list[Execution]:
    """Return the executions of a job, by device, when it is over or was stopped.

    Meanwhile show on `console` how they proceed: a live table on a terminal, else a line for every change.
    """
    executions: dict[str, Execution] = {}
    serial, began_s, has_warned = 0, time.monotonic(), False
    live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
    with live or nullcontext():
        while True:
            for execution in select_executions(registry, "WHERE job = ? AND serial > ? ORDER BY serial", name, serial):
                serial = execution.serial
                if live is None:
                    _print_change(console, executions.get(execution.device), execution)
                executions[execution.device] = execution
            if live is not None:
                live.update(_live_table(registry, executions.values()), refresh=True)
            waited_for = [execution for execution in executions.values() if not execution.is_settled]
            is_in_flight = any(execution.state in IN_FLIGHT for execution in waited_for)
            if not waited_for or (not is_in_flight and jobs.find(registry, name).state != "running"):
                return [executions[device] for device in sorted(executions)]
            if (
                not has_warned
                and time.monotonic() - began_s > NOTHING_SENT_S
                and not any(execution.attempt for execution in executions.values())
            ):
                has_warned = True
                console.print(NOTHING_SENT, markup=False, highlight=False)
            (sleep or time.sleep)(POLL_S)


def _print_change(console: Console, before: Execution | None, now: Execution) -> None:
    """Print a line, unless only the progress changed."""
    if before is None or (before.state, before.attempt, before.requested) != (now.state, now.attempt, now.requested):
        # What it does is shown as it changes on a terminal only: here it would be that of the state before.
        note = note_text(replace(now, doing=None), lambda _: None)
        line = f"{now.device}: {state_text(now)}{f': {note}' if note else ''}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _live_table(registry: Registry, executions: Collection[Execution]) -> Table:
    """Return the table as it is now; of many devices it shows those that are busy or failed."""
    now_ns = time.time_ns()
    rows = sorted(executions, key=lambda execution: (execution.state in {"done", *WAITING}, execution.device))
    table = executions_table(rows[:MOST_ROWS], WaitReasons(registry, now_ns).why, now_ns)
    table.caption = summary_of(executions)
    return table
