"""The progress of a session on standard error: one line that changes on a terminal, one line a phase in a file or a pipe."""

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TextIO

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.figures import count, duration, share
from edgemeter.agent.cli.time_left import LIMITS, START, TimeLeft
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine import job
from edgemeter.agent.session import session

TICK_S = 1.0  # Rarely: drawing a line takes time from the process that is timed.
# In a file, a long pass over images is worth a line every so often.
LINE_EVERY_S = 60.0
NARROWEST_LABEL = 8


class SessionProgress:
    """Shows the events of a session on `stream`; on a terminal between `start` and `stop`."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic, width: Callable[[], int] | None = None
    ) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._clock = clock
        self._width = width or self._terminal_width
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="edgemeter-progress", daemon=True)
        self._begun: session.RunBegins | None = None
        self._phase_begun_s = self._line_s = clock()
        self._time_left = TimeLeft(clock)
        self._ended = 0
        self._spent_s: dict[str, float] = defaultdict(float)
        self._phase: job.Phase | None = None
        self._images: job.RunProgress | None = None

    def __enter__(self) -> "SessionProgress":  # noqa: PYI034 - Self needs Python 3.11
        if self._is_terminal:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._is_terminal:
            self._ticker.join()
            self._write("\r\x1b[K")
        self._spend(self._clock())
        if self._ended and self._begun is not None:
            self._write(f"{self._ended} of {count(self._begun.total, 'run')} {time_budget(self._spent_s)}\n")

    def __call__(self, event: session.RunBegins | job.Event | session.RunEnds) -> None:
        """Show one event."""
        with self._lock:
            self._note(event)
            if isinstance(event, session.RunEnds):
                self._print(f"{self._place()}: {_summary(event.outcome)}")
            elif self._is_terminal:
                self._draw()
            # An idle phase of 0 s is the end of the timed part alone.
            elif (isinstance(event, job.Phase) and (event.seconds != 0 or event.name != "idle after")) or (
                isinstance(event, job.RunProgress) and 0 < event.done < event.total and self._clock() - self._line_s >= LINE_EVERY_S
            ):
                self._line_s = self._clock()
                self._print(", ".join(filter(None, (f"{self._place()}: {self._doing()}", self._all_left()))))

    def _note(self, event: session.RunBegins | job.Event | session.RunEnds) -> None:
        now_s = self._clock()
        self._time_left.note(event)
        if isinstance(event, job.RunProgress):
            self._images = event
            return
        self._spend(now_s)
        if isinstance(event, session.RunBegins):
            self._begun = event
        self._ended += isinstance(event, session.RunEnds)
        self._phase = event if isinstance(event, job.Phase) else None
        self._phase_begun_s, self._images = now_s, None

    def _spend(self, now_s: float) -> None:
        """Count the time since the phase began as the phase's; what is none is a process that starts, imports and is evaluated."""
        self._spent_s[self._phase.name if self._phase else START] += now_s - self._phase_begun_s
        self._phase_begun_s = now_s

    def _place(self) -> str:
        if self._begun is None:
            return "scoring"
        company = f" beside {', '.join(self._begun.beside)}" if self._begun.beside else ""
        return f"[{self._begun.place}/{self._begun.total}] {self._begun.case.label}{company}, repeat {self._begun.repeat + 1}"

    def _doing(self) -> str:
        if self._phase is None:
            return "starting"
        name, gone_s = self._phase.name, self._clock() - self._phase_begun_s
        if name == "accuracy" and self._begun is not None and self._begun.case.scored_on is None:
            return "checking outputs"
        left_s = self._time_left.part_s()
        if self._images is not None and self._images.done and left_s is not None:
            return f"{name} {self._images.done}/{self._images.total} images, {duration(left_s)} left"
        limit_s = self._phase.seconds
        if name in LIMITS and limit_s is not None and gone_s < limit_s:
            return f"{name}, at most {duration(limit_s - gone_s)} left" if limit_s >= 1 else name
        if left_s is not None and left_s >= 1:
            return f"{name}, {duration(left_s)} left"
        return name if gone_s < TICK_S else f"{name} for {duration(gone_s)}"

    def _all_left(self) -> str:
        """Return the time that all runs still take, as far as it is known."""
        if (remaining := self._time_left.session_s()) is None:
            return ""
        return f"all: {'about' if remaining.is_all else 'more than'} {duration(remaining.seconds)} left"

    def _draw(self) -> None:
        # The last column stays free: some terminals begin a new line there.
        self._write(f"\r\x1b[K{fitting(self._place(), self._doing(), self._all_left(), self._width() - 1)}")

    def _print(self, line: str) -> None:
        self._write(f"\r\x1b[K{line}\n" if self._is_terminal else f"{line}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _terminal_width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_S):
            with self._lock:
                if self._begun is not None or self._phase is not None:
                    self._draw()


def fitting(label: str, doing: str, all_left: str, width: int) -> str:
    """Return one line of at most `width` characters: the label gives way first, then the time of all, then the label."""
    for tail in (", ".join(filter(None, (doing, all_left))), doing):
        room = width - len(tail) - len(": ")
        if len(label) <= room:
            return f"{label}: {tail}"
        if room >= label.find("]") + NARROWEST_LABEL:
            return f"{label[: room - 2]}..: {tail}"
    return doing[: max(0, width)]


def time_budget(spent_s: Mapping[str, float]) -> str:
    """Return what the time of a session went to, most first; what took less than a hundredth of it together at the end."""
    total_s = sum(spent_s.values())
    parts = sorted(((taken_s, name) for name, taken_s in spent_s.items() if taken_s >= total_s / 100), reverse=True)
    rest_s = total_s - sum(taken_s for taken_s, _ in parts)
    texts = [f"{name} {_seconds(taken_s)}" for taken_s, name in [*parts, *([(rest_s, "rest")] if rest_s >= total_s / 100 else [])]]
    return f"took {_seconds(total_s)}: {', '.join(texts)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def _summary(outcome: RunRecord | EdgemeterError) -> str:
    if isinstance(outcome, EdgemeterError):
        return f"failed: {outcome}"
    latency = outcome.latency
    p50 = f"p50 {latency.p50_ms:.4g} ms" if latency.p50_ms is not None else f"{latency.count} queries"
    accuracy = f", {outcome.accuracy.metric} {outcome.accuracy.value:.4f}" if outcome.accuracy else ""
    verdict = outcome.verdict.state + (f" ({', '.join(outcome.verdict.rules)})" if outcome.verdict.reasons else "")
    missed = f", {share(outcome.steady.missed_ratio)} of the frames missed" if outcome.steady else ""
    return f"{p50}{missed}{accuracy}, {verdict}"
