"""What is seen of an `apply` while it runs, on standard error: a line per device that moves on a terminal, a line per step elsewhere."""

import sys
import threading
from types import TracebackType
from typing import Literal

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from edgemeter.provisioning.apply.outcome import Outcome


class Watching:
    """A context; `told` and `ended` may be called from any thread."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn())
        self._progress = Progress(*columns, console=self._console, transient=True, disable=not sys.stderr.isatty())

    def __enter__(self) -> "Watching":  # noqa: PYI034 - typing.Self came with Python 3.11
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def told(self, kind: Literal["now", "done"], device: str, what: str) -> None:
        """Show what is being done on a device, or was."""
        with self._lock:
            if self._progress.disable:
                if kind == "done":
                    self._line(f"{device}: {what}")
                return
            if device not in self._tasks:
                self._tasks[device] = self._progress.add_task(device, total=None, note=what)
            self._progress.update(self._tasks[device], note=what[:100])

    def ended(self, outcome: Outcome) -> None:
        """Show what came of a device."""
        with self._lock:
            if outcome.device in self._tasks:
                self._progress.remove_task(self._tasks.pop(outcome.device))
            self._line(f"{outcome.device}: {outcome.state}" + (f": {outcome.remedy}" if outcome.remedy else ""))

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
