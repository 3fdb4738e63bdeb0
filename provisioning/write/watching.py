"""How far the writing of a card is, on standard error: a bar on a terminal, elsewhere nothing."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class Watching:
    """A context; `told` names a phase, its bytes done, and all of them."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Watching":  # noqa: PYI034 - typing.Self came with Python 3.11
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def told(self, phase: str, done: int, total: int) -> None:
        """Show how far a phase is."""
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total)
        self._progress.update(self._tasks[phase], completed=done, total=total)
