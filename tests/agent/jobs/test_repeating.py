"""Repeated orders begin once each time, and a missed time is made up once.

A wrong clock begins nothing.
"""

import time

import msgspec
import pytest

from edgemeter.agent.contract.orders import Content, Measure, Order
from edgemeter.agent.jobs.journal import JOURNAL_FILE, Journal
from edgemeter.agent.jobs.repeating import ClockTrust, RepeatedOrders, next_time_ns

NS = 1_000_000_000
# Friday, 20 November 2026, 12:00:00 UTC.
NOON_S = 1_795_176_000
HOUR_S = 3600
DAY_S = 24 * HOUR_S
WORK = Measure(suite=Content(sha256="a" * 64, size_bytes=10, name="nightly.toml"))


class Board:
    """A board whose wall clock is set by the test."""

    def __init__(self, path):
        self.path = path
        self.now_s = NOON_S
        self.is_right = True
        self.boot()

    def boot(self):
        self.book = Journal(self.path)
        self.repeated = RepeatedOrders(self.book, lambda: self.is_right, lambda: self.now_s * NS)

    def order(self, **times):
        work = msgspec.structs.replace(WORK, **times)
        place_number = self.book.add(
            Order(job="measure-1", attempt=1, version=0, work=work, timeout_s=60.0)
        )
        self.repeated.begin(place_number, work)

    @property
    def entry(self):
        return self.book.repeating()[0]

    def begun(self):
        return [entry for entry in reversed(self.book.latest(99)) if entry.repeats]

    def end(self):
        for entry in self.begun():
            self.book.ends(entry.place, "done")

    def at(self, seconds):
        """Let the board look at that time."""
        self.now_s = NOON_S + seconds
        return self.repeated.poll()


@pytest.fixture
def board(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    board_in_utc = Board(tmp_path / JOURNAL_FILE)
    yield board_in_utc
    board_in_utc.book.close()
    monkeypatch.undo()
    time.tzset()


def test_an_interval_begins_at_once_and_each_time_once(board):
    """A repetition begins once however often it is polled, with its order's work and limit."""
    board.order(every_s=HOUR_S)
    for second in range(0, 300, 10):
        board.at(second)
    (entry,) = board.begun()
    assert (entry.repeats, entry.order.job, entry.order.work, entry.order.timeout_s) == (
        "measure-1",
        f"measure-1-{NOON_S}",
        WORK,
        60.0,
    )
    board.end()
    assert board.at(HOUR_S - 1) == 1
    assert len(board.begun()) == 1
    board.at(HOUR_S)
    assert len(board.begun()) == 2
    assert board.entry.reason == "every 3600 s"


def test_a_time_of_day_comes_each_day(board):
    """The first repetition begins when the time next comes."""
    board.order(at="13:00")
    board.at(HOUR_S - 1)
    assert board.begun() == []
    for day in range(3):
        board.at(HOUR_S + day * DAY_S)
        board.end()
    assert [entry.order.job for entry in board.begun()] == [
        f"measure-1-{NOON_S + HOUR_S + day * DAY_S}" for day in range(3)
    ]
    assert board.entry.reason == "each day at 13:00"


def test_a_time_of_day_comes_once_where_summer_time_begins_and_ends(monkeypatch):
    """Each day of a year has one repetition, also if the clock skips or repeats its time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    work = msgspec.structs.replace(WORK, at="02:30")
    times, now_ns = [], NOON_S * NS
    for _ in range(365):
        now_ns = next_time_ns(work, now_ns, now_ns)
        times.append(time.localtime(now_ns // NS))
    assert len({(moment.tm_year, moment.tm_yday) for moment in times}) == 365
    assert [moment.tm_hour for moment in times if (moment.tm_hour, moment.tm_min) != (2, 30)] in (
        [1],
        [3],
    )
    monkeypatch.undo()
    time.tzset()


def test_what_was_missed_without_power_is_made_up_once(board):
    """After days without power there is one run, and then the clock decides again."""
    board.order(every_s=HOUR_S)
    board.at(0)
    board.end()
    board.book.close()
    board.now_s = NOON_S + 50 * HOUR_S + 1800
    board.boot()
    board.at(50 * HOUR_S + 1800)
    board.end()
    board.at(50 * HOUR_S + 1900)
    assert len(board.begun()) == 2
    board.at(51 * HOUR_S)
    assert len(board.begun()) == 3


def test_a_time_that_comes_during_the_run_before_is_left_out_and_reported(board):
    """Five due times during one run begin no second run.

    The server reads the reason until the next run begins.
    """
    board.order(every_s=60)
    for minute in range(6):
        board.at(60 * minute)
    assert len(board.begun()) == 1
    assert "has not ended" in board.entry.reason
    assert b"has not ended" in board.book.due(1)[0][1]
    board.end()
    board.at(360)
    assert board.entry.reason == "every 60 s"


def test_a_repetition_that_failed_is_reported_until_the_next_one(board):
    """The report belongs to the order that is repeated."""
    board.order(every_s=HOUR_S)
    board.at(0)
    board.book.ends(board.begun()[0].place, "failed", "no such runtime")
    board.at(60)
    assert board.entry.reason == "every 3600 s; the last one failed: no such runtime"
    assert b"no such runtime" in board.book.due(1)[0][1]
    board.at(HOUR_S)
    assert board.entry.reason == "every 3600 s"


def test_a_clock_that_may_be_wrong_begins_nothing_and_is_reported(board):
    """The missed time is made up once the clock is right."""
    board.is_right = False
    board.order(every_s=HOUR_S)
    board.at(2 * HOUR_S)
    board.at(2 * HOUR_S + 60)
    assert board.begun() == []
    assert "waits: the clock" in board.entry.reason
    board.is_right = True
    board.at(2 * HOUR_S + 120)
    assert len(board.begun()) == 1
    assert board.entry.reason == "every 3600 s"


def test_a_clock_is_trusted_when_something_set_it(tmp_path):
    """A time server, a clock chip or a virtual machine's host makes the clock trusted.

    A year before this release is never trusted.
    """
    synchronised = [False]
    trust = ClockTrust(lambda: synchronised[0], tmp_path / "rtc", arch="aarch64")
    assert not trust.is_right()
    synchronised[0] = None
    assert not trust.is_right()
    synchronised[0] = True
    assert trust.is_right()
    synchronised[0] = False
    assert trust.is_right()
    chip = tmp_path / "rtc" / "rtc0"
    chip.mkdir(parents=True)
    (chip / "hctosys").write_text("0\n")
    assert not ClockTrust(lambda: None, tmp_path / "rtc", arch="aarch64").is_right()
    (chip / "hctosys").write_text("1\n")
    assert ClockTrust(lambda: None, tmp_path / "rtc", arch="aarch64").is_right()
    assert not ClockTrust(lambda: True, tmp_path / "rtc", oldest_ns=time.time_ns() + NS).is_right()
    rtc = tmp_path / "absent"
    assert ClockTrust(lambda: False, rtc, arch="x86_64").is_right()
    assert not ClockTrust(
        lambda: False, rtc, oldest_ns=time.time_ns() + NS, arch="x86_64"
    ).is_right()
    assert not ClockTrust(lambda: False, rtc, arch="aarch64").is_right()
