"""The progress of a session on standard error.

A terminal shows one line, which is removed at the end; elsewhere each finished run has a line.
"""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.live_lines import LiveLines
from edgemeter.agent.base.number_text import duration
from edgemeter.agent.base.progress import bar
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine import job
from edgemeter.agent.measuring.measured_case import cases_of
from edgemeter.agent.session import session

DRAWN_S = 1.0  # Rarely: drawing a line takes time from the process that is timed.
BAR_SHARE = 6  # The bar has this part of the line.
CHECKING = "checking models, data and sensors ..."  # Until the first run begins.


class SessionProgress:
    """Shows the events of a session.

    They are the run, its current part, and the time of all runs by their settings.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(sys.stderr)
        self._live = LiveLines(self._console) if self._console.is_terminal else None
        self._clock, self._planned_s = clock, 0.0
        self._begun_s: float | None = None
        self._place = self._label = self._part = ""
        self._blocks, self._ended = ExitStack(), threading.Event()
        self._drawing = threading.Thread(target=self._draw_until_ended, daemon=True)

    def __enter__(self) -> "SessionProgress":  # noqa: PYI034 - Self needs Python 3.11
        if self._live is not None:
            self._blocks.enter_context(self._live)
            self._live.draw([CHECKING])
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._drawing.ident is not None:
            self._drawing.join()
        self._blocks.close()

    def __call__(self, event: session.SessionEvent) -> None:
        self._begin()
        if isinstance(event, session.RunBegins):
            self._place, self._label = f"[{event.place}/{event.total}]", event.case.label
            self._show("starting", total=event.planned_s)
        elif isinstance(event, job.Phase):
            self._show(
                event.name if event.seconds is None else f"{event.name}, {duration(event.seconds)}"
            )
        elif isinstance(event, job.RunProgress):
            # Many: the line is drawn every second.
            self._part = f"accuracy, {event.done:,} of {event.total:,}"
        elif isinstance(event, session.RunsEnd):
            self.__exit__()
        elif isinstance(event, session.RunEnds) and self._live is None:
            ended = (
                cases_of([event.outcome])[0].summary
                if isinstance(event.outcome, RunRecord)
                else f"failed: {event.outcome}"
            )
            self._console.print(f"{self._place} {self._label}: {ended}")

    def _begin(self) -> None:
        """Count the time from the first event, and draw it from then on."""
        if self._begun_s is None:
            self._begun_s = self._clock()
            if self._live is not None:
                self._drawing.start()

    def _show(self, part: str, total: float | None = None) -> None:
        self._part, self._planned_s = part, self._planned_s if total is None else total
        self._draw()

    def _draw(self) -> None:
        if self._live is None or self._begun_s is None:
            return
        passed_s, width = self._clock() - self._begun_s, self._console.width
        planned = f" of about {duration(self._planned_s)}" if self._planned_s else ""
        times = f"{duration(passed_s)}{planned}"
        bar_text = bar(
            passed_s / self._planned_s if self._planned_s else 0.0, max(1, width // BAR_SHARE)
        )
        room = max(0, width - len(bar_text) - len(times) - 2)
        # The part changes: a narrow terminal still shows it.
        text = f"{self._place} {self._part}: {self._label}"
        self._live.draw([f"{text[:room]:{room}} {bar_text} {times}"])

    def _draw_until_ended(self) -> None:
        while not self._ended.wait(DRAWN_S):
            self._draw()
