"""Who used the processor between two moments: the measured process, others, and the hypervisor."""

from dataclasses import dataclass

from edgemeter.agent.machine.machine import Machine, whole_number

# Below this many clock ticks (10 ms each, over all cores) a ratio says more about the ticks than about the load.
FEWEST_TICKS = 20


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time since boot in clock ticks, over all cores; `own` is that of one process, None when it is not there."""

    total: int
    busy: int
    stolen: int
    own: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of the processor time of all cores, 0..1."""

    other_ratio: float | None
    steal_ratio: float


def read(machine: Machine, pid: int | None = None) -> Usage | None:
    """Return the usage up to now, with that of the process `pid` and all its threads; None without a /proc/stat."""
    fields = (machine.text("proc/stat") or "").partition("\n")[0].split()
    counts = [count for field in fields[1:9] if (count := whole_number(field)) is not None]
    if fields[:1] != ["cpu"] or len(counts) < 5:
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal: guest time is part of user. Source: proc_stat(5).
    stolen = counts[7] if len(counts) > 7 else 0
    waiting = counts[3] + counts[4]
    total = sum(counts)
    return Usage(total, total - waiting - stolen, stolen, 0 if pid is None else _ticks_of(machine, pid))


def between(first: Usage | None, second: Usage | None) -> Load | None:
    """Return the load between two moments; None when they are too close, or one is not known."""
    if first is None or second is None or second.total - first.total < FEWEST_TICKS:
        return None
    total = second.total - first.total
    steal = _ratio(second.stolen - first.stolen, total)
    if first.own is None or second.own is None:
        return Load(None, steal)
    return Load(_ratio(second.busy - first.busy - (second.own - first.own), total), steal)


def _ticks_of(machine: Machine, pid: int) -> int | None:
    # The name, in brackets, may hold spaces and brackets itself.
    fields = (machine.text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    ticks = [whole_number(field) for field in fields[11:13]]
    return ticks[0] + ticks[1] if len(ticks) == 2 and ticks[0] is not None and ticks[1] is not None else None


def _ratio(part: int, whole: int) -> float:
    return min(1.0, max(0.0, part / whole))
