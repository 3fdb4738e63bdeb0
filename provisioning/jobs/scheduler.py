"""The open executions and their transitions, and the queue of each device in memory.

The transitions are pure functions:

    held -> queued -> sent -> accepted -> running | repeating
        -> done | failed | rejected | timed_out | cancelled

An execution is queued once more if it timed out or was interrupted and a retry is left.

The queue is updated by the serials of changes. It decides nothing and can be lost: after a kill it
is read again.
"""

from collections import OrderedDict, defaultdict, deque
from dataclasses import replace
from functools import lru_cache

from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.contract.orders import FINAL, ExecutionReport, Measure
from edgemeter.provisioning.registry.jobs import (
    IN_FLIGHT,
    ON_DEVICE,
    Execution,
    Job,
    last_serial,
    select_executions,
    select_jobs,
)
from edgemeter.provisioning.registry.registry import Registry

# The device ends overdue work by its own clock; the server waits this much longer for its report.
GRACE_S = 60.0
INTERRUPTED = "interrupted"
# After the first attempt that timed out or was interrupted; doubled each time.
RETRY_PAUSE_S = 30.0
# Power cuts and restarts are not the job's fault: this many times as many retries after them.
INTERRUPTIONS_PER_RETRY = 3
_RANK = {"sent": 0, "accepted": 1, "running": 2, "repeating": 2}
_LAST_RANK = 3
# An order has up to 64 KiB.
JOBS_REMEMBERED = 500
# Reports of one device that wait for a commit; it repeats unacknowledged ones.
MOST_OF_ONE = 32


def needs_sending(execution: Execution) -> bool:
    """Return whether its device has yet to receive something.

    It is the order, or the request to cancel it.
    """
    return execution.state == "sent" or (
        execution.state in ON_DEVICE and execution.requested == "cancel"
    )


def start_attempt(execution: Execution, job: Job, now_ns: int) -> Execution:
    """Return the execution as it is sent, which is its next attempt.

    It is given up if the device does not answer within the job's time limit.
    """
    return replace(
        execution,
        state="sent",
        attempt=execution.attempt + 1,
        version=execution.version + 1,
        sent_ns=now_ns,
        accepted_ns=None,
        running_ns=None,
        deadline_ns=now_ns + _ns(job.timeout_s + GRACE_S),
        done_ratio=None,
        doing=None,
    )


def apply_report(
    execution: Execution, job: Job, report: ExecutionReport, now_ns: int
) -> Execution | None:
    """Return the execution after a report of its device.

    It is None for a stale report, which changes nothing. A report of the current attempt counts if
    it expects the stored version, or is further on than the stored state: a lost acknowledgement
    must not cost a measurement.
    """
    if execution.is_final or report.attempt != execution.attempt:
        return None
    if execution.state not in ON_DEVICE:
        # Given up and not sent again yet: a late result is accepted, and not measured twice.
        return (
            _ended(execution, report, now_ns)
            if report.state == "done" and execution.attempt
            else None
        )
    rank = _RANK.get(report.state, _LAST_RANK)
    expects = report.expected_version >= execution.version
    if rank < _RANK[execution.state] or (rank == _RANK[execution.state] and not expects):
        return None
    version = max(execution.version, report.expected_version) + 1
    if report.state in FINAL:
        return _final(replace(execution, version=version - 1), job, report, now_ns)
    is_new = execution.accepted_ns is None
    return replace(
        execution,
        state=report.state,
        version=version,
        reason=report.reason,
        accepted_ns=now_ns if is_new else execution.accepted_ns,
        running_ns=now_ns
        if report.state == "running" and execution.running_ns is None
        else execution.running_ns,
        deadline_ns=None
        if report.state == "repeating"
        else now_ns + _ns(job.timeout_s + GRACE_S)
        if is_new
        else execution.deadline_ns,
    )


def expire(execution: Execution, job: Job, now_ns: int) -> Execution:
    waited = f"{job.timeout_s:g} s"
    overran = f"not finished within {waited}, last state: {execution.state}"
    where = f"no answer to the order within {waited}" if execution.state == "sent" else overran
    if execution.requested == "cancel":
        return replace(_closed(execution, now_ns), state="cancelled", reason=f"cancelled; {where}")
    return _again_or(
        execution, job, now_ns, replace(_closed(execution, now_ns), state="timed_out", reason=where)
    )


def drop(execution: Execution, reason: str | None, now_ns: int) -> Execution:
    """Return the execution ended by the server, without a report of its device."""
    return replace(_closed(execution, now_ns), state="cancelled", reason=reason)


def _final(execution: Execution, job: Job, report: ExecutionReport, now_ns: int) -> Execution:
    ended = _ended(execution, report, now_ns)
    if execution.requested == "cancel":
        # A device that does not know the job, or lost it half way, has done what was requested.
        return ended if report.state == "done" else replace(ended, state="cancelled")
    # Another attempt may succeed.
    if report.state == "timed_out" or (
        report.state == "failed" and (report.reason or "").startswith(INTERRUPTED)
    ):
        return _again_or(execution, job, now_ns, ended)
    return ended


def _ended(execution: Execution, report: ExecutionReport, now_ns: int) -> Execution:
    return replace(
        _closed(execution, now_ns),
        state=report.state,
        reason=report.reason,
        done_ratio=1.0 if report.state == "done" else execution.done_ratio,
        runs=report.runs,
        text=report.text,
    )


def _closed(execution: Execution, now_ns: int) -> Execution:
    return replace(
        execution, version=execution.version + 1, ended_ns=now_ns, deadline_ns=None, doing=None
    )


def _again_or(execution: Execution, job: Job, now_ns: int, ended: Execution) -> Execution:
    if execution.attempt > (
        job.retries if ended.state == "timed_out" else INTERRUPTIONS_PER_RETRY * job.retries
    ):
        return ended
    pause_s = RETRY_PAUSE_S * 2.0 ** (execution.attempt - 1)
    reason = (
        f"attempt {execution.attempt} {ended.state.replace('_', ' ')}: "
        f"{ended.reason or 'no reason given'}"
    )
    return replace(
        execution,
        state="queued",
        version=ended.version,
        reason=reason,
        due_ns=now_ns + _ns(pause_s),
        deadline_ns=None,
        doing=None,
    )


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)


class JobQueue:
    """The open executions of the registry by id, and those `in_flight` by device.

    `refresh` reads changes.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._job = lru_cache(JOBS_REMEMBERED)(self._find_job)
        self.open: dict[int, Execution] = {}
        self.in_flight: dict[str, Execution] = {}
        self._of_device: dict[str, dict[int, Execution]] = defaultdict(dict)
        self._serial = last_serial(registry)
        for execution in select_executions(registry, "WHERE ended_ns IS NULL ORDER BY id"):
            self.take(execution)

    def refresh(self) -> list[Execution]:
        """Read the executions changed since the last call, and return them."""
        changed = select_executions(
            self._registry, "WHERE serial > ? ORDER BY serial", self._serial
        )
        for execution in changed:
            self._serial = execution.serial
            self.take(execution)
        return changed

    def take(self, execution: Execution) -> None:
        """Apply the present state of an execution."""
        self.open.pop(execution.id, None)
        self._of_device[execution.device].pop(execution.id, None)
        in_flight = self.in_flight.get(execution.device)
        if execution.state in IN_FLIGHT:
            self.in_flight[execution.device] = execution
        elif in_flight is not None and in_flight.id == execution.id:
            del self.in_flight[execution.device]
        if not execution.is_final:
            self.open[execution.id] = self._of_device[execution.device][execution.id] = execution

    def job(self, execution: Execution) -> Job:
        """Return the job of an execution, as it was made."""
        return self._job(execution.job)

    def find(self, job: str, device: str) -> Execution | None:
        return next(
            (execution for execution in self.of_device(device) if execution.job == job), None
        )

    def of_device(self, device: str) -> list[Execution]:
        return list(self._of_device.get(device, {}).values())

    def first(self, device: str) -> Execution | None:
        """Return the next execution of an idle device.

        Other work comes before measurements, then the earliest comes first.
        """
        if device in self.in_flight:
            return None
        waiting = (execution for execution in self.of_device(device) if execution.state == "queued")
        return min(
            waiting,
            key=lambda execution: (self.measures(execution), execution.due_ns, execution.id),
            default=None,
        )

    def measures(self, execution: Execution) -> bool:
        """Return whether it measures now, which takes long.

        A repeated measurement is only noted.
        """
        work = self.job(execution).works[execution.work]
        return isinstance(work, Measure) and not work.repeats

    def overdue(self, now_ns: int) -> list[Execution]:
        """Return the executions in flight whose deadline has passed."""
        return [
            each
            for each in self.in_flight.values()
            if each.deadline_ns is not None and each.deadline_ns <= now_ns
        ]

    def _find_job(self, name: str) -> Job:
        return select_jobs(self._registry, "WHERE job = ?", name)[0]


class WaitingReports:
    """Reports that wait for a commit; false if there is none.

    Devices take turns, and each has a limited share.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[tuple[Topic, ExecutionReport]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, topic: Topic, report: ExecutionReport) -> None:
        """Add a report of the topic's device; if there are too many, its oldest is dropped."""
        self._waiting.setdefault(topic.device, deque(maxlen=MOST_OF_ONE)).append((topic, report))

    def take(self, limit: int) -> list[tuple[Topic, ExecutionReport]]:
        """Remove and return the next reports, at most `limit`."""
        reports: list[tuple[Topic, ExecutionReport]] = []
        while self._waiting and len(reports) < limit:
            device, waiting = self._waiting.popitem(last=False)
            reports.append(waiting.popleft())
            if waiting:
                self._waiting[device] = waiting
        return reports
