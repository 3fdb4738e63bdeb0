from datetime import datetime, timezone

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.stamps import in_order, parse_moment, parse_prefix
from tests.fixtures.rows import table_row

MORNING_S = datetime(2026, 5, 22, 9, 5, 1, tzinfo=timezone.utc).timestamp()


def test_a_day_and_a_clock_are_read_in_every_usual_form():
    """The digits give the step, a zone counts, and without one the clock is taken as written."""
    for text, later_s, step_s in [
        ("2026-05-22T09:05:01Z", 0, 1),
        ("2026-05-22 11:05:01.5+02:00", 0.5, 0.1),
        ("2026-05-22T09:05:01,250-0000", 0.25, 0.001),
        ("2026/05/22 09:05:01.000", 0, 0.001),
        ("20260522 09:05:01", 0, 1),
        ("05-22-2026 09:05:01", 0, 1),
        ("5/22/2026 9:05:01 PM", 12 * 3600, 1),
        ("22/05/2026 09:05:01", 0, 1),
        ("22.05.2026 09:05:01", 0, 1),
        ("22-May-2026 09:05:01", 0, 1),
        ("Fri 22 May 2026 09:05:01 AM UTC", 0, 1),
        ("09:05:01 22.05.2026", 0, 1),
    ]:
        with table_row(text):
            moment = parse_moment(text)
            assert (moment.at_s - MORNING_S, moment.step_s) == pytest.approx((later_s, step_s))


def test_a_number_counts_from_1970_or_from_anywhere():
    """The size of a number decides unless it has a unit; anything else is no moment."""
    for text, at_s in [
        ("1700000000.5", 1700000000.5), ("1700000000500", 1700000000.5),
        ("1700000000500000", 1700000000.5), ("12,5", 12.5),
        ("500 ms", 0.5), ("20260522110000", None),
        ("123456789012345", None), ("5 A", None), ("noon", None), ("2026-13-22 10:00:00", None),
        ("1:2:3", None),
    ]:  # fmt: skip
        with table_row(text):
            moment = parse_moment(text)
            assert (moment and moment.at_s) == at_s
    assert parse_moment("1500", unit_s=1e-3).at_s == 1.5


def test_what_stands_before_a_line_is_a_moment_and_its_source():
    """A number is preferred to a clock; a host keeps its digits and a process loses its number."""
    for text, at_s, source in [
        (
            "May 22 09:05:01 nano-2 tegra[812]: ",
            datetime(2000, 5, 22, 9, 5, 1, tzinfo=timezone.utc).timestamp(),
            "nano-2 tegra :",
        ),
        ("[pod/a-7c9/b] 1700000000.25 ", 1700000000.25, "[pod/a-7c9/b]"),
        ("10.0.0.12 host ", None, "host"),
        ("[   12.500118] nano: 05-22-2026 09:05:01 ", 12.500118, "nano:"),
        ("app 1.5 2026-05-22 09:05:01 ", MORNING_S, "app"),
    ]:
        with table_row(text):
            moment, words = parse_prefix(text)
            assert (moment and moment.at_s, words) == (at_s, source)


def test_stamps_go_on_over_midnight_and_never_backwards():
    """A clock without a date starts over each day; steps back and mixed stamps are refused."""
    moments = [parse_moment(text) for text in ("23:59:59", "00:00:01", "13:00:00", "00:00:00")]
    assert [moment.at_s - 86_399 for moment in in_order(moments)] == [0, 2, 46_801, 86_401]
    for texts, reason in [
        (("12:00:01", "12:00:00"), "backwards, by 1 s"),
        (("1", "12:00:00"), "numbers and dates"),
    ]:
        with table_row(texts), pytest.raises(ConfigError, match=reason):
            list(in_order(parse_moment(text) for text in texts))
