"""Conditions of a run: looks at the machine before, during and after it, taken outside the process that is measured."""

import os
import statistics
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from edgemeter.agent.machine import (
    attached,
    board,
    clock,
    cpu_clock,
    gpu_clock,
    load,
    meminfo,
    processes,
    temperatures,
    throttling,
)
from edgemeter.agent.machine.load import Usage
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine, whole_number
from edgemeter.agent.records import Condition

When = Literal["before", "during", "after"]

PERIOD_S = 2.0
# The measured process needs a moment to come to speed, and a look right at its end may find it asleep.
FIRST_S = 0.25


def look(when: When, machine: Machine = THIS_MACHINE, *, since: Usage | None = None, pid: int | None = None) -> Condition:
    """Return the machine's condition now: load since `since`, without the process `pid`; the clock is that of its core.

    During a run only what may change from one second to the next is asked; before and after it also what takes longer to ask.
    """
    usage = None if since is None else load.between(since, load.read(machine, pid, os.getpid()))
    quick = _with_load(_quick(when, machine, pid), usage)
    return quick if when == "during" else _thorough(quick, machine)


def _quick(when: When, machine: Machine, pid: int | None) -> Condition:
    state = throttling.read(machine)
    memory = meminfo.read(machine)
    now_hz, highest_hz = cpu_clock.clocks_hz(machine, None if pid is None else core_of(machine, pid))
    gpu_hz, gpu_highest_hz = gpu_clock.clocks_hz(machine)
    return Condition(
        when=when,
        temperatures_c=temperatures.read(machine),
        clock_hz=now_hz,
        clock_max_hz=highest_hz,
        gpu_clock_hz=gpu_hz,
        gpu_clock_max_hz=gpu_highest_hz,
        throttled_now=state.now,
        throttled_since_boot=state.since_boot,
        under_voltage_now=state.under_voltage_now,
        under_voltage_since_boot=state.under_voltage_since_boot,
        throttle_flags=state.flags,
        throttle_events=dict(state.events),
        swap_used_mb=memory.swap_used_mb,
        memory_available_mb=memory.available_mb,
    )


def _thorough(quick: Condition, machine: Machine) -> Condition:
    kernel = clock.kernel_clock_of(machine)
    return msgspec.structs.replace(
        quick,
        governor=cpu_clock.governor(machine),
        power_mode=board.power_mode(machine),
        temperature_limits_c=temperatures.limits(machine),
        clock_synchronised=clock.synchronised(machine),
        clock_offset_ms=kernel.offset_ms if kernel else None,
        clock_error_ms=kernel.error_ms if kernel else None,
        attached=attached.accelerators(machine),
    )


def _with_load(condition: Condition, usage: load.Load | None) -> Condition:
    if usage is None:
        return condition
    return msgspec.structs.replace(
        condition,
        other_load_ratio=usage.other_ratio,
        steal_ratio=usage.steal_ratio,
        agent_load_ratio=usage.agent_ratio,
        load_window_ms=usage.window_ms,
    )


def core_of(machine: Machine, pid: int) -> int | None:
    """Return the core that the process ran on last."""
    fields = (machine.text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    return whole_number(fields[36]) if len(fields) > 36 else None


class Watcher:
    """Looks at the machine every period, from a thread, while the process `pid` is measured.

    `mark` before `start` says from when on the load may be counted where the timed part is too short for the kernel's clock ticks.
    """

    def __init__(
        self,
        pid: int | None = None,
        machine: Machine = THIS_MACHINE,
        *,
        period_s: float = PERIOD_S,
        table: processes.Table | None = None,
    ) -> None:
        self._pid = pid
        self._machine = machine
        self._period_s = period_s
        self._table = table
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._looks: list[Condition] = []
        # The same looks with their moments, monotonic ns: for a curve over time.
        self.taken: list[tuple[int, Condition]] = []
        self._marks: list[Usage] = []
        self._last: Usage | None = None
        self._events: list[Mapping[str, int]] = []

    def mark(self) -> None:
        """Take note of the usage up to now, before the timed part begins."""
        usage = load.read(self._machine, self._pid, os.getpid())
        if usage is not None and usage.own is not None:
            self._marks.append(usage)

    def start(self) -> None:
        """Begin to look; a watcher that is already looking goes on."""
        if self._thread is not None:
            return
        self._looks, self._events, self._last = [], [], None
        self.taken = []
        self.mark()
        self._count()
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, name="conditions", daemon=True)
        self._thread.start()

    def stop(self) -> list[Condition]:
        """Stop looking and return one condition that sums up what was seen; none when it was not looking."""
        if self._thread is None:
            return []
        self._ended.set()
        self._thread.join()
        self._thread = None
        self._count()
        if not self._looks:
            self._looks.append(look("during", self._machine, pid=self._pid))
        seen = summary(self._looks, load.up_to(self._marks, self._last), self._events)
        self._marks = []
        if self._table is None:
            return [seen]
        ours = {os.getpid(), *([] if self._pid is None else [self._pid])}
        return [msgspec.structs.replace(seen, busiest_other=processes.busiest(self._table, processes.read(self._machine), ours))]

    def _watch(self) -> None:
        wait_s = min(FIRST_S, self._period_s)
        while not self._ended.wait(wait_s):
            self._looks.append(look("during", self._machine, pid=self._pid))
            self.taken.append((time.monotonic_ns(), self._looks[-1]))
            self._count()
            wait_s = self._period_s

    def _count(self) -> None:
        usage = load.read(self._machine, self._pid, os.getpid())
        # The process may be gone before we are told: what was seen last while it lived is what counts.
        if usage is not None and usage.own is not None:
            self._last = usage
        events = throttling.read(self._machine).events
        if events:
            self._events.append(events)


def summary(looks: Sequence[Condition], usage: load.Load | None, events: Sequence[Mapping[str, int]] = ()) -> Condition:
    """Return what several looks say together; a counter of throttle events that rose means that the machine throttled."""
    names = dict.fromkeys(name for one in looks for name in one.temperatures_c)
    rose = [True] if events and throttling.rose(events[0], events[-1]) else []
    flags = [one.throttle_flags for one in looks if one.throttle_flags is not None]
    condition = Condition(
        when="during",
        temperatures_c={name: max(one.temperatures_c[name] for one in looks if name in one.temperatures_c) for name in names},
        clock_hz=_median(one.clock_hz for one in looks),
        clock_max_hz=_highest(one.clock_max_hz for one in looks),
        gpu_clock_hz=_median(one.gpu_clock_hz for one in looks),
        gpu_clock_max_hz=_highest(one.gpu_clock_max_hz for one in looks),
        throttled_now=_ever([*(one.throttled_now for one in looks), *rose]),
        throttled_since_boot=_ever(one.throttled_since_boot for one in looks),
        under_voltage_now=_ever(one.under_voltage_now for one in looks),
        under_voltage_since_boot=_ever(one.under_voltage_since_boot for one in looks),
        throttle_flags=_all_bits(flags) if flags else None,
        throttle_events=dict(events[-1]) if events else {},
        swap_used_mb=_highest(one.swap_used_mb for one in looks),
        memory_available_mb=min((one.memory_available_mb for one in looks if one.memory_available_mb is not None), default=None),
    )
    return _with_load(condition, usage)


def _all_bits(flags: Iterable[int]) -> int:
    together = 0
    for one in flags:
        together |= one
    return together


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _ever(claims: Iterable[bool | None]) -> bool | None:
    known = [claim for claim in claims if claim is not None]
    return any(known) if known else None
