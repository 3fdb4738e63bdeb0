"""Who used the processor between two moments: the measured process, the agent, others, and the hypervisor."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.machine.machine import Machine, whole_number

# Below this many clock ticks (10 ms each, over all cores) a ratio says more about the ticks than about the load: the kernel charges
# a whole tick to whoever runs when it comes, so that a share is off by about a tick at each end, here 4 %.
FEWEST_TICKS = 50


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time since boot in clock ticks, over all cores.

    `own` is that of the measured process, None when it is not there; `agent` that of the agent and the commands it has waited for.
    """

    total: int
    busy: int
    stolen: int
    own: int | None
    agent: int = 0
    taken_ns: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of the processor time of all cores, 0..1, over a window."""

    other_ratio: float | None
    steal_ratio: float
    agent_ratio: float = 0.0
    window_ms: float = 0.0


def read(machine: Machine, pid: int | None = None, agent_pid: int | None = None) -> Usage | None:
    """Return the usage up to now, with that of the process `pid` and of the agent, all their threads; None without a /proc/stat."""
    fields = (machine.text("proc/stat") or "").partition("\n")[0].split()
    counts = [count for field in fields[1:9] if (count := whole_number(field)) is not None]
    if fields[:1] != ["cpu"] or len(counts) < 5:
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal: guest time is part of user. Source: proc_stat(5).
    stolen = counts[7] if len(counts) > 7 else 0
    waiting = counts[3] + counts[4]
    total = sum(counts)
    own = 0 if pid is None else ticks_of(machine, pid)
    agent = 0 if agent_pid is None else ticks_of(machine, agent_pid, with_children=True) or 0
    return Usage(total, total - waiting - stolen, stolen, own, agent, time.monotonic_ns())


def between(first: Usage | None, second: Usage | None) -> Load | None:
    """Return the load between two moments; None when they are too close, or one is not known."""
    if first is None or second is None or second.total - first.total < FEWEST_TICKS:
        return None
    total = second.total - first.total
    steal = _ratio(second.stolen - first.stolen, total)
    agent = _ratio(second.agent - first.agent, total)
    window_ms = (second.taken_ns - first.taken_ns) / 1e6
    if first.own is None or second.own is None:
        return Load(None, steal, agent, window_ms)
    others = second.busy - first.busy - (second.own - first.own) - (second.agent - first.agent)
    return Load(_ratio(others, total), steal, agent, window_ms)


def up_to(marks: Sequence[Usage], last: Usage | None) -> Load | None:
    """Return the load from the latest of the `marks` (in the order of time) that is far enough from `last` to say something."""
    return next((found for mark in reversed(marks) if (found := between(mark, last))), None)


def ticks_of(machine: Machine, pid: int, *, with_children: bool = False) -> int | None:
    """Return the clock ticks that a process has used, with those of the children that it has waited for; None when it is not there."""
    # The name, in brackets, may hold spaces and brackets itself.
    fields = (machine.text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    ticks = [whole_number(field) for field in fields[11 : 15 if with_children else 13]]
    known = [tick for tick in ticks if tick is not None]
    return sum(known) if len(known) == (4 if with_children else 2) else None


def _ratio(part: int, whole: int) -> float:
    return min(1.0, max(0.0, part / whole))
