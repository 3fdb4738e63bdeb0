"""Facts about the times of schedules; each case was worked out by hand with a calendar."""

import time
from datetime import datetime, timezone

import pytest

from edgemeter.agent.base import cron
from edgemeter.agent.base.errors import ConfigError
from tests.fixtures.rows import table_row

BERLIN, UTC, KOLKATA, LORD_HOWE = "Europe/Berlin", "UTC", "Asia/Kolkata", "Australia/Lord_Howe"


@pytest.fixture
def zone(monkeypatch):
    """Return what sets this process's time zone, for the test."""

    def put(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield put
    monkeypatch.undo()
    time.tzset()


def utc(text):
    """Return a UTC time as seconds since 1970."""
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


def times(expression, after, count=1):
    """Return the next times after a UTC time, in UTC."""
    formatted, now_s = [], utc(after)
    for _ in range(count):
        now_s = cron.parse(expression).next_s(now_s)
        formatted.append(datetime.fromtimestamp(now_s, timezone.utc).strftime("%Y-%m-%d %H:%M"))
    return formatted


def test_the_next_times_are_those_of_the_calendar(zone):
    """In UTC, where no clock is ever put forward or back."""
    for expression, after, expected in [
        ("* * * * *", "2026-11-20 12:00:00", ["2026-11-20 12:01", "2026-11-20 12:02"]),
        ("0 2 * * *", "2026-11-20 02:00:00", ["2026-11-21 02:00"]),
        ("5-20/5 8 * * *", "2026-11-20 08:05:00", ["2026-11-20 08:10", "2026-11-20 08:15", "2026-11-20 08:20", "2026-11-21 08:05"]),
        ("0 0 29 2 *", "2026-01-01 00:00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("30 6 31 * *", "2026-01-31 06:30:00", ["2026-03-31 06:30", "2026-05-31 06:30"]),
        # 20 November 2026 is a Friday.
        ("0 3 * * mon-fri", "2026-11-20 03:00:00", ["2026-11-23 03:00", "2026-11-24 03:00"]),
        ("0 3 * * 7", "2026-11-20 03:00:00", ["2026-11-22 03:00"]),
        ("0 3 * * SAT,sun", "2026-11-20 03:00:00", ["2026-11-21 03:00", "2026-11-22 03:00"]),
        # Both days restricted: either is enough.
        ("0 0 13 * fri", "2026-11-20 00:00:00", ["2026-11-27 00:00", "2026-12-04 00:00", "2026-12-11 00:00", "2026-12-13 00:00"]),
        # One begins with a star: both are needed.
        ("0 0 */2 * fri", "2026-11-20 00:00:00", ["2026-11-27 00:00", "2026-12-11 00:00"]),
        ("0 0 1 jan,Jul *", "2026-11-20 00:00:00", ["2027-01-01 00:00", "2027-07-01 00:00"]),
        ("@midnight", "2026-12-31 12:00:00", ["2027-01-01 00:00"]),
    ]:
        zone(UTC)
        assert times(expression, after, len(expected)) == expected, f"{expression!r}, {after!r}"


def test_summer_time_skips_nothing_and_doubles_nothing(zone):
    """As cron(8) says of fixed times and of those with a star."""
    for zone_name, expression, after, expected in [
        # Half an hour beside UTC.
        (KOLKATA, "0 2 * * *", "2026-11-20 00:00:00", ["2026-11-20 20:30", "2026-11-21 20:30"]),
        (KOLKATA, "15 0 1 * *", "2026-11-20 00:00:00", ["2026-11-30 18:45"]),
        # 29 March 2026, 02:00 becomes 03:00 (01:00 UTC): 02:30 does not exist, and comes right after the gap, once.
        (BERLIN, "30 2 * * *", "2026-03-28 00:00:00", ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"]),
        (BERLIN, "0,20,40 2 * * *", "2026-03-28 12:00:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
        (BERLIN, "0 3 * * *", "2026-03-28 12:00:00", ["2026-03-29 01:00", "2026-03-30 01:00"]),
        # By real time: one hour has no times at all.
        (BERLIN, "*/30 * * * *", "2026-03-29 00:00:00", ["2026-03-29 00:30", "2026-03-29 01:00", "2026-03-29 01:30"]),
        (BERLIN, "* 2 * * *", "2026-03-29 00:00:00", ["2026-03-30 00:00"]),
        # 25 October 2026, 03:00 becomes 02:00 (01:00 UTC): 02:30 comes twice, and the job in the first.
        (BERLIN, "30 2 * * *", "2026-10-24 12:00:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        (BERLIN, "0 3 * * *", "2026-10-24 12:00:00", ["2026-10-25 02:00", "2026-10-26 02:00"]),
        (BERLIN, "30 * * * *", "2026-10-24 23:59:00", ["2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"]),
        (BERLIN, "30 2 25 10 *", "2026-10-25 00:30:00", ["2027-10-25 00:30"]),
        # Half an hour of summer time: 4 October 2026, 02:00 becomes 02:30 (15:30 UTC of the day before).
        (LORD_HOWE, "15 2 * * *", "2026-10-03 00:00:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
        # 5 April 2026, 02:00 becomes 01:30 (15:00 UTC of the day before): 01:45 is 14:45, and again 15:15.
        (LORD_HOWE, "45 1 * * *", "2026-04-04 00:00:00", ["2026-04-04 14:45", "2026-04-05 15:15"]),
    ]:
        zone(zone_name)
        assert times(expression, after, len(expected)) == expected, f"{zone_name!r}, {expression!r}, {after!r}"


def test_what_cron_would_not_take_is_refused():
    """With one line that names it."""
    for wrong in [
        "",
        "* * * *",
        "60 * * * *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "5/10 * * * *",
        "1,,2 * * * *",
        "² * * * *",
        "0 0 30 2 *",
        "@reboot",
        "9999999999999999999999 * * * *",
    ]:
        with table_row(wrong), pytest.raises(ConfigError, match="is not a schedule"):
            cron.parse(wrong)
