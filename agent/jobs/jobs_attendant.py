"""Takes the server's orders: each into the journal first, then in its turn to a process of its own, and its reports back.

One order at a time, in the order of arrival. Whatever measures holds the run lock, and waits for it while somebody measures by hand.
"""

import logging
import time
from collections.abc import Callable

import msgspec

from edgemeter.agent.delivery import messages
from edgemeter.agent.delivery.attendant import IDLE_S, Post
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.jobs import contract, cron, journal, restarting, updating
from edgemeter.agent.jobs.contract import Cancel, Noted, Order, Report
from edgemeter.agent.jobs.execution import Execution
from edgemeter.agent.jobs.execution_task import Doing, Task
from edgemeter.agent.jobs.fetching import Fetching
from edgemeter.agent.jobs.journal import Journal
from edgemeter.agent.jobs.kept_content import KeptContent
from edgemeter.agent.jobs.reporting import Reporting
from edgemeter.agent.jobs.run_lock import RunLock
from edgemeter.agent.jobs.schedules import Schedules, contents_of, due_contents
from edgemeter.agent.machine import clock

logger = logging.getLogger(__name__)

MOST_WAITING = 20
LOCK_LOOK_S = 2.0
RUNNING_LOOK_S = 5.0
# How often, and after how much more, the server hears how far a job is.
PROGRESS_S = 15.0
PROGRESS_RATIO = 0.05
# How often it hears what is fetched, which may take hours.
FETCHING_S = 2.0
GATHERED = "has all that the order names"
INTERRUPTED = "interrupted by a restart"


class JobsAttendant:
    """The attendant; see `Attendant`."""

    def __init__(
        self, post: Post, clock_s: Callable[[], float] = time.monotonic, boot_id: Callable[[], str | None] = clock.boot_id
    ) -> None:
        self.topics = (post.topic("command"), post.topic("content"))
        self._post = post
        self._clock_s = clock_s
        self._boot_id = boot_id()
        self._journal = Journal(post.home / journal.NAME)
        self._kept = KeptContent(post.home, post.settings.content_limit_mb << 20)
        self._fetching = Fetching(post, self._kept)
        self._schedules = Schedules(self._journal)
        self._reporting = Reporting(post, self._journal)
        self._lock = RunLock(post.home)
        self._running: Execution | None = None
        self._said: Doing | None = None
        self._proceeded_s = 0.0
        self._measured_s = float("-inf")
        self._fetching_told_s: float | None = None
        self._deadlines_s: dict[int, float] = {}
        self._asked_for: int | None = None
        self._recover()

    def connected(self) -> None:
        """Send again what has no answer."""
        self._reporting.connected()
        self._fetching.connected()

    def received(self, message: Message) -> None:
        """Take an order, an acknowledgement or a piece of content."""
        if message.topic == self.topics[1]:
            self._fetching.received(message.payload)
            return
        try:
            said = contract.decode_command(message.payload)
        except ConfigError as error:
            self._refuse(message.payload, error)
            raise
        if isinstance(said, Noted):
            self._journal.noted(said)
        else:
            self._take(said)

    def look(self) -> float:
        """Begin, follow and end what is due; report."""
        pauses = [self._schedules.look(), self._advance()]
        pauses.append(self._reporting.send())
        return min(pauses)

    def close(self) -> None:
        """End what runs: the journal knows that it was interrupted."""
        self._fetching.stop()
        if self._running is not None:
            self._running.end()
            self._running = None
        self._lock.release()
        self._journal.close()

    def _recover(self) -> None:
        for one in self._journal.open_ones():
            if one.state != "running":
                continue
            if isinstance(one.order.work, contract.Restart):
                if reason := restarting.came_of(one.order.work, one.boot_id, self._boot_id):
                    self._journal.ends(one.place, "done", reason)
            elif not isinstance(one.order.work, contract.Update):
                self._journal.ends(one.place, "failed", INTERRUPTED)

    def _refuse(self, payload: bytes, error: ConfigError) -> None:
        """Tell the server which order is refused, where that can be read at all; nothing of it is kept."""
        try:
            outline = msgspec.json.decode(payload[: contract.LARGEST_ORDER_BYTES], type=_Outline)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        report = Report(
            job=outline.job,
            attempt=outline.attempt,
            expected_version=outline.version,
            state="rejected",
            session=self._post.session,
            reason=str(error)[:2000],
        )
        self._post.publish(self._post.topic("job"), contract.encode(report))

    def _take(self, order: Order) -> None:
        known = self._journal.find(order.job, order.attempt)
        if isinstance(order.work, Cancel):
            self._cancel(order, known)
        elif known is not None:
            self._journal.answer_again(known.place, order.version)
        elif (last := self._journal.last_attempt(order.job)) > order.attempt:
            self._journal.add(order, "rejected", f"attempt {last} of this job is known already")
        else:
            for earlier in self._journal.open_ones():
                if earlier.order.job == order.job:
                    self._give_up(earlier, "cancelled", f"attempt {order.attempt} was ordered")
            why = self._why_not(order)
            self._journal.add(order, "rejected" if why else "accepted", why)

    def _why_not(self, order: Order) -> str | None:
        waiting = self._journal.open_ones()
        if len(waiting) >= MOST_WAITING:
            return f"busy: {len(waiting)} orders wait already"
        work = order.work
        try:
            if isinstance(work, contract.Schedule) and work.cron.strip():
                cron.parse(work.cron)
            if isinstance(work, contract.Restart):
                restarting.check(work, self._post.home)
            if isinstance(work, contract.Update):
                updating.check(work, self._post.home)
        except EdgemeterError as error:
            return str(error)
        return None

    def _cancel(self, order: Order, known: journal.Execution | None) -> None:
        if known is None:
            self._journal.add(order, "cancelled", "cancelled before it came")
            return
        if not known.is_final:
            self._give_up(known, "cancelled", "cancelled by the server")
        self._journal.answer_again(known.place, order.version)

    def _give_up(self, one: journal.Execution, state: contract.State, reason: str) -> None:
        # Ended first: what is killed writes nothing more.
        if self._running is not None and self._running.place == one.place:
            self._running.end()
            self._running = None
            self._measured_s = self._clock_s()
        self._lock.release()
        if isinstance(one.order.work, contract.Restart):
            restarting.take_back(self._post.home)
        elif isinstance(one.order.work, contract.Update):
            updating.withdraw(one.order, self._post.home)
        self._journal.ends(one.place, state, reason)

    def _advance(self) -> float:
        """Bring the order whose turn it is forward; return after how long to look again."""
        opened = self._journal.open_ones()
        self._end_overdue(opened)
        if self._running is not None and not self._has_ended(self._running):
            return min(RUNNING_LOOK_S, self._next_deadline())
        opened = self._journal.open_ones()
        if not opened:
            self._fetching.stop()
            return IDLE_S
        one = opened[0]
        if one.state == "running":
            return self._await(one)
        try:
            return min(self._begin(one), self._next_deadline())
        except TransientError:
            raise
        except (ConfigError, UnavailableError) as error:
            self._give_up(one, "rejected", str(error))
        except EdgemeterError as error:
            self._give_up(one, "failed", str(error))
        return 0.0

    def _end_overdue(self, opened: list[journal.Execution]) -> None:
        now_s = self._clock_s()
        self._deadlines_s = {one.place: self._deadlines_s.get(one.place, now_s + one.order.timeout_s) for one in opened}
        for one in opened:
            if now_s >= self._deadlines_s[one.place]:
                self._give_up(one, "timed_out", f"not done in {one.order.timeout_s:g} s; {one.reason or one.state}")

    def _next_deadline(self) -> float:
        return max(0.0, min(self._deadlines_s.values(), default=float("inf")) - self._clock_s())

    def _has_ended(self, running: Execution) -> bool:
        status = running.status()
        if status is None:
            self._follow(running)
            return False
        running.end()
        self._running = None
        self._measured_s = self._clock_s()
        found = self._journal.read(running.place)
        if found is not None and found.state == "running" and not (isinstance(found.order.work, contract.Update) and status == 0):
            self._journal.ends(running.place, "failed", running.obituary())
        return True

    def _follow(self, running: Execution) -> None:
        latest, now_s = running.latest, self._clock_s()
        if latest is None or latest == self._said:
            return
        self._said = latest
        self._tell(latest.doing)
        known = self._journal.read(running.place)
        if latest.done_ratio is None or known is None or now_s - self._proceeded_s < PROGRESS_S:
            return
        if latest.done_ratio >= (known.done_ratio or 0.0) + PROGRESS_RATIO:
            self._proceeded_s = now_s
            self._journal.proceeds(running.place, latest.done_ratio)

    def _await(self, one: journal.Execution) -> float:
        """Wait for what ends after a restart of the agent or of the board."""
        if not isinstance(one.order.work, contract.Update):
            return RUNNING_LOOK_S
        if ended := updating.came_of(one.order, self._post.home):
            self._journal.ends(one.place, *ended)
            return 0.0
        if self._asked_for != one.place:
            # Whether the supervisor was asked before the restart is not known; it heeds the second wish for the same order no more.
            self._start(one)
        return RUNNING_LOOK_S

    def _begin(self, one: journal.Execution) -> float:
        pause_s = self._gather(one)
        if pause_s is not None:
            return pause_s
        work = one.order.work
        if isinstance(work, contract.Schedule):
            self._journal.ends(one.place, "done", self._schedules.put(one.order))
            return 0.0
        if isinstance(work, contract.Measure) and (cool_s := self._measured_s + work.cool_down_s - self._clock_s()) > 0:
            self._say_waiting(one, f"cools down for {work.cool_down_s:g} s")
            return cool_s
        if _needs_quiet(one) and not self._lock.take(f"job {one.order.job}"):
            self._say_waiting(one, f"busy: waits for {self._lock.holder()}")
            return LOCK_LOOK_S
        if self._journal.begins(one.place, self._boot_id):
            self._start(one)
        return RUNNING_LOOK_S

    def _gather(self, one: journal.Execution) -> float | None:
        """Bring what the order names; return None when all of it is here, else after how long to look again."""
        contents = contents_of(one)
        in_use = {content.sha256 for content in due_contents(self._schedules.read())}
        in_use |= {content.sha256 for waiting in self._journal.open_ones() for content in contents_of(waiting)}
        pause_s = self._fetching.bring(contents, in_use)
        if pause_s is None:
            for content in contents:
                self._kept.used(content)
        self._tell_fetching()
        return pause_s

    def _tell_fetching(self) -> None:
        told, last_s, now_s = self._fetching.told(), self._fetching_told_s, self._clock_s()
        if told is None and last_s is not None:
            self._fetching_told_s = None
            self._tell(GATHERED)
        elif told is not None and (last_s is None or now_s >= last_s + FETCHING_S):
            self._fetching_told_s = now_s
            self._tell(told)

    def _tell(self, doing: str) -> None:
        said = messages.Progress(session=self._post.session, doing=doing)
        self._post.publish(self._post.topic("progress"), messages.encode(said), qos=0)

    def _start(self, one: journal.Execution) -> None:
        work = one.order.work
        if isinstance(work, contract.Restart):
            restarting.ask(work, self._post.home, self._post.restart)
            if work.what == "board":
                # The supervisor takes it before it acts.
                self._lock.release()
            return
        task = Task(
            order=one.order,
            place=one.place,
            home=str(self._post.home.absolute()),
            device=self._post.device,
            fleet=self._post.fleet,
            config=str(self._post.config.absolute()) if self._post.config else None,
            contents={content.sha256: str(self._kept.path(content).absolute()) for content in contents_of(one)},
            log=tuple(self._post.log()) if isinstance(work, contract.Logs) else (),
        )
        self._running = Execution(task, self._post.wake, self._lock.descriptor() if _needs_quiet(one) else None)
        self._said, self._proceeded_s, self._asked_for = None, self._clock_s(), one.place
        # From here on the child alone holds it, to its end.
        self._lock.release()

    def _say_waiting(self, one: journal.Execution, why: str) -> None:
        if one.reason != why:
            self._journal.waits(one.place, why)


def _needs_quiet(one: journal.Execution) -> bool:
    """Return whether nobody may measure meanwhile; an update's switch takes the lock by itself."""
    return not isinstance(one.order.work, (contract.Logs, contract.Update))


class _Outline(msgspec.Struct, frozen=True):
    job: contract.JobId
    attempt: int
    version: messages.Number
