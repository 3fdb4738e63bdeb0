"""Carries one order out and writes the result into the journal, even if the daemon ends meanwhile.

Answers the orders `doctor` and `logs`.
"""

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import BinaryIO

import msgspec

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.contract.messages import Measuring
from edgemeter.agent.contract.orders import Content, Doctor, JobState, Logs, Measure
from edgemeter.agent.doctor import examination
from edgemeter.agent.jobs import journal
from edgemeter.agent.jobs.execution import ANSWER_NS, Doing, ExecutionTask
from edgemeter.agent.jobs.journal import Journal

# The folder of an order's files while it is carried out.
WORK_FOLDER = "job-work"
_WITHIN = re.compile(rf"/[^'\"\s]*/{WORK_FOLDER}/[^'\"/\s]+/")


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """The outcome of an order that was carried out."""

    state: JobState = "done"
    reason: str | None = None
    text: str | None = None


# Reports the current step, the completed share (0..1), and the run that begins now.
ReportProgress = Callable[[str, float | None, Measuring | None], None]


@dataclass(frozen=True, slots=True)
class OrderContext:
    """The context of the work: the task, the configuration, and callbacks.

    `kept` is for a stored run (and whether it is the last), `report` for progress.
    """

    task: ExecutionTask
    settings: config.Config
    kept: Callable[[str, bool], None]
    report: ReportProgress

    def content(self, content: Content) -> Path:
        return Path(self.task.contents[content.sha256])


# The function that carries out each kind of work, given the context and the work.
WORK_FUNCTIONS: Mapping[type, str] = {
    Measure: "edgemeter.agent.jobs.measure_order:measure",
    Doctor: "edgemeter.agent.jobs.carry_out:doctor",
    Logs: "edgemeter.agent.jobs.carry_out:logs",
}


def carry_out(
    task: ExecutionTask, notes: BinaryIO, answered: threading.Event | None = None
) -> None:
    """Carry out the order and write the result into the journal.

    `answered` is set when the owner has reported the run that begins.
    """

    def report(doing: str, done_ratio: float | None, measuring: Measuring | None) -> None:
        note = Doing(
            doing=doing, done_ratio=done_ratio, measuring=measuring, begun_ns=time.monotonic_ns()
        )
        if answered is not None:
            answered.clear()
        # The daemon has ended: this process is about to end.
        with contextlib.suppress(BrokenPipeError):
            notes.write(msgspec.json.encode(note) + b"\n")
            notes.flush()
        if measuring is not None and answered is not None:
            answered.wait(ANSWER_NS / 1e9)

    with Journal(Path(task.home) / journal.JOURNAL_FILE) as book:
        try:
            context = OrderContext(
                task,
                config.read(Path(task.config) if task.config else None),
                lambda run, is_last: book.kept(task.place, run, is_last=is_last),
                report,
            )
            outcome: OrderOutcome = resolve_name(WORK_FUNCTIONS[type(task.order.work)])(
                context, task.order.work
            )
        except (ConfigError, UnavailableError) as error:
            # If nothing was measured, the order cannot be carried out on this board.
            entry = book.read(task.place)
            outcome = OrderOutcome("failed" if entry and entry.runs else "rejected", str(error))
        except EdgemeterError as error:
            outcome = OrderOutcome("failed", str(error))
        # Files have the names in the order, not their paths on this board.
        reason = None if outcome.reason is None else _WITHIN.sub("", outcome.reason)
        book.ends(task.place, outcome.state, reason, text=outcome.text)


UNIT = "edgemeter-agent.service"
PATIENCE_S = 30.0

# Secrets that a log may contain: values after such a word, PEM keys, user and password in a URL,
# long tokens.
_SECRETS = (
    re.compile(
        r"-----BEGIN [^-]*PRIVATE KEY-----.*?(-----END [^-]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    re.compile(r"(?i)\b(authorization\s*[:=]\s*)?\b(bearer|basic)\s+\S+"),
    re.compile(
        r"(?i)\b(pass(word|wd|phrase)?|secret|token|psk|api[-_]?key|authorization|bearer)\b"
        r"(\s*[=:]\s*|\s+)(\"[^\"]*\"|'[^']*'|\S+)"
    ),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"\b[A-Za-z0-9_-]{43,}={0,2}(?![A-Za-z0-9_-])"),
)
_HEX = re.compile(r"[0-9a-f]{64}\Z")


def doctor(context: OrderContext, _work: Doctor) -> OrderOutcome:
    """Examine this device, as `edgemeter doctor --format json` does."""
    settings = context.settings
    return OrderOutcome(
        text=examination.as_json(
            examination.examine(
                broker=settings.broker, home=Path(context.task.home), settings=settings
            )
        )
    )


def logs(context: OrderContext, work: Logs) -> OrderOutcome:
    """Return the last lines of the agent's log.

    It is systemd's journal if it can be read, else the agent's own from memory.
    """
    lines, where = _of_systemd(work.lines), f"journal of {UNIT}"
    if not lines:
        lines, where = list(context.task.log[-work.lines :]), "kept by the agent since its start"
    return OrderOutcome(reason=f"{len(lines)} lines, {where}", text=redacted("\n".join(lines)))


def redacted(text: str) -> str:
    """Return the text without likely secrets; a sha256 is none."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match[0] if _HEX.match(match[0]) else "[redacted]", text)
    return text


def _of_systemd(lines: int) -> list[str]:
    command = [
        "journalctl",
        "--unit",
        UNIT,
        "--lines",
        str(lines),
        "--output",
        "short-iso",
        "--no-pager",
        "--quiet",
    ]
    try:
        completed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return completed.stdout.decode(errors="replace").splitlines()
