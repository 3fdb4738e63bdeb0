import pytest

from edgemeter.agent.base import number_text
from edgemeter.agent.base.evidence import SESSION_SD, interval_over_runs


def test_figures_keep_three_significant_digits_and_never_become_integers_that_lose_them():
    """A value of 0.4 stays 0.400, and all digits before the decimal point are kept."""
    for value, text in [
        (0.4, "0.400"),
        (0.0123, "0.0123"),
        (9.996, "10.0"),
        (31.24, "31.2"),
        (999.6, "1,000"),
        (1234.5, "1,234"),
        (0.0000123, "1.23e-05"),
        (-3.14159, "-3.14"),
        (0, "0"),
        (None, "-"),
        (1.79769e308, f"{int(1.79769e308):,}"),
    ]:
        assert number_text.significant(value) == text, f"{value!r}"


def test_a_figure_is_rounded_to_the_place_of_its_uncertainty():
    """The uncertainty has two digits, and an unknown one is shown as `?` and not as zero."""
    for value, uncertainty, text in [
        (412.345, 12.34, "412 ± 12"),
        (412.345, 1.234, "412.3 ± 1.2"),
        (412.345, 0.996, "412.3 ± 1.0"),
        (412.345, None, "412 ± ?"),
        (412.345, 0.0, "412 ± 0"),
    ]:
        assert number_text.with_uncertainty(value, uncertainty) == text, (
            f"{value!r}, {uncertainty!r}"
        )


def test_a_range_that_rounds_to_one_figure_is_one_figure():
    """A range such as 3.10 to 3.10 would tell nothing."""
    assert number_text.span(3.100001, 3.100002) == "3.10"
    # An interval is shown as one, however narrow: a run of many queries has p50 15.31 to 15.34 ms.
    assert number_text.span(15.31, 15.34) == "15.31 to 15.34"
    assert number_text.span(3.1, 3.2) == "3.10 to 3.20"
    # An end near 0 is not written to a hundred-thousandth beside one in tens.
    for low, high, text in [
        (-0.0069, 23.54, "0.0 to 23.5"),
        (-4.93, 15.24, "-4.9 to 15.2"),
        (-0.5, 0.1, "-0.500 to 0.100"),
    ]:
        assert number_text.span(low, high) == text
    # Both ends have the same number of decimals, and show on which side of a limit they lie.
    for ends, text in [
        ((9.13, 10.01), "9.13 to 10.01"),
        ((0.482, 1.4), "0.482 to 1.400"),
        ((39.8, 653.0), "40 to 653"),
    ]:
        assert number_text.span(*ends) == text
    assert number_text.span(30.1, 33.04, 33.0) == "30.10 to 33.04"
    assert number_text.span(-0.0002, 0.0004) == "-2.00e-04 to 4.00e-04"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((138.0, 140.0, 142.0), "x ± 5%"),
        # The lower half is shorter than the upper one.
        ((185.0, 143.4, 140.8), "x (106 to 227)"),
        ((1.85, 1.434, 1.408), "x (1.1 to 2.3)"),
        ((0.0185, 0.01434, 0.01408), "x (0.011 to 0.023)"),
        ((0.01, 1.0, 1000.0), "x (0 to 3,845,527)"),
    ],
)
def test_a_wide_interval_is_written_by_its_ends(values, text):
    """A wide interval is symmetric on the log scale alone, so that one ± would be wrong.

    Two digits are enough for its ends.
    """
    assert number_text.with_interval("x", *interval_over_runs(values, SESSION_SD)) == text


def test_what_steers_a_terminal_does_not_come_through():
    """A record holds whatever text a device sent, control characters included."""
    assert (
        number_text.printable("board\x1b[31m\n\u202e").replace("\N{REPLACEMENT CHARACTER}", "?")
        == "board?[31m??"
    )


def test_a_time_is_utc_and_one_that_no_calendar_has_is_a_number():
    """A broken clock of a device must not make a report fail."""
    for time_ns, text in [
        (0, "1970-01-01 00:00:00"),
        (1_760_000_000_123_456_789, "2025-10-09 08:53:20"),
        (10**30, f"{10**30} ns"),
    ]:
        assert number_text.stamp(time_ns) == text, f"{time_ns!r}"


def test_plain_digits_have_no_exponent():
    """A number is rounded to an integer only where it loses nothing."""
    for value, text in [
        (None, "-"),
        (0, "0"),
        (0.21463, "0.2146"),
        (1234567.0, "1235000"),
        (12.0, "12"),
        (1.23456e-5, "0.00001235"),
    ]:
        assert number_text.plain_digits(value) == text, f"{value!r}"


def test_a_length_of_time_is_written_for_people():
    """A duration is written in two units at most."""
    assert [
        number_text.duration(length_s) for length_s in (0.2, 8, 59.6, 60, 125, 3600, 4800, 7199.9)
    ] == ["0 s", "8 s", "1 min", "1 min", "2 min 5 s", "1 h", "1 h 20 min", "2 h"]
