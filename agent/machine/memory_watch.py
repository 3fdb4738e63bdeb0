"""The resident memory of a run's process while queries are timed, read outside it, because a read inside could disturb a query."""

import os
import threading
import time

import numpy as np

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
        """Stop reading."""
        self._ended.set()
        self._thread.join()

    def thirds_mb(self, begin_ns: int, end_ns: int) -> tuple[float, ...]:
        """Return the memory at 0, 1/3, 2/3 and 3/3 of a time, monotonic ns; empty with too few readings."""
        if sum(begin_ns <= taken_ns <= end_ns for taken_ns, _ in self._readings) < _FEWEST:
            return ()
        taken_ns, resident_mb = zip(*self._readings, strict=True)
        return tuple(float(value) for value in np.interp(np.linspace(begin_ns, end_ns, 4), taken_ns, resident_mb))

    def _watch(self) -> None:
        page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6
        while not self._ended.wait(PERIOD_S):
            if fields := (self._machine.text(f"proc/{self._pid}/statm") or "").split():
                self._readings.append((time.monotonic_ns(), int(fields[1]) * page_mb))
