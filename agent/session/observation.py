"""Readings taken during a run from outside its process: power from the first idle to the last, conditions while queries are timed.

Also the wait for a start temperature before it.
"""

import os
import time
from collections.abc import Callable, Mapping

from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.contract.record_figures import CoolDown
from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.engine import job
from edgemeter.agent.machine import conditions, temperatures
from edgemeter.agent.machine.load import ProcessTable, read_processes
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.memory_watch import MemoryWatch
from edgemeter.agent.power import PowerSensor

PERIOD_S = 1.0


def wait_until_cool(
    below_c: float,
    limit_s: float,
    begins: Callable[[], object],
    machine: Machine = THIS_MACHINE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> CoolDown:
    """Wait until every sensor reads less than `below_c`, for `limit_s` at most; `begins` is called where there is a wait.

    A machine without a thermometer is not waited for: `is_reached` is then None.
    """
    begin = clock()
    hottest_c = _hottest_c(machine)
    if hottest_c is not None and hottest_c >= below_c and limit_s > 0:
        begins()
    while hottest_c is not None and hottest_c >= below_c and clock() - begin < limit_s:
        sleep(min(PERIOD_S, limit_s))
        hottest_c = _hottest_c(machine)
    is_reached = None if hottest_c is None else hottest_c < below_c
    return CoolDown(below_c=below_c, waited_s=clock() - begin, temperature_c=hottest_c, is_reached=is_reached)


def _hottest_c(machine: Machine) -> float | None:
    return max(temperatures.read(machine).values(), default=None)


class Observation:
    """Follows one run by its events; `seen` are the machine's conditions before, during and after it, in that order.

    `neighbours` returns the processes of runs at the same time.
    """

    seen: list[Condition]
    # Every condition read while queries were timed, with its moment, monotonic ns.
    timed_conditions: list[tuple[int, Condition]]

    def __init__(
        self,
        sensors: Mapping[str, PowerSensor],
        machine: Machine = THIS_MACHINE,
        served: Callable[[], set[int]] = set,
        neighbours: Callable[[], set[int]] = set,
    ) -> None:
        self.sampler = Sampler(sensors) if sensors else None
        self.seen = []
        self.timed_conditions = []
        self._machine = machine
        self._served, self._neighbours = served, neighbours
        self._table: ProcessTable | None = None
        self._watcher: conditions.ConditionWatcher | None = None
        self.memory: MemoryWatch | None = None

    def inspect_before(self) -> None:
        """Inspect the machine before the process is started."""
        self.seen.append(conditions.inspect("before", self._machine))
        self._table = read_processes(self._machine)

    def inspect_after(self) -> None:
        """Inspect the machine after the process has ended."""
        self.seen.append(conditions.inspect("after", self._machine))

    def follow(self, event: job.Event, pid: int) -> None:
        """Start and stop sampling as the run goes through its phases."""
        if not isinstance(event, job.Phase):
            return
        if self.sampler and event.name in ("idle before", "timed"):
            self.sampler.start()
        self._watch(event, pid)
        if self.sampler and event.name == "accuracy":
            self.sampler.stop()

    def end(self) -> None:
        """Stop whatever still runs."""
        if self._watcher:
            self._watcher.stop()
        if self.memory:
            self.memory.stop()
        if self.sampler:
            self.sampler.stop()

    def _watch(self, event: job.Phase, pid: int) -> None:
        if event.name == "load":
            self._watcher = conditions.ConditionWatcher(
                pid, self._machine, table=self._table, served=self._served, neighbours=self._neighbours
            )
        if self._watcher is None:
            return
        if event.name == "timed":
            self._watcher.start()
            # In this process its thread would take the interpreter from the queries.
            self.memory = self.memory or (MemoryWatch(pid, self._machine) if pid != os.getpid() else None)
            return
        if self.memory:
            self.memory.stop()
        conditions_during = self._watcher.stop()
        self.seen.extend(conditions_during)
        if conditions_during:
            self.timed_conditions.extend(self._watcher.taken)
            self._watcher = None
        else:
            self._watcher.mark()
