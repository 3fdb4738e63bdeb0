"""The kernel's accounts of this process.

They are the cores that it may use, its resident memory, and the scheduling of its threads.

Clock ticks of 10 ms cannot show whether 64 queries of 0.2 ms were disturbed; the scheduler's
counters are in nanoseconds. psutil has neither these nor the peak memory, and would add its own
memory to the measurement.
Source: Linux Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat; getrusage(2), ru_nivcsw.
"""

import os
import resource
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine.job import Scheduling


def check_affinity(cpus: Collection[int]) -> None:
    """Check that this process may use all of `cpus`.

    Raises:
        ConfigError: some are absent, or not available to this process (because of a container, or a
            parent's affinity).
    """
    allowed = os.sched_getaffinity(0)
    if absent := set(cpus) - allowed:
        raise ConfigError(
            f"cannot keep a run to cpus {_listed(cpus)}: {_listed(absent)} not available here; "
            f"choose from {_listed(allowed)}"
        )


def _listed(cpus: Collection[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))


def resident_mb(process: int | None = None) -> float:
    """Return the memory of this process, or another, that is resident now, MB (1e6 bytes)."""
    return _status_mb("VmRSS", process)


def peak_mb(process: int | None = None) -> float:
    """Return the highest resident memory of this process, or another, so far, MB (1e6 bytes)."""
    return _status_mb("VmHWM", process)


def _status_mb(field: str, process: int | None) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{process or 'self'}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024 / 1e6
    # Without /proc only the kernel's high-water mark is left, which Linux counts in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


@dataclass(frozen=True, slots=True)
class SchedulingCounters:
    """Counters of this process up to a moment, for all living threads together.

    None if the kernel keeps none.

    `cpu_ns` includes threads that have ended.
    """

    ran_ns: int | None
    waited_ns: int | None
    taken_ns: int
    cpu_ns: int = 0


def read_scheduling(proc: str = "/proc") -> SchedulingCounters:
    """Return the counters up to now.

    Takes a few reads of small files: never call it between two clock reads.
    """
    thread_counts = [
        counts for path in Path(proc).glob("self/task/*/schedstat") if (counts := _counts(path))
    ]
    taken_ns = time.monotonic_ns()
    if not thread_counts:
        return SchedulingCounters(None, None, taken_ns)
    ran_ns, waited_ns = (sum(counts) for counts in zip(*thread_counts, strict=True))
    return SchedulingCounters(ran_ns, waited_ns, taken_ns, time.process_time_ns())


def scheduling_between(first: SchedulingCounters, second: SchedulingCounters) -> Scheduling:
    """Return the scheduling between two reads, around the timed part."""
    ran_ms = _elapsed_ms(first.ran_ns, second.ran_ns)
    return Scheduling(
        window_ms=(second.taken_ns - first.taken_ns) / 1e6,
        ran_ms=None if ran_ms is None else max(ran_ms, (second.cpu_ns - first.cpu_ns) / 1e6),
        waited_ms=_elapsed_ms(first.waited_ns, second.waited_ns),
        cores=len(os.sched_getaffinity(0)),
    )


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
