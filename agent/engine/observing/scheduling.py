"""How the kernel scheduled this process: time that its threads ran, and time that they waited for a core.

Clock ticks of 10 ms cannot tell whether 64 queries of 0.2 ms were disturbed; these counters are in nanoseconds.
Source: Linux Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat; getrusage(2), ru_nivcsw.
"""

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.records import Scheduling


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of this process up to a moment, all living threads together; None where the kernel keeps none."""

    ran_ns: int | None
    waited_ns: int | None
    preemptions: int
    taken_ns: int


def read(proc: str = "/proc") -> Counters:
    """Return the counters up to now. Takes a few reads of small files: never call it between two clock reads."""
    told = [counts for path in Path(proc).glob("self/task/*/schedstat") if (counts := _counts(path))]
    preemptions, taken_ns = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, time.monotonic_ns()
    if not told:
        return Counters(None, None, preemptions, taken_ns)
    return Counters(sum(ran for ran, _ in told), sum(waited for _, waited in told), preemptions, taken_ns)


def between(first: Counters, second: Counters) -> Scheduling:
    """Return what happened between two reads: around the timed part, with what is prepared for it."""
    return Scheduling(
        window_ms=(second.taken_ns - first.taken_ns) / 1e6,
        ran_ms=_elapsed_ms(first.ran_ns, second.ran_ns),
        waited_ms=_elapsed_ms(first.waited_ns, second.waited_ns),
        preemptions=max(0, second.preemptions - first.preemptions),
        cores=usable_cores(),
    )


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counts(path: Path) -> tuple[int, int] | None:
    try:
        fields = path.read_text().split()
        return int(fields[0]), int(fields[1])
    except (OSError, ValueError, IndexError):
        # The thread has ended since the folder was listed, or the kernel keeps no such counters.
        return None


def _elapsed_ms(first_ns: int | None, second_ns: int | None) -> float | None:
    # A thread that ended in between takes its counts with it.
    return None if first_ns is None or second_ns is None else max(0, second_ns - first_ns) / 1e6
