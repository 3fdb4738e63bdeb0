"""Processor time by consumer, the busiest other process, and memory.

The consumers are the measured process, the agent, others and the hypervisor.

/proc is read without psutil, so that a recorded tree can replace the machine, and garbled files
read as None.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.base.number_text import on_one_line
from edgemeter.agent.machine.machine import Machine, whole_number

# The kernel charges a whole clock tick (10 ms) to the process that runs at that moment, so a share
# is off by about a tick at each end: by 4% for this number of ticks over all cores.
FEWEST_TICKS = 50
# One busy core of a four-core board is 25%, a desktop that redraws a few per cent.
LOAD_RATIO = 0.10
# Limits of the load in a watched block beyond that while idle: as a share of all cores, as a share
# of the block's load, and in ticks.
EXCESS_RATIO = 0.02
EXCESS_OF_BLOCK_RATIO = 0.10
EXCESS_TICKS = 10
# Processes with a smaller share of the processor time are not named; the busy one may be invisible
# from a container.
LEAST_NAMED = 0.01


@dataclass(frozen=True, slots=True)
class ProcessorUsage:
    """Processor time since boot in clock ticks, over all cores.

    `own` belongs to the measured process (None: it has ended), `agent` to the agent and its
    finished children, `served` to the model's server and its finished children (None: not visible).
    """

    total: int
    busy: int
    stolen: int
    own: int | None
    agent: int = 0
    served: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessorLoad:
    """Shares of the processor time of all cores, 0..1, over a window.

    The names are those of a record's condition.
    """

    other_load_ratio: float | None
    steal_ratio: float
    served_load_ratio: float | None = None


def read_usage(
    machine: Machine,
    pid: int | None = None,
    agent_pid: int | None = None,
    served: Collection[int] = (),
    neighbours: Collection[int] = (),
) -> ProcessorUsage | None:
    """Return the usage up to now, with that of the process `pid`, the agent and `served`.

    None without /proc/stat.

    `neighbours` are measured at the same time; their usage counts as that of `pid`.
    """
    fields = (machine.text("proc/stat") or "").partition("\n")[0].split()
    counts = [count for field in fields[1:9] if (count := whole_number(field)) is not None]
    if fields[:1] != ["cpu"] or len(counts) < 5:
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal: guest time is part of user. Source:
    # proc_stat(5).
    stolen = counts[7] if len(counts) > 7 else 0
    total = sum(counts)
    measured = [
        ticks_of(machine, process) for process in ([] if pid is None else [pid, *neighbours])
    ]
    own_ticks = None if None in measured else sum(ticks or 0 for ticks in measured)
    # The process of a function is the agent's process, which counts once.
    agent = 0 if agent_pid in (None, pid) else ticks_of(machine, agent_pid, with_children=True) or 0
    of_server = (
        sum(ticks_of(machine, process, with_children=True) or 0 for process in served)
        if served
        else None
    )
    return ProcessorUsage(
        total, total - counts[3] - counts[4] - stolen, stolen, own_ticks, agent, of_server
    )


def load_between(
    first: ProcessorUsage | None, second: ProcessorUsage | None
) -> ProcessorLoad | None:
    """Return the load between two moments; None if they are too close, or one is unknown."""
    if first is None or second is None or second.total - first.total < FEWEST_TICKS:
        return None
    total, agent_ticks = second.total - first.total, second.agent - first.agent
    served_ticks = (
        None if first.served is None or second.served is None else second.served - first.served
    )
    other_ratio = None
    if first.own is not None and second.own is not None:
        other_ratio = _ratio(
            second.busy - first.busy - (second.own - first.own) - agent_ticks - (served_ticks or 0),
            total,
        )
    return ProcessorLoad(
        other_ratio,
        _ratio(second.stolen - first.stolen, total),
        None if served_ticks is None else _ratio(served_ticks, total),
    )


def load_up_to(
    marks: Sequence[ProcessorUsage], last: ProcessorUsage | None
) -> ProcessorLoad | None:
    """Return the load from the latest of the `marks` that is long enough before `last`.

    The marks are in order of time.
    """
    return next((usage for mark in reversed(marks) if (usage := load_between(mark, last))), None)


def ticks_of(machine: Machine, pid: int, *, with_children: bool = False) -> int | None:
    """Return the clock ticks of a process, optionally with those of its finished children.

    None if it has ended.
    """
    _, fields = _stat(machine, f"proc/{pid}/stat")
    ticks = [whole_number(field) for field in fields[11 : 15 if with_children else 13]]
    known_ticks = [tick for tick in ticks if tick is not None]
    return sum(known_ticks) if len(known_ticks) == (4 if with_children else 2) else None


def core_of(machine: Machine, pid: int) -> int | None:
    """Return the last core of the process."""
    _, fields = _stat(machine, f"proc/{pid}/stat")
    return whole_number(fields[36]) if len(fields) > 36 else None


def _stat(machine: Machine, path: str | Path) -> tuple[str, list[str]]:
    """Return the name of a process, and the fields after it.

    The name is in brackets and may contain spaces and brackets.
    """
    head, _, fields_text = (machine.text(path) or "").rpartition(")")
    return head.partition("(")[2], fields_text.split()


def _ratio(part: int, total: int) -> float:
    return min(1.0, max(0.0, part / total))


@dataclass(frozen=True, slots=True)
class MemInfo:
    """Memory of the machine in MB (1e6 bytes); None if /proc/meminfo lacks it."""

    total_mb: float | None
    available_mb: float | None
    swap_total_mb: float | None
    swap_used_mb: float | None


def read_memory(machine: Machine) -> MemInfo:
    fields: dict[str, float] = {}
    for line in (machine.text("proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if (kibibytes := whole_number(value.removesuffix("kB").strip())) is not None:
            fields[name] = kibibytes * 1024 / 1e6
    total, free = fields.get("SwapTotal"), fields.get("SwapFree")
    used = None if total is None or free is None else max(0.0, total - free)
    return MemInfo(fields.get("MemTotal"), fields.get("MemAvailable"), total, used)


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Clock ticks up to a moment, of all cores and of each process.

    Processes are by pid and start, because pids are reused.

    `children` has the ticks of the finished children of each process, `parents` the pids of
    parents.
    """

    total: int
    busy: int = 0
    ticks: dict[tuple[int, int], int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    children: dict[int, int] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)

    def tree(self, pid: int) -> dict[int, int]:
        """Return a process and its descendants.

        Each has its ticks and those of its finished children.
        """
        spent = {
            process: ticks + self.children[process] for (process, _), ticks in self.ticks.items()
        }
        tree = {pid} & set(spent)
        while (
            more_pids := {process for process, parent in self.parents.items() if parent in tree}
            - tree
        ):
            tree |= more_pids
        return {process: spent[process] for process in tree}


def read_processes(machine: Machine) -> ProcessTable:
    """Return the running processes.

    It takes about 2 ms for a hundred of them, so do not call it while queries are timed.
    """
    usage = read_usage(machine)
    table = ProcessTable(usage.total if usage else 0, usage.busy if usage else 0)
    for path in machine.find("proc/[0-9]*/stat"):
        name, fields = _stat(machine, path)
        numbers = (
            [whole_number(fields[index]) for index in (1, 11, 12, 13, 14, 19)]
            if len(fields) > 19
            else [None]
        )
        known_numbers = [number for number in numbers if number is not None]
        if len(known_numbers) == 6:
            pid = int(path.parent.name)
            parent, user, system, children_user, children_system, started = known_numbers
            table.ticks[pid, started] = user + system
            table.children[pid], table.parents[pid] = children_user + children_system, parent
            table.names[pid] = on_one_line(name)
    return table


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """The processes of one name that were not measured.

    They have their share of the CPU time of all cores, 0..1.
    """

    name: str
    load_ratio: float


def busiest(
    first: ProcessTable, second: ProcessTable, leave_out: Collection[int]
) -> OtherProcess | None:
    """Return the busiest processes by name between two tables, None if none ran.

    `leave_out` are our own pids.
    """
    total = second.total - first.total
    by_name: Counter[str] = Counter()
    for (pid, started), ticks in second.ticks.items():
        spent = ticks - first.ticks.get((pid, started), 0)
        if pid not in leave_out and spent > 0:
            by_name[second.names[pid]] += spent
    if total <= 0 or not by_name:
        return None
    name, ticks = by_name.most_common(1)[0]
    return OtherProcess(name=name, load_ratio=min(1.0, ticks / total))


def by_whom(worst: OtherProcess | None, load_ratio: float) -> str:
    """Return the busiest process, as the end of a sentence.

    Empty if it is unknown, as within a container.
    """
    if worst is None or worst.load_ratio < LEAST_NAMED:
        return ""
    if worst.load_ratio >= load_ratio / 2:
        return f", most of it `{worst.name}`"
    return f", the busiest `{worst.name}` {worst.load_ratio:.0%}"


@dataclass(frozen=True, slots=True)
class OtherLoad:
    """The load of processes other than the watching one and its descendants.

    It is in shares of all cores, 0..1.

    `idle_ratio` is the larger one of both idle stretches. None: a stretch was too short for clock
    ticks.
    """

    block_ratio: float | None
    idle_ratio: float | None
    busiest: OtherProcess | None
    doubts: tuple[str, ...] = ()


def other_load(tables: Sequence[ProcessTable], pid: int) -> OtherLoad:
    """Return the load of others in a watched block.

    The four `tables` bound both idle stretches and the block, `pid` watches.

    The energy above idle is wrong by the difference of that load between block and idle, so the
    limit is lower than for latencies.
    """
    begun, start, end, over = tables
    block_ratio = others_ratio(start, end, pid)
    idle_ratio = max(
        (
            ratio
            for first, second in ((begun, start), (end, over))
            if (ratio := others_ratio(first, second, pid)) is not None
        ),
        default=None,
    )
    worst = busiest(start, end, {*start.tree(pid), *end.tree(pid)})
    doubts = []
    if block_ratio is not None:
        total = end.total - start.total
        excess = block_ratio - (idle_ratio or 0.0)
        added = (end.busy - start.busy) / total - (idle_ratio or 0.0)
        clear = (
            excess > max(EXCESS_RATIO, EXCESS_OF_BLOCK_RATIO * added)
            and excess * total >= EXCESS_TICKS
        )
        if block_ratio > LOAD_RATIO or clear:
            doubts.append(
                f"other processes used {block_ratio:.0%} of the machine's cores during the "
                f"block{by_whom(worst, block_ratio)}"
            )
    if idle_ratio is not None and idle_ratio > LOAD_RATIO:
        doubts.append(
            f"other processes used {idle_ratio:.0%} of the machine's cores while it should idle, "
            "so net energy is too low"
        )
    return OtherLoad(block_ratio, idle_ratio, worst, tuple(doubts))


def others_ratio(first: ProcessTable, second: ProcessTable, pid: int) -> float | None:
    """Return the load of processes other than `pid` and its descendants between two tables.

    None if they are too close.
    """
    if second.total - first.total < FEWEST_TICKS:
        return None
    own_ticks = sum(second.tree(pid).values()) - sum(first.tree(pid).values())
    return _ratio(second.busy - first.busy - own_ticks, second.total - first.total)
