"""The progress of a session: one line on a terminal, removed at the end; elsewhere a line for each finished run."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from edgemeter.agent.base.figures import duration
from edgemeter.agent.cli.measured_case import cases_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine import job
from edgemeter.agent.session import session

DRAWN_PER_SECOND = 1  # Rarely: drawing a line takes time from the process that is timed.


class _Bar(ProgressColumn):
    """The elapsed share of the planned time."""

    def render(self, task: Task) -> ProgressBar:
        return ProgressBar(total=task.total, completed=task.elapsed or 0.0)


class _Times(ProgressColumn):
    def render(self, task: Task) -> Text:
        planned = "" if task.total is None else f" of about {duration(task.total)}"
        return Text(f"{duration(task.elapsed or 0.0)}{planned}")


class SessionProgress:
    """Shows the events of a session: the run, its current part, and the time of all runs by their settings."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        console = console or Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=5, no_wrap=True, overflow="ellipsis")),
            _Bar(table_column=Column(ratio=1)),
            _Times(table_column=Column(no_wrap=True)),
            console=console,
            refresh_per_second=DRAWN_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            expand=True,
            disable=not console.is_terminal,
            get_time=clock,
        )
        self._task = self._bars.add_task("", total=None)
        self._place = self._label = ""

    def __enter__(self) -> "SessionProgress":  # noqa: PYI034 - Self needs Python 3.11
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, event: "session.RunBegins | job.Event | session.RunEnds") -> None:
        if isinstance(event, session.RunBegins):
            self._place, self._label = f"[{event.place}/{event.total}]", event.case.label
            self._show("starting", total=event.planned_s)
        elif isinstance(event, job.Phase):
            self._show(event.name if event.seconds is None else f"{event.name}, {duration(event.seconds)}")
        elif isinstance(event, job.RunProgress):
            self._show(f"accuracy, {event.done:,} of {event.total:,}")
        elif isinstance(event, session.RunEnds) and not self._bars.console.is_terminal:
            ended = cases_of([event.outcome])[0].summary if isinstance(event.outcome, RunRecord) else f"failed: {event.outcome}"
            self._bars.console.print(f"{self._place} {self._label}: {ended}", markup=False, highlight=False, soft_wrap=True)

    def _show(self, part: str, total: float | None = None) -> None:
        # The part changes: a narrow terminal still shows it.
        self._bars.update(self._task, description=f"{self._place} {part}: {self._label}", total=total)
