"""What is read beside one run, from outside its process: power from the first idle to the last, the machine while queries are timed."""

from collections.abc import Mapping
from typing import Literal

from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.engine import job
from edgemeter.agent.machine import conditions, processes
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.records import Condition

# `nothing`: neither power nor conditions are sampled while the run goes on; for measuring what sampling itself costs.
Observing = Literal["all", "nothing"]


class Observation:
    """Follows one run by its events; `seen` are the looks at the machine before, during and after it, in that order."""

    seen: list[Condition]
    # Every single look at the machine while queries were timed, with its moment, monotonic ns.
    looks: list[tuple[int, Condition]]

    def __init__(self, sensors: Mapping[str, PowerSensor], observing: Observing = "all", machine: Machine = THIS_MACHINE) -> None:
        self.sampler = Sampler(sensors) if sensors and observing == "all" else None
        self.seen = []
        self.looks = []
        self._observing = observing
        self._machine = machine
        self._table: processes.Table | None = None
        self._watcher: conditions.Watcher | None = None

    def look_before(self) -> None:
        """Look at the machine before the process is started."""
        self.seen.append(conditions.look("before", self._machine))
        self._table = processes.read(self._machine)

    def look_after(self) -> None:
        """Look at the machine after the process has ended."""
        self.seen.append(conditions.look("after", self._machine))

    def follow(self, event: job.Event, pid: int) -> None:
        """Begin and end sampling as the run comes to its parts."""
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
        if self.sampler:
            self.sampler.stop()

    def _watch(self, event: job.Phase, pid: int) -> None:
        if self._observing == "nothing":
            return
        if event.name == "load":
            self._watcher = conditions.Watcher(pid, self._machine, table=self._table)
        if self._watcher is None:
            return
        if event.name == "timed":
            self._watcher.start()
            return
        seen = self._watcher.stop()
        self.seen.extend(seen)
        if seen:
            self.looks.extend(self._watcher.taken)
            self._watcher = None
        else:
            self._watcher.mark()
