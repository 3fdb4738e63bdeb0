"""Which process kept the machine busy, where /proc shows the processes of others. Only the kernel's short name is taken, no arguments."""

from collections.abc import Collection
from dataclasses import dataclass, field

from edgemeter.agent.machine import load
from edgemeter.agent.machine.machine import Machine, whole_number
from edgemeter.agent.records import OtherProcess


@dataclass(frozen=True, slots=True)
class Table:
    """Clock ticks up to a moment: of all cores, and of each process by its pid and start (pids are used again)."""

    total: int
    ticks: dict[tuple[int, int], int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


def read(machine: Machine) -> Table:
    """Return the processes that are there now. One small file each: about 2 ms for a hundred, so not while queries are timed."""
    usage = load.read(machine)
    found = Table(usage.total if usage else 0)
    for path in machine.find("proc/[0-9]*/stat"):
        head, _, rest = (machine.text(path) or "").rpartition(")")
        fields = rest.split()
        numbers = [whole_number(fields[place]) for place in (11, 12, 19)] if len(fields) > 19 else [None]
        known = [number for number in numbers if number is not None]
        if len(known) == 3:
            pid = int(path.parent.name)
            found.ticks[pid, known[2]] = known[0] + known[1]
            found.names[pid] = "".join(char for char in head.partition("(")[2] if char.isprintable())
    return found


def busiest(first: Table, second: Table, leave_out: Collection[int]) -> OtherProcess | None:
    """Return the name whose processes used most time between two tables, None where none used any; `leave_out` are pids of our own."""
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
