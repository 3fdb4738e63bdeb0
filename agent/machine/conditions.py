"""Conditions of a run: looks at the machine before, during and after it, taken outside the process that is measured."""

import statistics
import threading
from collections.abc import Iterable, Sequence
from typing import Literal

from edgemeter.agent.machine import cpu_clock, load, meminfo, temperatures, throttling
from edgemeter.agent.machine.load import Usage
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine, whole_number
from edgemeter.agent.records import Condition

When = Literal["before", "during", "after"]

PERIOD_S = 2.0
# The measured process needs a moment to come to speed, and a look right at its end may find it asleep.
FIRST_S = 0.25


def look(when: When, machine: Machine = THIS_MACHINE, *, since: Usage | None = None, pid: int | None = None) -> Condition:
    """Return the machine's condition now: load since `since`, without the process `pid`; the clock is that of its core."""
    usage = load.between(since, load.read(machine, pid))
    state = throttling.read(machine)
    now_hz, highest_hz = cpu_clock.clocks_hz(machine, None if pid is None else core_of(machine, pid))
    return Condition(
        when=when,
        temperatures_c=temperatures.read(machine),
        clock_hz=now_hz,
        clock_max_hz=highest_hz,
        throttled_now=state.now,
        throttled_since_boot=state.since_boot,
        under_voltage_now=state.under_voltage_now,
        under_voltage_since_boot=state.under_voltage_since_boot,
        other_load_ratio=usage.other_ratio if usage else None,
        steal_ratio=usage.steal_ratio if usage else None,
        swap_used_mb=meminfo.read(machine).swap_used_mb,
    )


def core_of(machine: Machine, pid: int) -> int | None:
    """Return the core that the process ran on last."""
    fields = (machine.text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    return whole_number(fields[36]) if len(fields) > 36 else None


class Watcher:
    """Looks at the machine every period, from a thread, while the process `pid` is measured."""

    def __init__(self, pid: int | None = None, machine: Machine = THIS_MACHINE, *, period_s: float = PERIOD_S) -> None:
        self._pid = pid
        self._machine = machine
        self._period_s = period_s
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._looks: list[Condition] = []
        self._usages: list[Usage] = []
        self._events: list[int] = []

    def start(self) -> None:
        """Begin to look; a watcher that is already looking goes on."""
        if self._thread is not None:
            return
        self._looks, self._usages, self._events = [], [], []
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
        return [summary(self._looks, self._usages, self._events)]

    def _watch(self) -> None:
        wait_s = min(FIRST_S, self._period_s)
        while not self._ended.wait(wait_s):
            self._looks.append(look("during", self._machine, pid=self._pid))
            self._count()
            wait_s = self._period_s

    def _count(self) -> None:
        usage = load.read(self._machine, self._pid)
        # The process may be gone before we are told: what was seen last while it lived is what counts.
        if usage is not None and usage.own is not None:
            self._usages.append(usage)
        events = throttling.read(self._machine).events
        if events is not None:
            self._events.append(events)


def summary(looks: Sequence[Condition], usages: Sequence[Usage], events: Sequence[int] = ()) -> Condition:
    """Return what several looks say together; a counter of throttle events that rose means that the machine throttled."""
    usage = load.between(usages[0], usages[-1]) if usages else None
    names = dict.fromkeys(name for one in looks for name in one.temperatures_c)
    clocks = [one.clock_hz for one in looks if one.clock_hz is not None]
    rose = [True] if events and events[-1] > events[0] else []
    return Condition(
        when="during",
        temperatures_c={name: max(one.temperatures_c[name] for one in looks if name in one.temperatures_c) for name in names},
        clock_hz=statistics.median(clocks) if clocks else None,
        clock_max_hz=_highest(one.clock_max_hz for one in looks),
        throttled_now=_ever([*(one.throttled_now for one in looks), *rose]),
        throttled_since_boot=_ever(one.throttled_since_boot for one in looks),
        under_voltage_now=_ever(one.under_voltage_now for one in looks),
        under_voltage_since_boot=_ever(one.under_voltage_since_boot for one in looks),
        other_load_ratio=usage.other_ratio if usage else None,
        steal_ratio=usage.steal_ratio if usage else None,
        swap_used_mb=_highest(one.swap_used_mb for one in looks),
    )


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _ever(claims: Iterable[bool | None]) -> bool | None:
    known = [claim for claim in claims if claim is not None]
    return any(known) if known else None
