"""Readings during a run from outside its process.

Power is read from the first idle stretch to the last, conditions while queries are timed.
"""

import os
from collections.abc import Callable, Mapping

from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.engine import job
from edgemeter.agent.machine import conditions
from edgemeter.agent.machine.load import ProcessTable, read_processes
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.memory_watch import MemoryWatch
from edgemeter.agent.power import PowerSensor

PERIOD_S = 1.0


class Observation:
    """Observes one run by its events.

    `seen` are the conditions before, during and after it, in that order. `served` returns the
    processes of the model's server, `neighbours` those of runs at the same time.
    """

    seen: list[Condition]
    # The conditions while queries were timed, each with its time, monotonic ns.
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
        """Start and stop sampling with the phases of the run."""
        if not isinstance(event, job.Phase):
            return
        if self.sampler and event.name in ("idle before", "timed"):
            self.sampler.start()
        self._watch(event, pid)
        if self.sampler and event.name == "accuracy":
            self.sampler.stop()

    def end(self) -> None:
        """Stop all readings."""
        if self._watcher:
            self._watcher.stop()
        if self.memory:
            self.memory.stop()
        if self.sampler:
            self.sampler.stop()

    def _watch(self, event: job.Phase, pid: int) -> None:
        if event.name == "load":
            self._watcher = conditions.ConditionWatcher(
                pid,
                self._machine,
                table=self._table,
                served=self._served,
                neighbours=self._neighbours,
            )
        if self._watcher is None:
            return
        if event.name == "timed":
            self._watcher.start()
            # In the process of the queries, its thread would take the interpreter from them.
            self.memory = self.memory or (
                MemoryWatch(pid, self._machine) if pid != os.getpid() else None
            )
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
