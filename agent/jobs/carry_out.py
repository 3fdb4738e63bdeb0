"""Carries one order out and writes its end into the journal, whatever becomes of the agent that stays meanwhile."""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import msgspec

from edgemeter.agent import config
from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.jobs import contract, journal, updating
from edgemeter.agent.jobs.contract import State
from edgemeter.agent.jobs.execution_task import Doing, Task
from edgemeter.agent.jobs.journal import Journal

# Where an order's files stand while it is carried out.
WORK_FOLDER = "job-work"
_WITHIN = re.compile(rf"/[^'\"\s]*/{WORK_FOLDER}/[^'\"/\s]+/")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an order that was carried out."""

    state: State = "done"
    reason: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Here:
    """What the work is given: the task, the configuration, where to note a run that was kept, and where to tell what happens."""

    task: Task
    settings: config.Config
    kept: Callable[[str], None]
    tell: Callable[[str, float | None], None]

    def content(self, content: contract.Content) -> Path:
        """Return where that content stands."""
        return Path(self.task.contents[content.sha256])


# By kind of work: what carries it out, given Here.
WORKS: Mapping[type, str] = {
    contract.Measure: "edgemeter.agent.jobs.measuring:measure",
    contract.Golden: "edgemeter.agent.jobs.measuring:golden",
    contract.Doctor: "edgemeter.agent.jobs.look_inside:doctor",
    contract.Logs: "edgemeter.agent.jobs.look_inside:logs",
    contract.Update: "edgemeter.agent.jobs.carry_out:update",
}


def update(here: Here) -> None:
    """Begin an update; its end is told by the agent that stays, perhaps by another release of it."""
    work = here.task.order.work
    if not isinstance(work, contract.Update):
        raise TypeError(work)
    updating.carry_out(here.task.order, here.content(work.bundle), Path(here.task.home))


def carry_out(task: Task, notes: BinaryIO) -> None:
    """Do what the order says and write its end into the journal."""
    book = Journal(Path(task.home) / journal.NAME)

    def tell(doing: str, done_ratio: float | None = None) -> None:
        # Nobody listens any more: this process is about to be ended.
        with contextlib.suppress(BrokenPipeError):
            notes.write(msgspec.json.encode(Doing(doing=doing, done_ratio=done_ratio)) + b"\n")
            notes.flush()

    try:
        settings = config.read(Path(task.config) if task.config else None)
        here = Here(task, settings, lambda run: book.kept(task.place, run), tell)
        module, _, name = WORKS[type(task.order.work)].partition(":")
        outcome: Outcome | None = getattr(import_module(module), name)(here)
        if outcome is not None:
            book.ends(task.place, outcome.state, _as_ordered(outcome.reason), figures=dict(outcome.figures), text=outcome.text)
    except (ConfigError, UnavailableError) as error:
        # Nothing was measured: the order cannot be carried out on this board.
        found = book.read(task.place)
        book.ends(task.place, "failed" if found and found.runs else "rejected", _as_ordered(str(error)))
    except EdgemeterError as error:
        book.ends(task.place, "failed", _as_ordered(str(error)))
    finally:
        book.close()


def _as_ordered(reason: str | None) -> str | None:
    """Return the reason with files called as the order calls them, not by where they stood on the board for that time."""
    return None if reason is None else _WITHIN.sub("", reason)
