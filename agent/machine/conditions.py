"""Conditions of a run, read outside the measured process.

They are the state of the machine before, during and after it.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import msgspec

from edgemeter.agent.base.flags import any_known
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.machine import board, load, temperatures, throttling
from edgemeter.agent.machine.load import (
    ProcessorUsage,
    ProcessTable,
    busiest,
    read_memory,
    read_processes,
)
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.throttling import cpu_clocks_hz, governor

When = Literal["before", "during", "after"]

PERIOD_S = 2.0
# The process may not be busy yet at the beginning, and already sleep at the end.
FIRST_S = 0.25


def inspect(when: When, machine: Machine = THIS_MACHINE, *, pid: int | None = None) -> Condition:
    """Return the machine's condition; the clock is that of the core of process `pid`.

    During a run only quantities that may change within seconds are read; before and after it also
    those that take longer to read.
    """
    now_hz, highest_hz = cpu_clocks_hz(machine, None if pid is None else load.core_of(machine, pid))
    quick = Condition(
        when=when,
        temperatures_c=temperatures.read(machine),
        clock_hz=now_hz,
        clock_max_hz=highest_hz,
        swap_used_mb=read_memory(machine).swap_used_mb,
        **asdict(throttling.read(machine)),
    )
    if when == "during":
        return quick
    return msgspec.structs.replace(
        quick, governor=governor(machine), power_mode=board.power_mode(machine)
    )


class ConditionWatcher:
    """Inspects the machine every period, from a thread, while the process `pid` is measured.

    If the timed part is too short for the kernel's clock ticks, the load is counted from an earlier
    `mark`. `served` returns the processes of the model's server, `neighbours` those of runs at the
    same time; neither counts as other processes.
    """

    def __init__(
        self,
        pid: int | None = None,
        machine: Machine = THIS_MACHINE,
        *,
        period_s: float = PERIOD_S,
        table: ProcessTable | None = None,
        served: Callable[[], set[int]] = set,
        neighbours: Callable[[], set[int]] = set,
    ) -> None:
        self._pid = pid
        self._neighbours = neighbours
        self._find_served, self._served = served, set[int]()
        self._machine = machine
        self._period_s = period_s
        self._table = table
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        # Conditions with their times, monotonic ns.
        self.taken: list[tuple[int, Condition]] = []
        self._marks: list[ProcessorUsage] = []
        self._last: ProcessorUsage | None = None
        self._events: list[Mapping[str, int]] = []

    def mark(self) -> None:
        """Record the usage up to now, before the timed part.

        A server may have started processes.
        """
        self._served |= self._find_served() - {os.getpid(), self._pid}
        self._mark()

    def _mark(self) -> None:
        if (usage := self._usage()) is not None and usage.own is not None:
            self._marks.append(usage)

    def _usage(self) -> ProcessorUsage | None:
        return load.read_usage(
            self._machine, self._pid, os.getpid(), self._served, self._neighbours() - {self._pid}
        )

    def start(self) -> None:
        if self._thread is not None:
            return
        self.taken, self._events, self._last = [], [], None
        self._mark()
        self._count()
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, name="conditions", daemon=True)
        self._thread.start()

    def stop(self) -> list[Condition]:
        """Stop, and return one condition that summarises the run; empty if not started."""
        if self._thread is None:
            return []
        self._ended.set()
        self._thread.join()
        self._thread = None
        self._count()
        looks = [condition for _, condition in self.taken] or [
            inspect("during", self._machine, pid=self._pid)
        ]
        together = summary(looks, load.load_up_to(self._marks, self._last), self._events)
        self._marks = []
        if self._table is None:
            return [together]
        own_pids = {
            os.getpid(),
            *self._served,
            *self._neighbours(),
            *([] if self._pid is None else [self._pid]),
        }
        worst = busiest(self._table, read_processes(self._machine), own_pids)
        return [
            msgspec.structs.replace(
                together, busiest_other={worst.name: worst.load_ratio} if worst else {}
            )
        ]

    def _watch(self) -> None:
        wait_s = min(FIRST_S, self._period_s)
        while not self._ended.wait(wait_s):
            self.taken.append(
                (time.monotonic_ns(), inspect("during", self._machine, pid=self._pid))
            )
            self._count()
            wait_s = self._period_s

    def _count(self) -> None:
        # The process may end before its last event is read, so the last usage before that counts.
        if (usage := self._usage()) is not None and usage.own is not None:
            self._last = usage
        if events := throttling.read(self._machine).throttle_events:
            self._events.append(events)


def summary(
    looks: Sequence[Condition],
    usage: load.ProcessorLoad | None,
    events: Sequence[Mapping[str, int]] = (),
) -> Condition:
    """Return several conditions as one.

    If a counter of throttle events rose, the machine throttled.
    """
    temperatures_c: dict[str, float] = {}
    for name, value_c in (item for condition in looks for item in condition.temperatures_c.items()):
        temperatures_c[name] = max(value_c, temperatures_c.get(name, value_c))
    rose = [True] if events and throttling.rose(events[0], events[-1]) else []

    def values_of(field: str) -> list[Any]:
        return [value for condition in looks if (value := getattr(condition, field)) is not None]

    return Condition(
        when="during",
        temperatures_c=temperatures_c,
        throttled_now=any_known([*values_of("throttled_now"), *rose]),
        throttled_since_boot=any_known(values_of("throttled_since_boot")),
        under_voltage_now=any_known(values_of("under_voltage_now")),
        under_voltage_since_boot=any_known(values_of("under_voltage_since_boot")),
        clock_max_hz=max(values_of("clock_max_hz"), default=None),
        swap_used_mb=max(values_of("swap_used_mb"), default=None),
        clock_hz=statistics.median(values_of("clock_hz")) if values_of("clock_hz") else None,
        throttle_events=dict(events[-1]) if events else {},
        **({} if usage is None else asdict(usage)),
    )
