"""Carries one order out, in a process of its own: `python -m edgemeter.agent.jobs.execute`, a Task on its standard input.

It writes how it ended into the journal by itself, and says on its standard output what it does. When its standard input ends, so does it:
then the agent that started it is gone, and the journal says that the job was interrupted.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import msgspec

from edgemeter.agent import config
from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.jobs import contract, journal
from edgemeter.agent.jobs.contract import State
from edgemeter.agent.jobs.execution_task import Doing, Task
from edgemeter.agent.jobs.journal import Journal

# Above what the agent that stays has: when memory runs out, the kernel ends what measures.
_FIRST_TO_GO = "500"


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
}


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
        outcome: Outcome = getattr(import_module(module), name)(here)
        book.ends(task.place, outcome.state, outcome.reason, figures=dict(outcome.figures), text=outcome.text)
    except (ConfigError, UnavailableError) as error:
        # Nothing was measured: the order cannot be carried out on this board.
        found = book.read(task.place)
        book.ends(task.place, "failed" if found and found.runs else "rejected", str(error))
    except EdgemeterError as error:
        book.ends(task.place, "failed", str(error))
    finally:
        book.close()


def _end_with_owner(lifeline: BinaryIO) -> None:
    lifeline.read()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Carry out the task on standard input."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    threading.Thread(target=_end_with_owner, args=(sys.stdin.buffer,), daemon=True).start()
    os.environ["EDGEMETER_HOME"] = task.home
    carry_out(task, sys.stdout.buffer)
    # Without waiting for the thread that watches the standard input.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
