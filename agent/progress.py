"""Progress of a session on a terminal: which run, which part of it, how long still."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from edgemeter.agent import records
from edgemeter.agent.engine import job, session
from edgemeter.agent.errors import EdgemeterError


class Lines:
    """One line for every run that ends, on standard error."""

    def __init__(self) -> None:
        self._place = ""
        self._console = Console(stderr=True)

    def __call__(self, event: session.RunBegins | job.Event | session.RunEnds) -> None:
        """Take note of one event of a session."""
        if isinstance(event, session.RunBegins):
            self._place = f"[{event.place}/{event.total}] {event.case.label}, repeat {event.repeat + 1}"
        elif isinstance(event, session.RunEnds):
            self._console.print(f"{self._place}: {_came_of(event.outcome)}", markup=False, highlight=False, soft_wrap=True)


class Bars(Lines):
    """A bar for the runs and one for the part that the present run is in, above them a line for every run that has ended."""

    def __init__(self) -> None:
        super().__init__()
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
        self._bars = Progress(*columns, console=self._console, transient=True)
        self._runs = self._bars.add_task("runs", total=None, note="")
        self._part: TaskID | None = None

    def __enter__(self) -> "Bars":  # noqa: PYI034 - typing.Self came with Python 3.11
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def __call__(self, event: session.RunBegins | job.Event | session.RunEnds) -> None:
        """Move the bars by one event of a session."""
        if isinstance(event, job.Progress):
            if self._part is not None:
                self._bars.update(self._part, total=event.total, completed=event.done, note=f"{event.done}/{event.total} images")
            return
        if self._part is not None:
            self._bars.remove_task(self._part)
            self._part = None
        super().__call__(event)
        if isinstance(event, session.RunBegins):
            self._bars.update(self._runs, total=event.total, completed=event.place - 1, description=self._place)
        elif isinstance(event, session.RunEnds):
            self._bars.advance(self._runs)
        elif isinstance(event, job.Phase):
            self._part = self._bars.add_task(f"  {event.name}", total=event.seconds, note="")


def on_terminal() -> bool:
    """Return whether somebody watches standard error."""
    return sys.stderr.isatty()


def _came_of(outcome: records.RunRecord | EdgemeterError) -> str:
    if isinstance(outcome, EdgemeterError):
        return f"failed: {outcome}"
    latency = outcome.latency
    p50 = f"p50 {latency.p50_ms:.4g} ms" if latency.p50_ms is not None else f"{latency.count} queries"
    accuracy = f", {outcome.accuracy.metric} {outcome.accuracy.value:.4f}" if outcome.accuracy else ""
    verdict = outcome.verdict.state + (f" ({'; '.join(outcome.verdict.reasons)})" if outcome.verdict.reasons else "")
    return f"{p50}{accuracy}, {verdict}"
