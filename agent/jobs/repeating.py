"""Repeated orders are measurements that this device makes each day or at an interval.

They go on through restarts and weeks without a connection.

A time that passed while the power was off is made up for once. While the wall clock may be wrong
nothing starts.
"""

import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract.orders import Measure, Order
from edgemeter.agent.jobs.journal import Journal, JournalEntry
from edgemeter.agent.machine import clock

POLL_S = 60.0
# With the time of the repetition this is the name of a job, which has 64 characters at most.
_LONGEST_NAME = 50
_CLOCK_REASON = (
    "waits: the clock of this board may be wrong (no time server reached since it started)"
)


def next_time_ns(work: Measure, due_ns: int, now_ns: int) -> int:
    """Return when a repeated measurement that was due at `due_ns` is next due after `now_ns` (UTC).

    A local time skipped by summer time is an hour off that day; one that occurs twice counts once.
    """
    if work.every_s is not None:
        period_ns = work.every_s * NS_PER_S
        return due_ns + ((now_ns - due_ns) // period_ns + 1) * period_ns
    hour, minute = map(int, (work.at or "00:00").split(":"))
    today = time.localtime(now_ns // NS_PER_S)
    days = (
        (today.tm_year, today.tm_mon, today.tm_mday + day, hour, minute, 0, 0, 0, -1)
        for day in range(3)
    )
    return next(time_ns for day in days if (time_ns := int(time.mktime(day)) * NS_PER_S) > now_ns)


def repetition_text(work: Measure) -> str:
    return f"each day at {work.at}" if work.every_s is None else f"every {work.every_s} s"


class RepeatedOrders:
    """The repeated orders in `journal`; called from one thread."""

    def __init__(
        self,
        journal: Journal,
        is_right: Callable[[], bool] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._journal = journal
        self._is_right = is_right or ClockTrust().is_right
        self._now_ns = now_ns

    def begin(self, number: int, work: Measure) -> None:
        now_ns = self._now_ns()
        self._journal.repeat(
            number,
            now_ns if work.every_s is not None else next_time_ns(work, now_ns, now_ns),
            repetition_text(work) if self._is_right() else _CLOCK_REASON,
        )

    def poll(self) -> float:
        """Add the due repetitions to the journal as orders; return the seconds to the next poll."""
        now_ns = self._now_ns()
        next_ns = now_ns + int(POLL_S * NS_PER_S)
        for entry in self._journal.repeating():
            due_ns = entry.next_ns or 0
            if due_ns > now_ns:
                next_ns = min(next_ns, due_ns)
                self._report_failure(entry)
            elif self._is_right():
                self._repeat(entry, now_ns)
            else:
                self._give_reason(entry, _CLOCK_REASON)
        # The wall clock may be set at any time: never longer than a minute.
        return (next_ns - now_ns) / NS_PER_S

    def _repeat(self, entry: JournalEntry, now_ns: int) -> None:
        work = entry.order.work
        if not isinstance(work, Measure):
            raise TypeError(work)
        job = entry.order.job
        if (last := self._journal.last_repetition(job)) is not None and not last.is_final:
            self._give_reason(entry, f"skipped {local(now_ns)}: the previous one has not ended")
        else:
            order = Order(
                job=f"{job[:_LONGEST_NAME].rstrip('-')}-{now_ns // NS_PER_S}",
                attempt=1,
                version=0,
                work=msgspec.structs.replace(work, at=None, every_s=None),
                timeout_s=entry.order.timeout_s,
            )
            if self._journal.find(order.job, order.attempt) is None:
                self._journal.add(order, repeats=job)
            self._give_reason(entry, repetition_text(work))
        self._journal.repeat_next(entry.place, next_time_ns(work, entry.next_ns or now_ns, now_ns))

    def _report_failure(self, entry: JournalEntry) -> None:
        """Report how the last one failed, until the next one begins.

        Repetitions have no reports of their own.
        """
        last, work = self._journal.last_repetition(entry.order.job), entry.order.work
        if (
            last is not None
            and last.is_final
            and last.state != "done"
            and isinstance(work, Measure)
        ):
            self._give_reason(
                entry,
                f"{repetition_text(work)}; the last one {last.state.replace('_', ' ')}: "
                f"{last.reason}",
            )

    def _give_reason(self, entry: JournalEntry, reason: str) -> None:
        if entry.reason != reason:
            self._journal.waits(entry.place, reason)


class ClockTrust:
    """Whether the wall clock is reliable.

    It was set by a time server since the start, or by a clock chip or hypervisor.
    """

    def __init__(
        self,
        synchronised: Callable[[], bool | None] = clock.synchronised,
        rtc: Path = Path("/sys/class/rtc"),
        oldest_ns: int = 0,
        arch: str = platform.machine(),
    ) -> None:
        self._synchronised = synchronised
        self._rtc = rtc
        # The kernel sets its clock by CMOS or hypervisor before any driver is loaded; a virtual
        # machine or container shows no chip. A clock that was never set shows 1970. Source:
        # read_persistent_clock64 in Linux arch/x86/kernel/rtc.c.
        self._is_set_at_boot = arch in {"x86_64", "i386", "i586", "i686"}
        self._was_synchronised = False
        # A correct clock is later than the time of this file.
        self._oldest_ns = oldest_ns or Path(__file__).stat().st_mtime_ns

    def is_right(self) -> bool:
        """Return whether the clock is reliable.

        It then stays so until the power goes, as it drifts by seconds a day.
        """
        if time.time_ns() < self._oldest_ns:
            return False
        self._was_synchronised = self._was_synchronised or self._synchronised() is True
        if self._was_synchronised or self._is_set_at_boot:
            return True
        with suppress(OSError):
            return any(
                (chip / "hctosys").read_text().strip() == "1" for chip in self._rtc.iterdir()
            )
        return False


def local(time_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(time_ns / NS_PER_S))
