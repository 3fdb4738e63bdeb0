"""Processor time by consumer (the measured process, the agent, others, the hypervisor), the busiest other process, and memory.

Read from /proc by hand, and not with psutil, because a recorded tree must stand in for the machine, and garbled files must read as None.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.contract.record_conditions import OtherProcess
from edgemeter.agent.machine.machine import Machine, whole_number

# Below this many clock ticks (10 ms each, over all cores) a ratio reflects the ticks rather than the load: the kernel charges a
# whole tick to whatever runs at that moment, so that a share is off by about a tick at each end, here 4%.
FEWEST_TICKS = 50


@dataclass(frozen=True, slots=True)
class ProcessorUsage:
    """Processor time since boot in clock ticks, over all cores.

    `own` is that of the measured process, None when it is gone; `agent` that of the agent and its finished children.
    """

    total: int
    busy: int
    stolen: int
    own: int | None
    agent: int = 0
    taken_ns: int = 0


@dataclass(frozen=True, slots=True)
class ProcessorLoad:
    """Shares of the processor time of all cores, 0..1, over a window; the names are those of a record's condition."""

    other_load_ratio: float | None
    steal_ratio: float
    agent_load_ratio: float = 0.0
    load_window_ms: float = 0.0


def read_usage(machine: Machine, pid: int | None = None, agent_pid: int | None = None) -> ProcessorUsage | None:
    """Return the usage up to now, with that of the process `pid` and of the agent, all their threads; None without a /proc/stat."""
    fields = (machine.text("proc/stat") or "").partition("\n")[0].split()
    counts = [count for field in fields[1:9] if (count := whole_number(field)) is not None]
    if fields[:1] != ["cpu"] or len(counts) < 5:
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal: guest time is part of user. Source: proc_stat(5).
    stolen = counts[7] if len(counts) > 7 else 0
    waiting = counts[3] + counts[4]
    total = sum(counts)
    own_ticks = 0 if pid is None else ticks_of(machine, pid)
    agent = 0 if agent_pid is None else ticks_of(machine, agent_pid, with_children=True) or 0
    return ProcessorUsage(total, total - waiting - stolen, stolen, own_ticks, agent, time.monotonic_ns())


def load_between(first: ProcessorUsage | None, second: ProcessorUsage | None) -> ProcessorLoad | None:
    """Return the load between two moments; None when they are too close, or one is not known."""
    if first is None or second is None or second.total - first.total < FEWEST_TICKS:
        return None
    total = second.total - first.total
    steal = _ratio(second.stolen - first.stolen, total)
    agent = _ratio(second.agent - first.agent, total)
    window_ms = (second.taken_ns - first.taken_ns) / 1e6
    if first.own is None or second.own is None:
        return ProcessorLoad(None, steal, agent, window_ms)
    other_ticks = second.busy - first.busy - (second.own - first.own) - (second.agent - first.agent)
    return ProcessorLoad(_ratio(other_ticks, total), steal, agent, window_ms)


def load_up_to(marks: Sequence[ProcessorUsage], last: ProcessorUsage | None) -> ProcessorLoad | None:
    """Return the load from the latest of the `marks` (in the order of time) that is far enough from `last`."""
    return next((usage for mark in reversed(marks) if (usage := load_between(mark, last))), None)


def ticks_of(machine: Machine, pid: int, *, with_children: bool = False) -> int | None:
    """Return the clock ticks that a process has used, optionally with those of its finished children; None when it is gone."""
    _, fields = _stat(machine, f"proc/{pid}/stat")
    ticks = [whole_number(field) for field in fields[11 : 15 if with_children else 13]]
    known_ticks = [tick for tick in ticks if tick is not None]
    return sum(known_ticks) if len(known_ticks) == (4 if with_children else 2) else None


def core_of(machine: Machine, pid: int) -> int | None:
    """Return the core that the process ran on last."""
    _, fields = _stat(machine, f"proc/{pid}/stat")
    return whole_number(fields[36]) if len(fields) > 36 else None


def _stat(machine: Machine, path: str | Path) -> tuple[str, list[str]]:
    """Return the name of a process, and the fields after it; the name is in brackets and may hold spaces and brackets itself."""
    head, _, fields_text = (machine.text(path) or "").rpartition(")")
    return head.partition("(")[2], fields_text.split()


def _ratio(part: int, total: int) -> float:
    return min(1.0, max(0.0, part / total))


@dataclass(frozen=True, slots=True)
class MemInfo:
    """Memory of the whole machine in MB (1e6 bytes); None where /proc/meminfo lacks it."""

    total_mb: float | None
    available_mb: float | None
    swap_total_mb: float | None
    swap_used_mb: float | None


def read_memory(machine: Machine) -> MemInfo:
    """Return the machine's memory as it is now."""
    fields: dict[str, float] = {}
    for line in (machine.text("proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        kibibytes = whole_number(value.removesuffix("kB").strip())
        if kibibytes is not None:
            fields[name] = kibibytes * 1024 / 1e6
    total, free = fields.get("SwapTotal"), fields.get("SwapFree")
    used = None if total is None or free is None else max(0.0, total - free)
    return MemInfo(fields.get("MemTotal"), fields.get("MemAvailable"), total, used)


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Clock ticks up to a moment: of all cores, and of each process by its pid and start (pids are used again)."""

    total: int
    ticks: dict[tuple[int, int], int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


def read_processes(machine: Machine) -> ProcessTable:
    """Return the processes that run now. About 2 ms for a hundred of them, so not while queries are timed."""
    usage = read_usage(machine)
    table = ProcessTable(usage.total if usage else 0)
    for path in machine.find("proc/[0-9]*/stat"):
        name, fields = _stat(machine, path)
        numbers = [whole_number(fields[index]) for index in (11, 12, 19)] if len(fields) > 19 else [None]
        known_numbers = [number for number in numbers if number is not None]
        if len(known_numbers) == 3:
            pid = int(path.parent.name)
            table.ticks[pid, known_numbers[2]] = known_numbers[0] + known_numbers[1]
            table.names[pid] = "".join(char for char in name if char.isprintable())
    return table


def busiest(first: ProcessTable, second: ProcessTable, leave_out: Collection[int]) -> OtherProcess | None:
    """Return the process name that used most time between two tables, None where none used any; `leave_out` are our own pids."""
    total = second.total - first.total
    spent = {key: ticks - first.ticks.get(key, 0) for key, ticks in second.ticks.items() if key[0] not in leave_out}
    by_name: dict[str, dict[int, int]] = {}
    for (pid, _), ticks in spent.items():
        if ticks > 0:
            by_name.setdefault(second.names[pid], {})[pid] = ticks
    if total <= 0 or not by_name:
        return None
    name, ticks_of = max(by_name.items(), key=lambda item: sum(item[1].values()))
    share = min(1.0, sum(ticks_of.values()) / total)
    return OtherProcess(name=name, pid=max(ticks_of, key=lambda pid: ticks_of[pid]), load_ratio=share, count=len(ticks_of))
