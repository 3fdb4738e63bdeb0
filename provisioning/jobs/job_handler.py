"""The handler for jobs, which sends orders to online devices.

It also applies their reports, and gives up overdue ones. A decision is committed to the registry
before it is published, so a kill at any moment costs nothing: orders are repeated and answered from
the device's journal, and reports are repeated until they are acknowledged. Each poll reads only
changes.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.number_text import count
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import DeviceState, Progress, Topic, parse_topic, topics_of
from edgemeter.agent.contract.orders import (
    FINAL,
    Cancel,
    ExecutionReport,
    Order,
    ReportReceipt,
    decode_report,
    encode_order,
)
from edgemeter.agent.contract.sealed import encode_addressed
from edgemeter.provisioning.identity.authority import ServiceKey
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs.scheduler import (
    JobQueue,
    WaitingReports,
    apply_report,
    drop,
    expire,
    needs_sending,
    start_attempt,
)
from edgemeter.provisioning.registry.jobs import (
    ON_DEVICE,
    Execution,
    Job,
    find_execution,
    write_executions,
)
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

FIRST_RETRY_S, LONGEST_RETRY_S, MOST_DOUBLINGS = 10.0, 300.0, 10
# One commit has at most this many reports and starts, so that no other handler waits long.
BATCH_SIZE = 500
# Reports acknowledged to one device between two polls; further ones are dropped until then.
MOST_UNKNOWN = 8
# Waiting executions are checked again this often even without changes, for retries and revocations.
CANDIDATES_POLL_S = REVOKED_POLL_S = 2.0
PROGRESS_S = 2.0
# After a pause of the service or the broker, devices have this long to report earlier events before
# they are given up.
PAUSE_S, PATIENCE_S = 10.0, 60.0
# A device that reconnects may bring the end of an attempt that was given up, or be another agent
# with its key while the first carries out the order: it has this long to report before the next
# attempt is sent. The same applies to a session that follows another before an order is sent again.
BEFORE_RETRY_S = 5.0
LONGEST_PROGRESS = 200


class _Sending(NamedTuple):
    """A message that is sent until it is answered: how often it was sent, and when next."""

    content: tuple[int, str | None]
    tries: int
    next_ns: int


class _ReadyExecution(NamedTuple):
    """An execution that may start from `due_ns` on.

    Those that do not measure start first, then those due first.
    """

    measures: bool
    due_ns: int
    number: int


class OrderSender:
    """Stores which devices are `online`, and the unanswered orders.

    `due` returns those to send again, with growing pauses. After a kill all are sent once more.
    """

    def __init__(self) -> None:
        self.online: dict[str, DeviceState] = {}
        self._tries: dict[int, _Sending] = {}

    def is_online(self, device: str) -> bool:
        """Return whether the device last reported that it is online.

        It must also have reported the value that orders to it must repeat.
        """
        return self.challenge(device) is not None

    def challenge(self, device: str) -> str | None:
        """Return the value that orders to the device must repeat.

        It is None if the device is offline or did not report one.
        """
        state = self.online.get(device)
        return state.challenge if state is not None else None

    def reported(self, device: str, state: DeviceState) -> bool:
        """Store a device's state; return whether it is news.

        The end of a session that was followed by another is not.
        """
        before = self.online.get(device)
        if state.state == "online":
            self.online[device] = state
            return state != before
        is_new = before is not None and before.session == state.session
        if is_new:
            del self.online[device]
        return is_new

    def begin(self, execution: Execution, now_ns: int) -> None:
        """Send this execution's message to its device, now and until it answers."""
        self._tries[execution.id] = _Sending(_content(execution), 0, now_ns)

    def end(self, execution: int) -> None:
        """Send nothing more for an execution."""
        self._tries.pop(execution, None)

    def is_under_way(self, execution: Execution) -> bool:
        """Return whether exactly this is being sent: this attempt, or the request to cancel it."""
        return execution.id in self._tries and self._tries[execution.id].content == _content(
            execution
        )

    def due(self, now_ns: int) -> list[int]:
        """Return the executions whose message is due, and schedule the next."""
        due = [
            (execution, sending)
            for execution, sending in self._tries.items()
            if sending.next_ns <= now_ns
        ]
        for execution, (content, tries, _) in due:
            again_ns = now_ns + int(min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0**tries) * NS_PER_S)
            self._tries[execution] = _Sending(content, min(tries + 1, MOST_DOUBLINGS), again_ns)
        return [execution for execution, _ in due]


def order_message(execution: Execution, job: Job) -> tuple[Topic, Order]:
    work = (
        Cancel()
        if execution.requested == "cancel" or execution.state not in ON_DEVICE
        else job.works[execution.work]
    )
    order = Order(
        job=execution.job,
        attempt=execution.attempt,
        version=execution.version,
        work=work,
        timeout_s=job.timeout_s,
    )
    return Topic(execution.fleet, execution.device, "command"), order


def _content(execution: Execution) -> tuple[int, str | None]:
    return execution.attempt, execution.requested


class DecisionRound:
    """One round of decisions on the `changed` executions.

    The `messages` are published once the decisions are committed.
    """

    def __init__(self, registry: Registry, queue: JobQueue, now_ns: int) -> None:
        self._registry = registry
        self._queue = queue
        self._now_ns = now_ns
        self.changed: dict[int, Execution] = {}
        self.messages: list[tuple[Topic, Order | ReportReceipt]] = []

    def report(self, topic: Topic, report: ExecutionReport) -> None:
        """Apply a device's report; in any case the device is sent the stored version."""
        execution = self._queue.find(report.job, topic.device)
        if execution is None:
            changed = (
                each
                for each in self.changed.values()
                if (each.job, each.device) == (report.job, topic.device)
            )
            execution = next(changed, None) or find_execution(
                self._registry, report.job, topic.device
            )
        after = (
            None
            if execution is None
            else apply_report(execution, self._queue.job(execution), report, self._now_ns)
        )
        if after is not None:
            self.note(after)
            if after.state == "rejected":
                logger.info("%s rejects %s: %s", topic.device, report.job, report.reason)
        self.messages.append(
            (replace(topic, kind="command"), _report_receipt(report, after or execution))
        )
        given_up = (
            execution is not None
            and execution.state in {"cancelled", "timed_out"}
            and report.attempt == execution.attempt
        )
        if execution is not None and given_up and report.state not in FINAL:
            # It ended here without a report of its device, which still works on it: one that was
            # revoked and has come back.
            self.messages.append(order_message(execution, self._queue.job(execution)))

    def give_up(self, execution: Execution) -> None:
        """End an execution whose deadline has passed, and inform its device.

        The device may still work on it.
        """
        job = self._queue.job(execution)
        after = expire(execution, job, self._now_ns)
        self.note(after)
        self.messages.append(order_message(after, job))

    def note(self, execution: Execution) -> None:
        self._queue.take(execution)
        self.changed[execution.id] = execution


def _report_receipt(report: ExecutionReport, execution: Execution | None) -> ReportReceipt:
    """Return the receipt for a report: the present state of the execution.

    A report on an attempt that is over here, or on an unknown job, is acknowledged as if it were
    stored.
    """
    version, state = report.expected_version + 1, report.state
    if execution is not None:
        version = max(version, execution.version)
        if (
            report.attempt == execution.attempt  # noqa: PLR1714 - narrows the type
            and execution.state != "held"
            and execution.state != "queued"
            and execution.state != "sent"
        ):
            state = execution.state
    return ReportReceipt(noted=report.job, attempt=report.attempt, version=version, state=state)


class JobHandler:
    """Delivers jobs to devices; `serve/handler.py` documents how it is called."""

    topics = (topics_of("job"), topics_of("state"), topics_of("progress"))

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:
        self._registry = registry
        self._publish = publish
        self._key = ServiceKey(folder)
        self._sender = OrderSender()
        self._queue: JobQueue | None = None
        self._reports = WaitingReports()
        # By device: reports on unknown jobs since the last poll.
        self._unknown: Counter[str] = Counter()
        self._progress: dict[str, Progress] = {}
        # The next execution of each device that is online and idle.
        self._ready: dict[str, _ReadyExecution] = {}
        self._moved: set[str] = set()
        # By device: the session that was last online; those that another has replaced since the
        # last poll.
        self._sessions: dict[str, int] = {}
        self._replaced: set[str] = set()
        self._came_ns: dict[str, int] = {}
        # Open executions of revoked devices: a device that comes back learns at once that they are
        # over, not at its next report.
        self._dropped: dict[str, list[Execution]] = {}
        self._candidates_ns = 0
        self._revoked_ns = 0
        self._progress_ns = 0
        self._polled_ns = 0
        self._patient_ns = 0

    def received(self, message: Message) -> None:
        """Receive a report, a device's state, or its progress.

        A report on an unknown job is acknowledged, and dropped.
        """
        topic = parse_topic(message.topic)
        if topic.kind == "job":
            self._report(topic, decode_report(message.payload))
        elif topic.kind == "state":
            state = messages.decode_state(message.payload)
            if self._sender.reported(topic.device, state):
                self._moved.add(topic.device)
                if (
                    state.state == "online"
                    and self._sessions.setdefault(topic.device, state.session) != state.session
                ):
                    self._sessions[topic.device] = state.session
                    self._replaced.add(topic.device)
                if state.state == "online" and state.challenge is None:
                    asking = encode_addressed(topic.fleet, topic.device, None, b"{}")
                    self._publish(str(replace(topic, kind="command")), self._key.seal(asking))
        elif topic.kind == "progress":
            self._progress[topic.device] = messages.decode_progress(message.payload)

    def _report(self, topic: Topic, report: ExecutionReport) -> None:
        if self._unknown[topic.device] >= MOST_UNKNOWN:
            return
        is_open = self._queue is not None and self._queue.find(report.job, topic.device) is not None
        if not is_open and find_execution(self._registry, report.job, topic.device) is None:
            self._unknown[topic.device] += 1
            logger.info(
                "%s reports on unknown job %s", topic.device, report.job, extra=about(topic.device)
            )
            self._send(replace(topic, kind="command"), _report_receipt(report, None))
            return
        self._reports.add(topic, report)

    def poll(self, now_ns: int) -> None:
        """Apply reports, give up overdue executions, start waiting ones, send due messages."""
        self._unknown.clear()
        queue = self._loaded()
        revoked: list[str] = []
        if now_ns >= self._revoked_ns:
            self._revoked_ns = now_ns + int(REVOKED_POLL_S * NS_PER_S)
            revoked = [
                device
                for (device,) in self._registry.query(
                    "SELECT device FROM devices WHERE trust = 'revoked'"
                )
                if queue.of_device(device)
            ]
        self._follow(queue, queue.refresh(), now_ns)
        self._meet(queue, now_ns)
        # Nothing is given up soon after a pause in which devices could not report (no broker, no
        # service).
        if now_ns - self._polled_ns > int(PAUSE_S * NS_PER_S):
            self._patient_ns = now_ns + int(PATIENCE_S * NS_PER_S)
        self._polled_ns = now_ns
        if (
            self._reports
            or revoked
            or self._overdue(queue, now_ns)
            or self._has_candidates(now_ns)
            or self._has_progress(now_ns)
        ):
            self._decide(queue, revoked, now_ns)
        for number in self._sender.due(now_ns):
            execution = queue.open.get(number)
            if execution is None or not needs_sending(execution):
                self._sender.end(number)
            elif self._sender.is_online(execution.device):
                self._send(*order_message(execution, queue.job(execution)))

    def close(self) -> None:
        self._queue = None

    def _loaded(self) -> JobQueue:
        if self._queue is None:
            self._queue = JobQueue(self._registry)
            self._ready.clear()
            self._moved = set(self._sender.online)
            if self._queue.open:
                logger.info(
                    "%s unfinished since the last start",
                    count(len(self._queue.open), "job execution"),
                )
        return self._queue

    def _meet(self, queue: JobQueue, now_ns: int) -> None:
        """Send reconnected devices their unanswered messages.

        The next execution is determined for each device that came or went.
        """
        for device in self._moved:
            self._came_ns[device] = now_ns
            is_online = self._sender.is_online(device)
            pause_ns = int(BEFORE_RETRY_S * NS_PER_S) if device in self._replaced else 0
            for execution in filter(needs_sending, queue.of_device(device)) if is_online else ():
                self._sender.begin(execution, now_ns + pause_ns)
            for over in self._dropped.pop(device, ()) if is_online else ():
                self._send(*order_message(over, queue.job(over)))
            self._find_candidate(queue, device)
        self._moved.clear()
        self._replaced.clear()

    def _follow(self, queue: JobQueue, changed: Iterable[Execution], now_ns: int) -> None:
        for execution in changed:
            if not needs_sending(execution):
                self._sender.end(execution.id)
            elif not self._sender.is_under_way(execution):
                self._sender.begin(execution, now_ns)
            self._find_candidate(queue, execution.device)

    def _find_candidate(self, queue: JobQueue, device: str) -> None:
        # A device that has just connected is handled first.
        execution = (
            queue.first(device)
            if self._sender.is_online(device) and device in self._came_ns
            else None
        )
        if execution is None:
            self._ready.pop(device, None)
        else:
            earliest_ns = (
                self._came_ns[device] + int(BEFORE_RETRY_S * NS_PER_S) if execution.attempt else 0
            )
            self._ready[device] = _ReadyExecution(
                queue.measures(execution),
                max(execution.due_ns, earliest_ns),
                execution.id,
            )
        # Something ended or arrived: others may start too.
        self._candidates_ns = 0

    def _overdue(self, queue: JobQueue, now_ns: int) -> list[Execution]:
        return queue.overdue(now_ns) if now_ns >= self._patient_ns else []

    def _has_candidates(self, now_ns: int) -> bool:
        return bool(self._ready) and now_ns >= self._candidates_ns

    def _has_progress(self, now_ns: int) -> bool:
        return bool(self._progress) and now_ns >= self._progress_ns

    def _decide(self, queue: JobQueue, revoked: list[str], now_ns: int) -> None:
        """Decide, commit, and only then publish."""
        reports = self._reports.take(BATCH_SIZE)
        dropped = []
        try:
            with self._registry.transaction() as connection:
                self._follow(queue, queue.refresh(), now_ns)
                decisions = DecisionRound(self._registry, queue, now_ns)
                for topic, report in reports:
                    decisions.report(topic, report)
                for execution in self._overdue(queue, now_ns):
                    decisions.give_up(execution)
                for execution in (
                    open_one for device in revoked for open_one in queue.of_device(device)
                ):
                    over = drop(execution, "its device was revoked", now_ns)
                    decisions.note(over)
                    if execution.state in ON_DEVICE:
                        dropped.append(over)
                self._note_progress(queue, decisions, now_ns)
                for execution in decisions.changed.values():
                    self._find_candidate(queue, execution.device)
                if self._has_candidates(now_ns):
                    self._start(queue, decisions, now_ns)
                write_executions(connection, decisions.changed.values())
        except EdgemeterError:
            # The queue may be ahead of the registry now; devices repeat unacknowledged reports.
            self._queue = None
            raise
        for over in dropped:
            self._dropped.setdefault(over.device, []).append(over)
        self._follow(queue, decisions.changed.values(), now_ns)
        for topic, command in decisions.messages:
            self._send(topic, command)

    def _send(self, topic: Topic, command: Order | ReportReceipt) -> None:
        """Sign a command for one device and its present challenge, and publish it.

        An offline device reports again when it is back.
        """
        challenge = self._sender.challenge(topic.device)
        if challenge is not None:
            self._publish(
                str(topic),
                self._key.seal(
                    encode_addressed(topic.fleet, topic.device, challenge, encode_order(command))
                ),
            )

    def _start(self, queue: JobQueue, decisions: DecisionRound, now_ns: int) -> None:
        exclusive = {execution.exclusive for execution in queue.in_flight.values()} - {None}
        started_count = 0
        for device, ready in sorted(self._ready.items(), key=itemgetter(1)):
            execution = queue.open.get(ready.number)
            if execution is None or ready.due_ns > now_ns or execution.exclusive in exclusive:
                continue
            decisions.note(start_attempt(execution, queue.job(execution), now_ns))
            exclusive |= {execution.exclusive} - {None}
            del self._ready[device]
            started_count += 1
            if started_count == BATCH_SIZE:
                break
        self._candidates_ns = now_ns + int(CANDIDATES_POLL_S * NS_PER_S)

    def _note_progress(self, queue: JobQueue, decisions: DecisionRound, now_ns: int) -> None:
        if not self._has_progress(now_ns):
            return
        self._progress_ns = now_ns + int(PROGRESS_S * NS_PER_S)
        for device, progress in self._progress.items():
            execution, doing = queue.in_flight.get(device), progress.doing[:LONGEST_PROGRESS]
            if (
                execution is not None
                and execution.state != "sent"
                and (doing, progress.done_ratio) != (execution.doing, execution.done_ratio)
            ):
                decisions.note(replace(execution, doing=doing, done_ratio=progress.done_ratio))
        self._progress.clear()
