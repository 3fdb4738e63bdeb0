"""Figures as text, rounded to significant digits.

0.4 ms stays 0.4 ms, and no figure shows more digits than it supports.
"""

from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from itertools import chain
from typing import Literal

ABSENT = "-"
# Smaller figures are written with an exponent: the zeros of 0.0000123 have to be counted.
SMALLEST_PLAIN = 1e-3
LEAST_RATIO = 0.001  # A narrower interval is shown as this one.
# Up to this width the halves of an interval on the log scale differ by less than 1% of the value.
EVEN_RATIO = 0.10
# Letters of a run's id that are shown: enough to identify one, as ids are random.
_ID_LETTERS, _RANDOM_ID = 8, 32
# The most additional decimals; a figure nearer to a limit is written like the limit.
MORE_DECIMALS = 4


def significant(value: float | None, digits: int = 3) -> str:
    """Return `value` with `digits` significant digits; digits before the point are all shown.

    None is `-`.
    """
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    if abs(value) < SMALLEST_PLAIN:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{_decimals(value, digits)}f}"


def plain_digits(value: float | None, digits: int = 4) -> str:
    """Return `value` with this many significant digits, never in exponent form; None is `-`."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return f"{Decimal(text):f}" if "e" in text else text


def times(ratio: float | None) -> str:
    """Return a ratio as `4.88x`. None is `-`."""
    return ABSENT if ratio is None else f"{significant(ratio)}x"


def share(value: float | None) -> str:
    """Return a share (0..1) in per cent: `0.33%`, `20%`. None is `-`."""
    return ABSENT if value is None else f"{significant(100 * value, 2)}%"


def percentage(ratio: float) -> str:
    """Return half the width of an interval as a share of its middle.

    For example `4%`; it has one digit after the point below 10%.
    """
    ratio = max(ratio, LEAST_RATIO)
    return f"{significant(100 * ratio, 1 if ratio < 0.095 else 2)}%"


def with_interval(text: str, value: float, low: float, high: float) -> str:
    """Return a value (> 0), written as `text`, with its interval on the log scale.

    For example `140 ms ± 4%`; a wide interval is written as `155 ms (106 to 226)`.
    """
    if high / value - 1 <= EVEN_RATIO:
        return f"{text} ± {percentage(high / value - 1)}"
    # A third digit means nothing in so wide an interval.
    decimals = min(_decimals(low, 2), _decimals(high, 3))
    return f"{text} ({with_decimals(low, decimals)} to {with_decimals(high, decimals)})"


def accuracy(value: float | None) -> str:
    """Return an accuracy (0..1) with three decimals, as detection papers print it. None is `-`."""
    return ABSENT if value is None else f"{value:.3f}"


def with_uncertainty(value: float, uncertainty: float | None) -> str:
    """Return `value ± uncertainty`, both to the same decimal.

    The uncertainty has two digits. An unknown one is `± ?`.
    """
    if uncertainty is None:
        return f"{significant(value)} ± ?"
    if uncertainty <= 0:
        return f"{significant(value)} ± 0"
    decimals = _decimals(uncertainty, 2)
    return f"{value:,.{decimals}f} ± {uncertainty:,.{decimals}f}"


def span(low: float, high: float, *limits: float) -> str:
    """Return a range, both ends with the same number of decimals.

    It is one figure if rounding makes them equal. There are enough decimals to show on which side
    of each limit an end is.
    """
    furthest = max(-low, high)
    if low == high or furthest < SMALLEST_PLAIN:
        return significant(low) if low == high else f"{significant(low)} to {significant(high)}"
    # Within one decade, the end with fewer digits before the point decides: it has one digit more
    # after it.
    decimals = _decimals(low if 10 * low > furthest else furthest, 3)
    decimals = telling_decimals((low, high), decimals, *limits)
    first, last = (with_decimals(end, decimals) for end in (low, high))
    return first if first == last else f"{first} to {last}"


def with_decimals(value: float, decimals: int, sign: Literal["", "+"] = "") -> str:
    """Return a value with this many decimals; 0 has no minus sign."""
    return f"{round(value, decimals) + 0.0:{sign},.{decimals}f}"


def telling_decimals(values: Sequence[float], decimals: int, *limits: float) -> int:
    """Return at least `decimals`, or a few more if those tell the values apart.

    More decimals may show that values differ, and on which side of the limits they lie. If no
    number of decimals separates the values, those that show the side are enough.
    """

    def shows(number: int, among: Sequence[float]) -> bool:
        written = [(value, float(f"{value:.{number}f}")) for value in values]
        return all(
            (text > limit) == (value > limit) and (text < limit) == (value < limit)
            for value, text in written
            for limit in among
        )

    between = (*limits, sum(values) / 2) if len(values) == 2 else limits
    numbers = range(decimals, decimals + MORE_DECIMALS + 1)
    return next(
        chain(
            (n for n in numbers[:3] if shows(n, between)),
            (n for n in numbers if shows(n, limits)),
            (decimals,),
        )
    )


def typeset(text: str) -> str:
    """Return a figure with typographic signs for a page (a terminal shows `-0.037` and `4.88x`)."""
    if text == ABSENT:
        return "\N{EN DASH}"
    return text.replace("-", "\N{MINUS SIGN}").replace("x", "\N{MULTIPLICATION SIGN}")


def count(number: int, noun: str) -> str:
    """Return `1 run` or `2 runs`: the number and the noun in singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Return a duration for people: `8 s`, `2 min 5 s`, `1 h 20 min`."""
    whole_s = round(seconds)
    if whole_s < 60:
        return f"{whole_s} s"
    minutes, remainder_s = divmod(whole_s, 60)
    if minutes < 60:
        return f"{minutes} min {remainder_s} s" if remainder_s else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def stamp(time_ns: int) -> str:
    """Return a wall-clock time in UTC to the second.

    A time outside the calendar is returned as the plain number.
    """
    try:
        return datetime.fromtimestamp(time_ns // 1_000_000_000, timezone.utc).strftime(
            "%Y-%m-%d %H:%M:%S"
        )
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"


def iso_stamp(time_ns: int | None) -> str | None:
    """Return a wall-clock time as `2026-11-20T08:00:00Z`."""
    return None if time_ns is None else f"{stamp(time_ns).replace(' ', 'T')}Z"


_AGES = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def age(passed_ns: int) -> str:
    """Return an age in its largest unit: `3 d`, `5 h`, `12 min`, `40 s`."""
    passed_s = max(0.0, passed_ns / 1e9)
    unit_s, unit = next(
        ((unit_s, unit) for unit_s, unit in _AGES if passed_s >= unit_s), (1.0, "s")
    )
    return f"{passed_s / unit_s:.0f} {unit}"


def size(count_bytes: int) -> str:
    """Return a number of bytes: `12 GB`."""
    step, unit = next(((step, unit) for step, unit in _SIZES if count_bytes >= step), (1, "bytes"))
    return f"{count_bytes / step:.3g} {unit}"


def short_id(run_id: str) -> str:
    """Return the short form of a run's id that commands accept.

    An id that is not random is returned whole.
    """
    return run_id[:_ID_LETTERS] if len(run_id) == _RANDOM_ID else run_id


def printable(text: str) -> str:
    """Return `text` without control characters, which could steer a terminal or break a page.

    Records contain text from devices.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def on_one_line(text: str) -> str:
    """Return `text` on one line, with spaces for control characters.

    It is for names and reasons from other programs and machines.
    """
    return " ".join(
        "".join(character if character.isprintable() else " " for character in text).split()
    )


def _decimals(value: float, digits: int) -> int:
    # Rounded first: 9.996 with three digits is 10.0, not 10.00.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return max(0, digits - 1 - exponent)
