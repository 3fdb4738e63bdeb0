"""Schedules: what this device measures by itself, kept in its journal and so through restarts and weeks without a connection.

Times that passed while the power was off are made up for once. While the wall clock may be wrong nothing starts.
"""

import logging
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.base import cron
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.orders import Content, Order, Schedule, contents_of, encode_order
from edgemeter.agent.jobs.journal import Journal
from edgemeter.agent.machine import clock

logger = logging.getLogger(__name__)

POLL_S = 60.0
_NS = 1_000_000_000
_CLOCK_REMARK = "waits: the clock of this board may be wrong (no time server reached since it started)"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One schedule; `next_ns` is when it is due, `remark` why it did not begin when it was."""

    order: Order
    since_ns: int
    next_ns: int | None
    last_ns: int | None
    remark: str | None

    @property
    def schedule(self) -> Schedule:
        """The order of the schedule."""
        if not isinstance(self.order.work, Schedule):
            raise TypeError(self.order.work)
        return self.order.work


class Schedules:
    """The schedules in `journal`; called from one thread."""

    def __init__(self, journal: Journal, is_right: Callable[[], bool] | None = None, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._journal = journal
        self._is_right = is_right or ClockTrust().is_right
        self._now_ns = now_ns

    def read(self) -> list[Scheduled]:
        """Return all, by name."""
        query = "SELECT encoded, since_ns, next_ns, last_ns, remark FROM schedules ORDER BY name"
        return [Scheduled(msgspec.json.decode(encoded, type=Order), *columns) for encoded, *columns in self._journal.query(query)]

    def put(self, order: Order) -> str:
        """Keep the schedule of `order` instead of the one of that name, or end it where it has no work; return what was done.

        Raises:
            ConfigError: the times are none.
        """
        schedule = order.work
        if not isinstance(schedule, Schedule):
            raise TypeError(schedule)
        if schedule.work is None:
            with self._journal.transaction() as connection:
                count = connection.execute("DELETE FROM schedules WHERE name = ?", (schedule.name,)).rowcount
            return f"schedule {schedule.name!r} ended" if count else f"no schedule {schedule.name!r} existed"
        now_ns = self._now_ns()
        next_ns = cron.parse(schedule.cron).next_s(now_ns / _NS) * _NS
        with self._journal.transaction() as connection:
            values = (schedule.name, encode_order(order), now_ns, next_ns)
            connection.execute("INSERT OR REPLACE INTO schedules (name, encoded, since_ns, next_ns) VALUES (?, ?, ?, ?)", values)
        remark = "" if self._is_right() else f"; it {_CLOCK_REMARK}"
        return f"schedule {schedule.name!r}: next {local(next_ns)}{remark}"

    def poll(self) -> float:
        """Put what is due into the journal as an order of our own; return the seconds to the next poll."""
        now_ns = self._now_ns()
        schedules = self.read()
        due = [schedule for schedule in schedules if schedule.next_ns is not None and schedule.next_ns <= now_ns]
        if due and not self._is_right():
            for schedule in due:
                self._remark(schedule, _CLOCK_REMARK)
            return POLL_S
        for schedule in due:
            self._begin(schedule, now_ns)
        # The wall clock may be set at any time: never longer than a minute.
        left_s = [(schedule.next_ns - now_ns) / _NS for schedule in schedules if schedule.next_ns is not None and schedule not in due]
        return max(0.0, min([POLL_S, *left_s]))

    def _begin(self, scheduled: Scheduled, now_ns: int) -> None:
        schedule = scheduled.schedule
        if schedule.work is None:
            raise TypeError(schedule)
        try:
            next_ns = cron.parse(schedule.cron).next_s(now_ns / _NS) * _NS
        except ConfigError as error:
            self._remark(scheduled, str(error))
            return
        remark = None
        if any(open_one.schedule == schedule.name for open_one in self._journal.open_ones()):
            remark = f"skipped {local(now_ns)}: the previous one has not ended"
        else:
            order = Order(
                job=f"{schedule.name[:45].rstrip('-')}-{now_ns // _NS}",
                attempt=1,
                version=0,
                work=schedule.work,
                timeout_s=scheduled.order.timeout_s,
            )
            if self._journal.find(order.job, order.attempt) is None:
                self._journal.add(order, schedule=schedule.name)
        with self._journal.transaction() as connection:
            values = (next_ns, now_ns, remark, schedule.name)
            connection.execute("UPDATE schedules SET next_ns = ?, last_ns = ?, remark = ? WHERE name = ?", values)

    def _remark(self, scheduled: Scheduled, remark: str) -> None:
        if scheduled.remark == remark:
            return
        logger.warning("schedule %r: %s", scheduled.schedule.name, remark)
        with self._journal.transaction() as connection:
            connection.execute("UPDATE schedules SET remark = ? WHERE name = ?", (remark, scheduled.schedule.name))


class ClockTrust:
    """Whether the wall clock may start something: it was set by a time server since the start, or a clock chip or hypervisor set it."""

    def __init__(
        self,
        synchronised: Callable[[], bool | None] = clock.synchronised,
        rtc: Path = Path("/sys/class/rtc"),
        oldest_ns: int = 0,
        arch: str = platform.machine(),
    ) -> None:
        self._synchronised = synchronised
        self._rtc = rtc
        # There the kernel sets its clock by CMOS or hypervisor before any driver is there; a virtual machine or container shows no chip.
        # One that was never set shows 1970. Source: read_persistent_clock64 in Linux arch/x86/kernel/rtc.c.
        self._is_set_at_boot = arch in {"x86_64", "i386", "i586", "i686"}
        self._was_synchronised = False
        # No clock that is right shows less than when this file was made.
        self._oldest_ns = oldest_ns or Path(__file__).stat().st_mtime_ns

    def is_right(self) -> bool:
        """Return whether it is; once it was right it stays so until the power goes: it drifts by seconds a day."""
        if time.time_ns() < self._oldest_ns:
            return False
        self._was_synchronised = self._was_synchronised or self._synchronised() is True
        if self._was_synchronised or self._is_set_at_boot:
            return True
        with suppress(OSError):
            return any((chip / "hctosys").read_text().strip() == "1" for chip in self._rtc.iterdir())
        return False


def due_contents(schedules: list[Scheduled]) -> list[Content]:
    """Return what the schedules need to be here."""
    return [content for scheduled in schedules for content in contents_of(scheduled.order.work)]


def local(time_ns: int) -> str:
    """Return a time as people here write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(time_ns / _NS))
