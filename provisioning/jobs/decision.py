"""One round of decisions of the desk: what executions become, and what is said about it once that is committed."""

import logging

from edgemeter.agent.delivery.log_limit import about
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.jobs.contract import FINAL, Noted, Report
from edgemeter.provisioning.jobs import executions, sending, transitions
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.jobs.queue import Queue
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)


class Decision:
    """Collects what `changed`, by execution, and what is to be `said` (topic, payload); made within the transaction that keeps it."""

    def __init__(self, registry: Registry, queue: Queue, now_ns: int) -> None:
        self._registry = registry
        self._queue = queue
        self._now_ns = now_ns
        self.changed: dict[int, Execution] = {}
        self.said: list[tuple[str, bytes]] = []

    def report(self, topic: Topic, report: Report) -> None:
        """Take a device's report; whatever becomes of it, the device hears which version is held."""
        held = self._queue.find(report.job, topic.device) or self._ended(report.job, topic.device)
        if held is None:
            logger.info("%s reports on %s, which the registry does not have", topic.device, report.job, extra=about(topic.device))
        after = None if held is None else transitions.reported(held, self._queue.job(held), report, self._now_ns)
        if after is not None:
            self.note(after)
            if after.state == "rejected":
                logger.info("%s rejects %s: %s", topic.device, report.job, report.reason)
        said = _noted(report, after or held)
        self.said.append(sending.noted(topic.fleet, topic.device, said))
        given_up = held is not None and held.state in {"cancelled", "timed_out"} and report.attempt == held.attempt
        if held is not None and given_up and report.state not in FINAL:
            # It ended here without a word of its device, which goes on with it: one that was revoked and has come back.
            self.said.append(sending.order(held, self._queue.job(held)))

    def give_up(self, execution: int) -> None:
        """End an execution whose time is over, and tell its device so: it may yet have it."""
        held = self._queue.get(execution)
        if held is None or held.deadline_ns is None or held.deadline_ns > self._now_ns:
            return
        job = self._queue.job(held)
        after = transitions.overdue(held, job, self._now_ns)
        self.note(after)
        self.said.append(sending.order(after, job))

    def drop(self, device: str, reason: str) -> None:
        """End what a device has or waits for, since it will do nothing more."""
        for execution in self._queue.of_device(device):
            self.note(transitions.dropped(execution, reason, self._now_ns))

    def start(self, execution: int) -> None:
        """Start the next attempt of an execution."""
        held = self._queue.get(execution)
        if held is not None:
            self.note(transitions.started(held, self._queue.job(held), self._now_ns))

    def note(self, execution: Execution) -> None:
        """Take an execution as it is now."""
        self._queue.take(execution)
        self.changed[execution.id] = execution

    def _ended(self, job: str, device: str) -> Execution | None:
        found = next((one for one in self.changed.values() if one.job == job and one.device == device), None)
        return found or executions.find(self._registry, job, device)


def _noted(report: Report, held: Execution | None) -> Noted:
    """Return what a device hears of its report: how the execution stands now.

    A report on an attempt that is over here, or on a job that nobody has, is put to rest as if it were held.
    """
    version, state = report.expected_version + 1, report.state
    if held is not None:
        version = max(version, held.version)
        if report.attempt == held.attempt and held.state != "held" and held.state != "queued" and held.state != "sent":  # noqa: PLR1714 - narrows the type
            state = held.state
    return Noted(noted=report.job, attempt=report.attempt, version=version, state=state)
