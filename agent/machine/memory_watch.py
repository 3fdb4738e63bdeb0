"""The resident memory of a run's process while queries are timed.

It is read outside the process, because a read inside could disturb a query.
"""

import os
import threading
import time
from bisect import bisect_right
from operator import itemgetter

from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

# A timed part of a second has a few readings in each third. A reading takes 20 us on another core.
PERIOD_S = 0.1
_FEWEST = 6


class MemoryWatch:
    """Reads the memory of process `pid` in a thread, until `stop`."""

    def __init__(self, pid: int, machine: Machine = THIS_MACHINE) -> None:
        self._pid, self._machine = pid, machine
        self._readings: list[tuple[int, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def thirds_mb(self, begin_ns: int, end_ns: int) -> tuple[float, ...]:
        """Return the memory at 0, 1/3, 2/3 and 3/3 of a time, monotonic ns.

        Empty with too few readings.
        """
        if sum(begin_ns <= taken_ns <= end_ns for taken_ns, _ in self._readings) < _FEWEST:
            return ()
        return tuple(
            self._resident_mb(begin_ns + third * (end_ns - begin_ns) / 3) for third in range(4)
        )

    def _resident_mb(self, at_ns: float) -> float:
        """Return the memory at a moment, in proportion between the readings around it."""
        later = bisect_right(self._readings, at_ns, key=itemgetter(0))
        if later in {0, len(self._readings)}:
            return self._readings[max(later - 1, 0)][1]
        (before_ns, before_mb), (after_ns, after_mb) = self._readings[later - 1 : later + 1]
        return (after_mb - before_mb) / (after_ns - before_ns) * (at_ns - before_ns) + before_mb

    def _watch(self) -> None:
        page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6
        while not self._ended.wait(PERIOD_S):
            if fields := (self._machine.text(f"proc/{self._pid}/statm") or "").split():
                self._readings.append((time.monotonic_ns(), int(fields[1]) * page_mb))
