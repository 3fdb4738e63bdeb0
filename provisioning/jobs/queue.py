"""What the desk holds in memory of the registry: the open executions, by device, kept up to date by the serials of what was changed.

Nothing here is decided and nothing is lost with it: after a kill it is read again.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator

from edgemeter.agent.jobs.contract import Golden
from edgemeter.provisioning.jobs import executions, jobs
from edgemeter.provisioning.jobs.executions import IN_FLIGHT, Execution
from edgemeter.provisioning.jobs.jobs import Job
from edgemeter.provisioning.jobs.rules import Asked, Busy, Place, Rules
from edgemeter.provisioning.registry.registry import Registry


class Queue:
    """The open executions of the registry; `refresh` reads what changed since."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._jobs: dict[str, Job] = {}
        self._open: dict[int, Execution] = {}
        self._queued: dict[str, list[int]] = defaultdict(list)
        self._in_flight: dict[str, int] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._serial = 0
        self._rules = Rules()
        self.busy = Busy()

    def load(self, rules: Rules) -> None:
        """Read every open execution and when each device last measured."""
        self._rules = rules
        self._serial = self._registry.query("SELECT COALESCE(MAX(serial), 0) AS serial FROM executions")[0]["serial"]
        for execution in executions.unfinished(self._registry):
            self.take(execution)
        statement = "SELECT device, MAX(ended_ns) AS ended_ns FROM executions WHERE ended_ns IS NOT NULL GROUP BY device"
        self.busy.last_end_ns.update({row["device"]: row["ended_ns"] for row in self._registry.query(statement)})

    def refresh(self) -> list[Execution]:
        """Take what was changed since the last time, by whomever, and return it."""
        changed = executions.since(self._registry, self._serial)
        for execution in changed:
            self._serial = execution.serial
            self.take(execution)
        return changed

    def set_rules(self, rules: Rules) -> None:
        """Count what is in flight by other circuits and tags from now on."""
        held = [(one, self._open[one]) for one in self._in_flight.values()]
        for _, execution in held:
            self.busy.withdraw(execution.device)
        self._rules = rules
        for _, execution in held:
            self.busy.begin(self.asked(execution), rules.places.get(execution.device, Place()))

    def take(self, execution: Execution) -> None:
        """Take an execution as it is now."""
        before = self._open.pop(execution.id, None)
        if before is not None and before.state == "queued" and execution.state != "queued":
            self._queued[before.device].remove(before.id)
        if execution.state not in IN_FLIGHT and self._in_flight.get(execution.device) == execution.id:
            del self._in_flight[execution.device]
            self.busy.end(execution.device, execution.ended_ns or execution.due_ns)
        if execution.is_final:
            return
        self._open[execution.id] = execution
        if execution.state in IN_FLIGHT:
            self._begin(execution, before)
        elif execution.state == "queued" and (before is None or before.state != "queued"):
            self._queued[execution.device].append(execution.id)

    def job(self, execution: Execution) -> Job:
        """Return the job of an execution; what was asked for never changes."""
        if execution.job not in self._jobs:
            found = jobs.find(self._registry, execution.job)
            if found is None:
                message = f"execution {execution.id} is of job {execution.job!r}, which the registry does not have"
                raise ValueError(message)
            self._jobs[execution.job] = found
        return self._jobs[execution.job]

    def find(self, job: str, device: str) -> Execution | None:
        """Return the open execution of a job on a device, None when there is none."""
        held = self.in_flight(device)
        if held is not None and held.job == job:
            return held
        return next((self._open[one] for one in self._queued.get(device, ()) if self._open[one].job == job), None)

    def in_flight(self, device: str) -> Execution | None:
        """Return what a device is busy with."""
        return self._open.get(self._in_flight.get(device, -1))

    def of_device(self, device: str) -> list[Execution]:
        """Return what is in flight on a device or queued for it."""
        held = self.in_flight(device)
        return [*([] if held is None else [held]), *(self._open[one] for one in self._queued.get(device, ()))]

    def get(self, execution: int) -> Execution | None:
        """Return an open execution."""
        return self._open.get(execution)

    def first(self, device: str) -> Execution | None:
        """Return what goes first to a device that is not busy: what is no measurement, then its golden job, then what is due first."""
        if device in self._in_flight or not self._queued.get(device):
            return None
        waiting = [self._open[one] for one in self._queued[device]]
        return min(waiting, key=self._urgency)

    def _urgency(self, execution: Execution) -> tuple[bool, bool, int, int]:
        job = self.job(execution)
        return job.is_measurement, not isinstance(job.work, Golden), execution.due_ns, execution.id

    def asked(self, execution: Execution) -> Asked:
        """Return what the rules need to know of an execution."""
        job = self.job(execution)
        return Asked(
            execution.id,
            execution.device,
            execution.due_ns,
            job.is_measurement,
            isinstance(job.work, Golden),
            job.cool_down_s,
            job.exclusive,
            job.campaign,
        )

    def overdue(self, now_ns: int) -> Iterator[Execution]:
        """Yield what is in flight and whose deadline is over."""
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            deadline_ns, number = heapq.heappop(self._deadlines)
            execution = self._open.get(number)
            if execution is not None and execution.deadline_ns == deadline_ns and execution.state in IN_FLIGHT:
                yield execution

    def __len__(self) -> int:
        return len(self._open)

    def _begin(self, execution: Execution, before: Execution | None) -> None:
        if execution.deadline_ns is not None and (before is None or before.deadline_ns != execution.deadline_ns):
            heapq.heappush(self._deadlines, (execution.deadline_ns, execution.id))
        if self._in_flight.get(execution.device) != execution.id:
            self._in_flight[execution.device] = execution.id
            if execution.device not in self.busy:
                self.busy.begin(self.asked(execution), self._rules.places.get(execution.device, Place()))
