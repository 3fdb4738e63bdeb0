"""Executions as people and programs read them: tables, lines and JSON."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.jobs.jobs import Job

NS_PER_S = 1_000_000_000
ABSENT = "-"
LONGEST_REASON = 200
STYLES = {"done": "green", "failed": "red", "rejected": "red", "timed_out": "red", "cancelled": "dim", "running": "cyan", "held": "dim"}
# In the order in which a summary counts them.
ORDER = ("done", "running", "accepted", "sent", "queued", "held", "failed", "rejected", "timed_out", "cancelled")

Why = Callable[[Execution], str | None]


def state(execution: Execution) -> str:
    """Return the state for people, with how far it is."""
    ratio = execution.done_ratio
    done = f" {ratio:.0%}" if execution.state == "running" and ratio is not None else ""
    ending = ", to be cancelled" if execution.wish == "cancel" and not execution.is_final else ""
    return f"{execution.state.replace('_', ' ')}{done}{ending}"


def note(execution: Execution, why: Why) -> str:
    """Return the rest of what is worth knowing: why it waits or ended so, what the device does, how many runs came of it."""
    runs = f"{len(execution.runs)} run{'s' * (len(execution.runs) != 1)}" if execution.state == "done" and execution.runs else None
    said = [execution.doing, execution.reason, why(execution), runs]
    return one_line("; ".join(part for part in said if part))


def one_line(text: str) -> str:
    """Return text of a device fit for a terminal: on one line, not too long, no control characters."""
    plain = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    return plain if len(plain) <= LONGEST_REASON else f"{plain[:LONGEST_REASON]} ..."


def took(execution: Execution, now_ns: int) -> str:
    """Return how long it was on the device, or is."""
    began = execution.running_ns or execution.accepted_ns or execution.sent_ns
    if began is None or execution.state in {"queued", "held"}:
        return ABSENT
    return f"{((execution.ended_ns or now_ns) - began) / NS_PER_S:.0f} s"


def stamp(taken_ns: int | None) -> str | None:
    """Return a time as ISO 8601, UTC."""
    if taken_ns is None:
        return None
    return datetime.fromtimestamp(taken_ns / NS_PER_S, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def table(executions: Iterable[Execution], why: Why, now_ns: int, *, by: str = "device") -> Table:
    """Return a table of executions, a row each, named by `device` or by `job`."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in (by, "state", "attempt", "took", "note"):
        # On a terminal of 80 columns a name stays on one line, to be copied.
        width = {"min_width": 16} if heading == "note" else {"no_wrap": heading != "state"}
        made.add_column(heading, justify="right" if heading in {"attempt", "took"} else "left", overflow="fold", **width)
    for one in executions:
        cells = (str(getattr(one, by)), state(one), str(one.attempt or ABSENT), took(one, now_ns), note(one, why))
        made.add_row(*(Text(cell, style=STYLES.get(one.state, "") if place == 1 else "") for place, cell in enumerate(cells)))
    return made


def summary(executions: Iterable[Execution]) -> str:
    """Return how many are in which state."""
    return summed(Counter(one.state for one in executions))


def summed(counts: Mapping[str, int]) -> str:
    """Return counts by state in words."""
    return ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in ORDER if counts.get(name)) or "none"


def outline(job: Job, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return a job without its executions as JSON shows it."""
    return {
        "job": job.job,
        "title": job.title,
        "kind": job.work.__struct_config__.tag,
        "campaign": job.campaign,
        "timeout_s": job.timeout_s,
        "made": stamp(job.made_ns),
        "states": dict(counts),
    }


def document(job: Job, executions: Sequence[Execution], why: Mapping[int, str | None]) -> dict[str, Any]:
    """Return a job with its executions as JSON shows it."""
    counts: Counter[str] = Counter(one.state for one in executions)
    return outline(job, counts) | {"executions": [_document(one, why.get(one.id)) for one in executions]}


def _document(one: Execution, why: str | None) -> dict[str, Any]:
    return {
        "device": one.device,
        "fleet": one.fleet,
        "state": one.state,
        "attempt": one.attempt,
        "version": one.version,
        "reason": one.reason,
        "waits": why,
        "is_to_be_cancelled": one.wish == "cancel",
        "done_ratio": one.done_ratio,
        "doing": one.doing,
        "sent": stamp(one.sent_ns),
        "accepted": stamp(one.accepted_ns),
        "running": stamp(one.running_ns),
        "ended": stamp(one.ended_ns),
        "runs": list(one.runs),
        "figures": one.figures or {},
        "text": one.text,
    }
