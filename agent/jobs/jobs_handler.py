"""Receives the service's orders.

Each is written to the journal, then carried out in turn by a separate process, and reported.
"""

import logging
import time
from collections.abc import Callable

import msgspec

from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.base.file_lock import RunLock, is_locked
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.types import Count
from edgemeter.agent.contract import messages, orders
from edgemeter.agent.daemon.handler import IDLE_S, HandlerContext
from edgemeter.agent.identity.service_signature import ServiceSignature
from edgemeter.agent.jobs import journal, restart
from edgemeter.agent.jobs.content import BeginFetch, ContentFetcher, DeviceContent, begin_fetch
from edgemeter.agent.jobs.execution import Doing, ExecutionProcess, ExecutionTask
from edgemeter.agent.jobs.journal import Journal
from edgemeter.agent.jobs.order_check import OrderCheck
from edgemeter.agent.jobs.repeating import RepeatedOrders
from edgemeter.agent.machine import clock
from edgemeter.agent.update import order as update_order

FIRST_REPORT_PAUSE_S = 10.0
LONGEST_REPORT_PAUSE_S = 600.0


class ReportSender:
    """Sends the reports of `journal` until they are acknowledged.

    They are sent at once, then at growing intervals, and with every connection.
    """

    def __init__(
        self, context: HandlerContext, journal: Journal, clock_s: Callable[[], float]
    ) -> None:
        self._context = context
        self._journal = journal
        self._clock_s = clock_s
        # By number and content of the report: when it is sent again, and the pause after that.
        self._repeats: dict[tuple[int, int], tuple[float, float]] = {}

    def connected(self) -> None:
        """Send all of them again: reports in flight may be lost."""
        self._repeats.clear()

    def send(self) -> float:
        """Send the reports that are due; return the seconds until the next."""
        if not self._context.is_connected() or not self._journal.has_due():
            return IDLE_S
        now_s = self._clock_s()
        repeats: dict[tuple[int, int], tuple[float, float]] = {}
        for number, report in self._journal.due(self._context.session):
            key = (number, hash(report))
            at_s, pause_s = self._repeats.get(key, (now_s, FIRST_REPORT_PAUSE_S))
            if at_s <= now_s and self._context.publish(self._context.topic("job"), report):
                at_s, pause_s = now_s + pause_s, min(LONGEST_REPORT_PAUSE_S, 2 * pause_s)
            repeats[key] = (at_s, pause_s)
        self._repeats = repeats
        return max(0.5, min((at_s for at_s, _ in repeats.values()), default=now_s + IDLE_S) - now_s)


logger = logging.getLogger(__name__)

MOST_WAITING = 20
LOCK_POLL_S = 2.0
RUNNING_POLL_S = 5.0

# How often the progress of a download is reported, which may take hours.
FETCHING_REPORT_S = 2.0
GATHERED = "has fetched everything the order needs"
INTERRUPTED = "interrupted by a restart"


class JobsHandler:
    """Carries out the service's orders; see `Handler`.

    `execute` and `begin_fetch` start processes, `signature` verifies orders.
    """

    def __init__(
        self,
        context: HandlerContext,
        boot_id: Callable[[], str | None] = clock.boot_id,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        execute: Callable[..., ExecutionProcess] = ExecutionProcess,
        begin_fetch: BeginFetch = begin_fetch,
        signature: ServiceSignature | None = None,
    ) -> None:
        self.topics = (context.topic("command"),)
        self._context = context
        self._boot_id = boot_id()
        self._clock_s = clock_s
        self._execute = execute
        self._journal = Journal(context.home / journal.JOURNAL_FILE)
        self._check = OrderCheck(context, clock_s, signature)
        self._kept = DeviceContent(context.home, context.settings.content_limit_mb << 20)
        self._fetching = ContentFetcher(context, self._kept, clock_s, begin_fetch)
        self._repeated = RepeatedOrders(self._journal)
        self._reporting = ReportSender(context, self._journal, clock_s)
        self._lock = RunLock(context.home)
        self._running: ExecutionProcess | None = None
        self._reported: Doing | None = None
        self._measuring: messages.Measuring | None = None
        self._fetching_reported_s: float | None = None
        self._deadlines_s: dict[int, float] = {}
        self._recover()

    def connected(self) -> None:
        """Resend unacknowledged reports, and report that no measurement is in progress.

        The latter is so if none is.
        """
        self._check.connected()
        self._reporting.connected()
        if self._running is None and not is_locked(self._lock.path):
            self._report_activity(None)

    def received(self, message: Message) -> None:
        # A command that the service has not signed for this device changes nothing and gets no
        # answer.
        signed = self._check.command(message.payload)
        if signed is None:
            return
        try:
            command = orders.decode_command(signed)
        except ConfigError as error:
            self._refuse(signed, error)
            raise
        if isinstance(command, orders.ReportReceipt):
            self._journal.noted(command)
        else:
            self._accept(command)

    def poll(self) -> float:
        """Start, follow and end orders; send reports."""
        return min(
            self._check.poll(), self._repeated.poll(), self._advance(), self._reporting.send()
        )

    def close(self) -> None:
        """End the running order, which the journal will show as interrupted."""
        self._fetching.stop()
        if self._running is not None:
            self._running.end()
            self._set_idle()
        self._lock.release()
        self._journal.close()

    def _recover(self) -> None:
        for entry in self._journal.open_ones():
            if entry.state != "running":
                continue
            if isinstance(entry.order.work, orders.Restart):
                if reason := restart.came_of(entry.order.work, entry.boot_id, self._boot_id):
                    self._journal.ends(entry.place, "done", reason)
            elif not isinstance(entry.order.work, orders.Update):
                self._end_cut_off(entry, INTERRUPTED)

    def _end_cut_off(self, entry: journal.JournalEntry, reason: str) -> None:
        """End an order whose process did not report.

        If its last run is in the outbox it is done, and is not measured again.
        """
        self._journal.ends(entry.place, "done" if entry.is_measured else "failed", reason)

    def _refuse(self, payload: bytes, error: ConfigError) -> None:
        """Report a rejected order to the service, if it can be decoded at all.

        Nothing of it is stored.
        """
        try:
            outline = decode_json(payload[: orders.LARGEST_ORDER_BYTES], _OrderOutline)
        except msgspec.MsgspecError:
            return
        report = orders.ExecutionReport(
            job=outline.job,
            attempt=outline.attempt,
            expected_version=outline.version,
            state="rejected",
            session=self._context.session,
            reason=str(error)[:2000],
        )
        self._context.publish(self._context.topic("job"), orders.encode_order(report))

    def _accept(self, order: orders.Order) -> None:
        entry = self._journal.find(order.job, order.attempt)
        if isinstance(order.work, orders.Cancel):
            self._cancel(order, entry)
        elif entry is not None:
            self._journal.answer_again(entry.place, order.version)
        elif (last := self._journal.last_attempt(order.job)) > order.attempt:
            self._journal.add(order, "rejected", f"attempt {last} of this job is known already")
        else:
            for earlier in (*self._journal.open_ones(), *self._journal.repeating()):
                if earlier.order.job == order.job:
                    self._give_up(earlier, "cancelled", f"attempt {order.attempt} was ordered")
            why = self._why_not(order)
            self._journal.add(order, "rejected" if why else "accepted", why)

    def _why_not(self, order: orders.Order) -> str | None:
        waiting = self._journal.open_ones()
        if len(waiting) >= MOST_WAITING:
            return f"busy: {len(waiting)} orders are waiting"
        work = order.work
        try:
            if isinstance(work, orders.Restart):
                restart.check(work, self._context.home)
            if isinstance(work, orders.Update):
                update_order.check(work)
        except EdgemeterError as error:
            return str(error)
        return None

    def _cancel(self, order: orders.Order, entry: journal.JournalEntry | None) -> None:
        if entry is None:
            self._journal.add(order, "cancelled", "cancelled before it arrived")
            return
        if not entry.is_final:
            self._give_up(entry, "cancelled", "cancelled by the server")
        self._journal.answer_again(entry.place, order.version)

    def _give_up(self, entry: journal.JournalEntry, state: orders.JobState, reason: str) -> None:
        # Killed first: then it writes nothing more.
        if self._running is not None and self._running.place == entry.place:
            self._running.end()
            self._set_idle()
        self._lock.release()
        if isinstance(entry.order.work, orders.Restart):
            restart.withdraw(self._context.home)
        elif isinstance(entry.order.work, orders.Update):
            update_order.withdraw(entry.order, self._context.home)
        self._journal.ends(entry.place, state, reason)
        for repeated in self._journal.open_ones() if entry.state == "repeating" else ():
            if repeated.repeats == entry.order.job:
                self._give_up(repeated, state, reason)

    def _advance(self) -> float:
        opened = self._journal.open_ones()
        now_s = self._clock_s()
        self._deadlines_s = {
            entry.place: self._deadlines_s.get(entry.place, now_s + entry.order.timeout_s)
            for entry in opened
        }
        for entry in opened:
            if now_s >= self._deadlines_s[entry.place]:
                self._give_up(
                    entry,
                    "timed_out",
                    f"not done in {entry.order.timeout_s:g} s; {entry.reason or entry.state}",
                )
        if self._running is not None and not self._has_ended(self._running):
            return min(RUNNING_POLL_S, self._next_deadline())
        opened = self._journal.open_ones()
        if not opened:
            self._fetching.stop()
            return IDLE_S
        entry = opened[0]
        if entry.state == "running":
            return self._await(entry)
        try:
            return min(self._begin(entry), self._next_deadline())
        except TransientError:
            raise
        except (ConfigError, UnavailableError) as error:
            self._give_up(entry, "rejected", str(error))
        except EdgemeterError as error:
            self._give_up(entry, "failed", str(error))
        return 0.0

    def _next_deadline(self) -> float:
        return max(0.0, min(self._deadlines_s.values(), default=float("inf")) - self._clock_s())

    def _has_ended(self, running: ExecutionProcess) -> bool:
        if running.status() is None:
            latest = running.latest
            if latest is not None and latest != self._reported:
                self._reported = latest
                self._report(latest.doing, latest.done_ratio)
            return False
        running.end()
        self._set_idle()
        entry = self._journal.read(running.place)
        if entry is not None and entry.state == "running":
            self._end_cut_off(entry, running.failure())
        return True

    def _await(self, entry: journal.JournalEntry) -> float:
        """Wait for an order that ends after a restart of the agent or of the board."""
        if isinstance(entry.order.work, orders.Update):
            if ended := update_order.came_of(entry.order):
                self._journal.ends(entry.place, *ended)
                return 0.0
            self._note_waiting(entry, update_order.why_waiting(entry.order))
        return RUNNING_POLL_S

    def _begin(self, entry: journal.JournalEntry) -> float:
        pause_s = self._gather(entry)
        if pause_s is not None:
            return pause_s
        work = entry.order.work
        if isinstance(work, orders.Measure) and work.repeats:
            self._repeated.begin(entry.place, work)
            return 0.0
        if isinstance(work, orders.Update):
            # Requested first, so that no kill loses it: the supervisor ignores a second request for
            # the same order.
            update_order.carry_out(entry.order, self._context.home)
            self._journal.begins(entry.place, self._boot_id)
            return 0.0
        if not isinstance(work, orders.Logs):
            has_lock = self._lock.take(f"job {entry.order.job}")
            if (note := self._lock.pop_note()) is not None:
                logger.warning("%s", note)
            if not has_lock:
                self._note_waiting(entry, f"busy: waiting for {self._lock.holder()}")
                return LOCK_POLL_S
        if self._journal.begins(entry.place, self._boot_id):
            self._start(entry)
        return RUNNING_POLL_S

    def _gather(self, entry: journal.JournalEntry) -> float | None:
        """Download the order's content.

        Returns None when it is complete, else the seconds to the next poll.
        """
        contents = orders.contents_of(entry.order.work)
        in_use = {
            content.sha256
            for waiting in (*self._journal.open_ones(), *self._journal.repeating())
            for content in orders.contents_of(waiting.order.work)
        }
        pause_s = self._fetching.fetch(contents, in_use)
        if pause_s is None:
            for content in contents:
                self._kept.used(content)
        self._report_fetching()
        return pause_s

    def _report_fetching(self) -> None:
        progress, last_s, now_s = (
            self._fetching.progress(),
            self._fetching_reported_s,
            self._clock_s(),
        )
        if progress is None and last_s is not None:
            self._fetching_reported_s = None
            self._report(GATHERED)
        elif progress is not None and (last_s is None or now_s >= last_s + FETCHING_REPORT_S):
            self._fetching_reported_s = now_s
            self._report(progress)

    def _report(self, doing: str, done_ratio: float | None = None) -> None:
        self._context.publish(
            self._context.topic("progress"),
            messages.encode_message(
                messages.Progress(session=self._context.session, doing=doing, done_ratio=done_ratio)
            ),
            qos=0,
        )

    def _report_activity(self, measuring: messages.Measuring | None) -> None:
        self._measuring = measuring
        self._context.publish(
            self._context.topic("activity"),
            messages.encode_message(
                messages.Activity(session=self._context.session, measuring=measuring)
            ),
            qos=0,
            lasting="retained",
        )

    def _set_idle(self) -> None:
        self._running = None
        if self._measuring is not None:
            self._report_activity(None)

    def _start(self, entry: journal.JournalEntry) -> None:
        work = entry.order.work
        if isinstance(work, orders.Restart):
            restart.request(work, self._context.home, self._context.restart)
            if work.what == "board":
                # The supervisor reads it before it acts.
                self._lock.release()
            return
        task = ExecutionTask(
            # Runs of a repetition belong to the ordered job.
            order=entry.order
            if entry.repeats is None
            else msgspec.structs.replace(entry.order, job=entry.repeats),
            place=entry.place,
            home=str(self._context.home.absolute()),
            device=self._context.device,
            fleet=self._context.fleet,
            config=str(self._context.config.absolute()) if self._context.config else None,
            contents={
                content.sha256: str(self._kept.path(content).absolute())
                for content in orders.contents_of(entry.order.work)
            },
            log=tuple(self._context.log()) if isinstance(work, orders.Logs) else (),
        )
        self._running = self._execute(
            task,
            self._context.wake,
            self._report_activity,
            None if isinstance(work, orders.Logs) else self._lock.descriptor(),
        )
        self._reported = None
        # From here on only the child holds it, until it ends.
        self._lock.release()

    def _note_waiting(self, entry: journal.JournalEntry, why: str | None) -> None:
        if entry.reason != why:
            self._journal.waits(entry.place, why)


class _OrderOutline(msgspec.Struct, frozen=True):
    job: orders.JobId
    attempt: Count
    version: Count
