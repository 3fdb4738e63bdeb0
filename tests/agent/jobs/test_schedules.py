"""Facts about schedules: each time begins once, a missed one is made up once, and no wrong clock begins anything."""

import time

import pytest

from edgemeter.agent.contract.orders import Content, Measure, Order, Schedule
from edgemeter.agent.jobs.journal import JOURNAL_FILE, Journal
from edgemeter.agent.jobs.schedules import ClockTrust, Schedules

NS = 1_000_000_000
# Friday, 20 November 2026, 12:00:00 UTC.
NOON_S = 1_795_176_000
HOUR_S = 3600
WORK = Measure(suite=Content(sha256="a" * 64, size_bytes=10, name="nightly.toml"))


class Board:
    """A board whose wall clock is set by the test."""

    def __init__(self, path):
        self.path = path
        self.now_s = NOON_S
        self.is_right = True
        self.boot()

    def boot(self):
        """Open the journal, as a start does."""
        self.book = Journal(self.path)
        self.schedules = Schedules(self.book, lambda: self.is_right, lambda: self.now_s * NS)

    def order(self, cron, name="nightly"):
        """Order a schedule."""
        work = Schedule(name=name, cron=cron, work=WORK) if cron else Schedule(name=name)
        return self.schedules.put(Order(job="s-1", attempt=1, version=0, work=work, timeout_s=60.0))

    def begun(self):
        """Return the jobs that schedules began, the first first."""
        return [entry for entry in reversed(self.book.latest(99)) if entry.schedule]

    def end(self):
        """Let all of them end."""
        for entry in self.begun():
            self.book.ends(entry.place, "done")

    def at(self, seconds):
        """Let the board look at that time."""
        self.now_s = NOON_S + seconds
        return self.schedules.poll()


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Return a board in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    board_in_utc = Board(tmp_path / JOURNAL_FILE)
    yield board_in_utc
    board_in_utc.book.close()
    monkeypatch.undo()
    time.tzset()


def test_each_time_begins_once(board):
    """However often the board looks; with the work and the time limit of the order."""
    assert "2026-11-20 13:00:00 UTC" in board.order("0 * * * *")
    assert board.at(HOUR_S - 1) == 1
    assert board.begun() == []
    for second in range(0, 300, 10):
        board.at(HOUR_S + second)
    (entry,) = board.begun()
    assert (entry.schedule, entry.order.work, entry.order.timeout_s) == ("nightly", WORK, 60.0)
    board.end()
    board.at(2 * HOUR_S)
    assert len(board.begun()) == 2


def test_what_was_missed_without_power_is_made_up_once(board):
    """Days later, after a restart: one run, then by the calendar again."""
    board.order("0 * * * *")
    board.book.close()
    board.now_s = NOON_S + 50 * HOUR_S + 1800
    board.boot()
    board.at(50 * HOUR_S + 1800)
    board.end()
    board.at(50 * HOUR_S + 1900)
    assert len(board.begun()) == 1
    board.at(51 * HOUR_S)
    assert len(board.begun()) == 2


def test_a_time_that_comes_during_the_run_before_is_left_out_and_reported(board):
    """Five due times during one run begin no second run; the remark of the schedule names the reason."""
    board.order("* * * * *")
    for minute in range(1, 6):
        board.at(60 * minute)
    assert len(board.begun()) == 1
    assert "has not ended" in board.schedules.read()[0].remark


def test_a_clock_that_may_be_wrong_begins_nothing_and_is_reported(board):
    """When it is right the missed time is made up."""
    board.order("0 * * * *")
    board.is_right = False
    board.at(2 * HOUR_S)
    board.at(2 * HOUR_S + 60)
    assert board.begun() == []
    assert "waits: the clock" in board.schedules.read()[0].remark
    board.is_right = True
    board.at(2 * HOUR_S + 120)
    assert len(board.begun()) == 1
    assert board.schedules.read()[0].remark is None


def test_a_schedule_of_the_same_name_takes_the_place_and_an_empty_one_ends_it(board):
    """And what was never there is not an error."""
    board.order("0 * * * *")
    board.order("30 * * * *")
    assert [scheduled.schedule.cron for scheduled in board.schedules.read()] == ["30 * * * *"]
    assert board.order("") == "schedule 'nightly' ended"
    assert board.order("") == "no schedule 'nightly' existed"
    assert board.at(100 * HOUR_S) == 60
    assert board.begun() == []


def test_a_clock_is_trusted_when_something_set_it(tmp_path):
    """A time server, a clock chip, or the host of a virtual machine; never one that shows a year before this release."""
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
    assert not ClockTrust(lambda: False, rtc, oldest_ns=time.time_ns() + NS, arch="x86_64").is_right()
    assert not ClockTrust(lambda: False, rtc, arch="aarch64").is_right()
