"""Waits before a run: until other processes leave the cores alone, and until a board has settled in another power mode."""

import os
from collections.abc import Callable

from edgemeter.agent.engine import job
from edgemeter.agent.machine import temperatures
from edgemeter.agent.machine.load import LOAD_RATIO, load_between, read_usage
from edgemeter.agent.machine.machine import Machine

LONGEST_S = 20.0
WINDOW_S = 0.5
# One core has too few clock ticks in the first window.
MOST_WINDOWS_UNSEEN = 3
# A board has settled when its hottest sensor moves by so little in so many readings, one a second.
STEADY_C, READINGS = 1.0, 5
SETTLE_LIMIT_S = 60.0


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


def settle(machine: Machine, clock: Callable[[], float], sleep: Callable[[float], object], on_event: Callable[[job.Phase], object]) -> None:
    """Return when the hottest sensor stays, or after a minute; the wait is an event."""
    on_event(job.Phase(name="settle", seconds=SETTLE_LIMIT_S))
    begun_s, hottest_c = clock(), list[float]()
    while clock() - begun_s < SETTLE_LIMIT_S:
        hottest_c = [*hottest_c[1 - READINGS :], max(temperatures.read(machine).values(), default=0.0)]
        if len(hottest_c) == READINGS and max(hottest_c) - min(hottest_c) <= STEADY_C:
            return
        sleep(1.0)
