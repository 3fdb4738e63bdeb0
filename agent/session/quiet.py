"""The wait for a quiet moment before a run: until other processes leave the cores alone, or for so long that it would be in vain."""

import os
from collections.abc import Callable

from edgemeter.agent.engine import job
from edgemeter.agent.machine.load import LOAD_RATIO, load_between, read_usage
from edgemeter.agent.machine.machine import Machine

LONGEST_S = 20.0
WINDOW_S = 0.5
# One core has too few clock ticks in the first window.
MOST_WINDOWS_UNSEEN = 3


class QuietMoment:
    """Waits before each run of a session; after a wait in vain half as long the next time."""

    def __init__(self, machine: Machine, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._machine, self._clock, self._sleep = machine, clock, sleep
        self._patience_s = LONGEST_S

    def wait(self, on_event: Callable[[job.Phase], object]) -> None:
        """Return when other processes used at most a tenth of the cores over half a second, or patience ends; a wait is an event."""
        begun_s = self._clock()
        is_quiet = self._is_quiet()
        if is_quiet:
            return
        on_event(job.Phase(name="quiet moment", seconds=self._patience_s))
        while not is_quiet and self._clock() - begun_s < self._patience_s:
            is_quiet = self._is_quiet()
        self._patience_s = LONGEST_S if is_quiet else self._patience_s / 2
        on_event(job.Phase(name="start"))

    def _is_quiet(self) -> bool:
        """Return whether the machine was quiet over a window; a machine that does not show its load is not waited for."""
        first = read_usage(self._machine, None, os.getpid())
        for _ in range(MOST_WINDOWS_UNSEEN):
            self._sleep(WINDOW_S)
            load = load_between(first, read_usage(self._machine, None, os.getpid()))
            if load is not None:
                return load.other_load_ratio is None or load.other_load_ratio <= LOAD_RATIO
        return True
