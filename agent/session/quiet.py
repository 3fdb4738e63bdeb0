"""Waits before a run.

They are for other processes to leave the cores, and for a board to settle after a change of its
power mode.
"""

import os
from collections.abc import Callable

from edgemeter.agent.engine import job
from edgemeter.agent.machine import temperatures
from edgemeter.agent.machine.load import LOAD_RATIO, load_between, read_usage
from edgemeter.agent.machine.machine import Machine

LONGEST_S = 20.0
WINDOW_S = 0.5
# On one core, the first window has too few clock ticks.
MOST_WINDOWS_UNSEEN = 3
# A board has settled when its hottest sensor moves by at most `STEADY_C` in `READINGS` readings,
# one a second.
STEADY_C, READINGS = 1.0, 5
SETTLE_LIMIT_S = 60.0


class QuietMoment:
    """Waits before each run of a session.

    After a wait without success the next one is half as long.
    """

    def __init__(
        self, machine: Machine, clock: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        self._machine, self._clock, self._sleep = machine, clock, sleep
        self._patience_s = LONGEST_S

    def wait(self, on_event: Callable[[job.Phase], object]) -> None:
        """Return when other processes use at most 10% of the cores, or at the limit.

        That is over half a second. A wait is an event.
        """
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
        """Return whether the machine was quiet over a window, or does not show its load."""
        first = read_usage(self._machine, None, os.getpid())
        for _ in range(MOST_WINDOWS_UNSEEN):
            self._sleep(WINDOW_S)
            load = load_between(first, read_usage(self._machine, None, os.getpid()))
            if load is not None:
                return load.other_load_ratio is None or load.other_load_ratio <= LOAD_RATIO
        return True


def settle(
    machine: Machine,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
    on_event: Callable[[job.Phase], object],
) -> None:
    """Return when the hottest temperature is constant, or after a minute; the wait is an event."""
    on_event(job.Phase(name="settle", seconds=SETTLE_LIMIT_S))
    begun_s, hottest_c = clock(), list[float]()
    while clock() - begun_s < SETTLE_LIMIT_S:
        hottest_c = [
            *hottest_c[1 - READINGS :],
            max(temperatures.read(machine).values(), default=0.0),
        ]
        if len(hottest_c) == READINGS and max(hottest_c) - min(hottest_c) <= STEADY_C:
            return
        sleep(1.0)
