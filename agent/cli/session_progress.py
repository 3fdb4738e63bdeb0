"""The progress of a session on standard error: one line that changes on a terminal, elsewhere one line for each case that is finished."""

import math
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TextIO

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.evidence import FEWEST
from edgemeter.agent.base.figures import count, duration
from edgemeter.agent.cli.measured_case import cases_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import job
from edgemeter.agent.session import session
from edgemeter.agent.session.quiet import WAIT

TICK_S = 1.0  # Rarely: drawing a line takes time from the process that is timed.
# A process with its imports, and what is read before and after it: less on a fast machine, more on a small board.
START_S = 1.0
SCORING = "accuracy"
NEARLY = 1.3  # So near are two estimates that the larger one is not worth a word.


def planned_s(case: Case) -> float:
    """Return how long a run takes by its settings, without what depends on the model, the data and the sensor."""
    return START_S + case.warm_up_seconds + case.seconds


def longest_s(case: Case) -> float:
    """Return how long all runs of a case take at most, as far as its settings tell."""
    return planned_s(case) * case.repeats if case.repeats else max(case.time_s, FEWEST * planned_s(case))


class TimeLeft:
    """Estimates how long a session still takes by the last run of each case, without the waits for a quiet moment."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._run: session.RunBegins | None = None
        self._phase = job.Phase(name="start")
        self._run_begun_s = self._phase_begun_s = clock()
        self._images: job.RunProgress | None = None
        self._spent_s: dict[str, float] = defaultdict(float)
        # What the last run of a case took, without the wait before it, and without scoring, which only the first has.
        self._run_s: dict[int, float] = {}
        self._has_waited = False

    def note(self, event: "session.RunBegins | job.Event | session.RunEnds") -> None:
        """Take the next event."""
        now_s = self._clock()
        if isinstance(event, job.RunProgress):
            self._images = event
            return
        self._spent_s[self._phase.name] += now_s - self._phase_begun_s
        self._phase_begun_s, self._images = now_s, None
        self._phase = event if isinstance(event, job.Phase) else job.Phase(name="start")
        self._has_waited |= self._phase.name == WAIT
        if isinstance(event, session.RunBegins):
            self._run, self._run_begun_s = event, now_s
            self._spent_s.clear()
        elif isinstance(event, session.RunEnds) and self._run is not None:
            scored_s = self._spent_s[SCORING] if self._run.repeat == 0 else 0.0
            self._run_s[id(self._run.case)] = sum(self._spent_s.values()) - scored_s - self._spent_s[WAIT]

    def phase_s(self) -> float | None:
        """Return how long the present part of the run still takes; None where nobody knows."""
        gone_s = self._clock() - self._phase_begun_s
        if self._images is not None and 0 < self._images.done < self._images.total:
            return gone_s / self._images.done * (self._images.total - self._images.done)
        return None if self._phase.seconds is None else max(0.0, self._phase.seconds - gone_s)

    def session_s(self) -> tuple[float, float] | None:
        """Return how long all runs still take, as far as they show, and at most; None until a run of each case has ended."""
        if self._run is None or any(id(of_case.case) not in self._run_s for of_case in self._run.coming if of_case.at_most):
            return None
        if (length_s := self._run_s.get(id(self._run.case))) is None:
            return None
        is_waiting = self._phase.name == WAIT
        waited_s = self._spent_s[WAIT] + is_waiting * (self._clock() - self._phase_begun_s)
        run_s = self._clock() - self._run_begun_s - waited_s
        present_s = max(0.0, length_s - run_s, 0.0 if is_waiting else self.phase_s() or 0.0)
        expected_s = math.fsum(of_case.expected * self._run_s.get(id(of_case.case), 0.0) for of_case in self._run.coming)
        most_s = math.fsum(of_case.at_most * self._run_s.get(id(of_case.case), 0.0) for of_case in self._run.coming)
        return present_s + expected_s, present_s + most_s

    def words(self) -> str:
        """Return the estimate in words; before there is one, the longest time of a case."""
        if self._run is None:
            return ""
        left_s = self.session_s()
        if left_s is None:
            case = self._run.case
            parts = {"the queries": case.repeats, "the accuracy": case.annotations}
            left_out = " and ".join(part for part, is_left_out in parts.items() if is_left_out)
            reach = "up to" if case.repeats is None else "about"
            return f"{reach} {duration(longest_s(case))} a case{f', plus {left_out}' if left_out else ''}"
        expected, longest = (duration(max(1.0, seconds)) for seconds in left_s)
        further = "" if left_s[1] <= left_s[0] * NEARLY else f", up to {longest} if the runs differ"
        return f"about {expected} left{further}{', plus waits' if self._has_waited else ''}"


class SessionProgress:
    """Shows the events of a session on `stream`."""

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
        self._begun_s = clock()
        self._phase = ""
        self._time_left = TimeLeft(clock)
        self._outcomes: dict[int, list[RunRecord | EdgemeterError]] = defaultdict(list)
        self._lengths_s: dict[int, float] = defaultdict(float)
        self._labels: dict[int, str] = {}

    def __enter__(self) -> "SessionProgress":  # noqa: PYI034 - Self needs Python 3.11
        if self._is_terminal:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._is_terminal:
            self._ticker.join()
            self._write("\r\x1b[K")
        self._finish({})

    def __call__(self, event: "session.RunBegins | job.Event | session.RunEnds") -> None:
        """Show one event."""
        with self._lock:
            self._time_left.note(event)
            if isinstance(event, session.RunBegins):
                self._begun, self._begun_s, self._phase = event, self._clock(), "starting"
                self._labels[id(event.case)] = event.case.label
                self._finish({id(of_case.case) for of_case in event.coming if of_case.at_most} | {id(event.case)})
            elif isinstance(event, session.RunEnds) and self._begun is not None:
                self._outcomes[id(self._begun.case)].append(event.outcome)
                self._lengths_s[id(self._begun.case)] += self._clock() - self._begun_s
            elif isinstance(event, job.Phase):
                self._phase = event.name
            if self._is_terminal:
                self._draw()

    def _finish(self, going_on: "set[int] | dict[int, str]") -> None:
        """Print a line for each case that has no more runs, where there is no terminal."""
        for case in [case for case in self._outcomes if case not in going_on]:
            outcomes = self._outcomes.pop(case)
            if not self._is_terminal:
                ended = f"{count(len(outcomes), 'run')}, {duration(self._lengths_s[case])}"
                self._write(f"{self._labels[case]}: {ended}: {_summary(outcomes)}\n")

    def _draw(self) -> None:
        if self._begun is None:
            return
        left_s = self._time_left.phase_s()
        phase = f"{self._phase}, {duration(left_s)} left" if left_s else self._phase
        begin, tail = f"[{self._begun.place}/{self._begun.total}] {self._begun.case.label}", f": {phase}; {self._time_left.words()}"
        # The last column stays free: some terminals begin a new line there.
        room = self._width() - 1
        self._write(f"\r\x1b[K{(begin[: max(0, room - len(tail))] + tail)[:room]}")

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
                self._draw()


def _summary(outcomes: "list[RunRecord | EdgemeterError]") -> str:
    """Return what the runs of a case came to, and the last error, each where there is one."""
    records = [outcome for outcome in outcomes if isinstance(outcome, RunRecord)]
    errors = [outcome for outcome in outcomes if isinstance(outcome, EdgemeterError)]
    return "; ".join([*(case.summary for case in cases_of(records)), *(f"failed: {error}" for error in errors[-1:])])
