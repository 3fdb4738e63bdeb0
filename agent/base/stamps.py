"""Timestamps in the logs of other programs: a clock time with or without its date, or a number."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache

from edgemeter.agent.base.errors import ConfigError

DAY_S = 86_400.0
SECONDS = {
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hours": 3600.0,
}
# A number without a unit in this range (years 2014 to 2039) counts from 1970; a smaller one from
# anywhere.
EARLIEST_S, LATEST_S = 1.4e9, 2.2e9
CLOCK = re.compile(
    r"(?<![\d:.])(\d{1,2}):(\d\d):(\d\d)(?:[.,](?P<digits>\d{1,9}))?(?![\d:])(?: "
    r"?(?P<half>[AaPp])\.?[Mm]\b)?"
    r"(?: ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)\b)?"
)
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
DAY = re.compile(
    rf"\d{{4}}([-/.]?)\d\d\1\d\d|\d{{1,2}}([-/.])\d{{1,2}}\2\d{{4}}|\b\d{{1,2}}[- ]{_MONTH}[- "
    rf"]\d{{4}}|\b{_MONTH} +\d{{1,2}}\b"
)
# ISO 8601, nvidia-smi, tegrastats (month first), meters (day first, with points), `date`, syslog.
DAY_FORMS = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%Y%m%d",
    "%m-%d-%Y",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%d-%b-%Y",
    "%d %b %Y",
    "%b %d %Y",
)
# Seconds that `ts '%.s'` or a kernel writes at the beginning of a line, or `date +%s` anywhere
# before it.
_SECONDS_BEFORE = re.compile(
    r"(?:^\W*(?=\d+\.)|(?<![\w.:,/-])(?=\d{9}))(\d+(?:\.\d+)?)(?![\w.:,/-])"
)
# The changing beginning of a log line: timestamps and process ids.
_CHANGING = re.compile(
    rf"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|{_MONTH}|AM|PM)\b|\[\d+\]|(?<!\S)\W*[\d:.,+TZ/-]+\W*(?!\S)"
)
NUMBER = re.compile(r"([+-]?(?=[.,]?\d)\d*(?:[.,](\d*))?(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class Moment:
    """A timestamp: `at_s` counts from 1970, in UTC if it has a zone, or from the log's own origin.

    `day` is empty for a number. Timestamps without a date or year start again after `period_s`.
    """

    at_s: float
    step_s: float
    day: str = ""
    zone: str = ""
    period_s: float = 0.0

    def __str__(self) -> str:
        """Return the time of day, or the number."""
        zone = " UTC" if self.zone else ""
        return (
            f"{datetime.fromtimestamp(self.at_s, timezone.utc):%H:%M:%S}{zone}"
            if self.day
            else f"{self.at_s:.10g} s"
        )


def parse_moment(text: str, unit_s: float | None = None, zone: str = "") -> Moment | None:
    """Return the first clock time in a text with its date, or the number that the text is.

    None if it is neither.

    `unit_s` is the unit of a number, `zone` that of a clock time without one.
    """
    clock = CLOCK.search(text)
    if clock is None:
        return _of_number(text.strip(), unit_s)
    date = DAY.search(text, 0, clock.start()) or DAY.search(text, clock.end())
    day, period_s = (date[0], 0.0) if date else ("1970-01-01", DAY_S)
    if not re.search(r"\d{4}", day):
        # A leap year.
        day, period_s = f"{day} 2000", 366 * DAY_S
    midnight_s = _midnight_s(day)
    if midnight_s is None:
        return None
    hours, minutes, seconds, digits, zone = (
        *map(int, clock.groups()[:3]),
        clock["digits"] or "",
        clock["zone"] or zone,
    )
    if clock["half"]:
        hours = hours % 12 + 12 * (clock["half"] in "Pp")
    offset = datetime.strptime(zone.replace("UTC", "") or "Z", "%z").utcoffset()
    at_s = midnight_s + 3600 * hours + 60 * minutes + seconds + float(f"0.{digits or 0}")
    return Moment(
        at_s - (offset.total_seconds() if offset else 0), 10.0 ** -len(digits), day, zone, period_s
    )


def parse_prefix(text: str) -> tuple[Moment | None, str]:
    """Return the timestamp that `ts`, a container or syslog put before a line, and its source.

    A number has precedence over a clock time.
    """
    number = _SECONDS_BEFORE.search(text)
    return parse_moment(number[1] if number else text), " ".join(_CHANGING.sub(" ", text).split())


def in_order(moments: Iterable[Moment]) -> Iterator[Moment]:
    """Yield timestamps, continued over midnight and new year.

    Raises:
        ConfigError: they go backwards, or have several forms.
    """
    before, passed_s = None, 0.0
    for moment in moments:
        before = before or moment
        if (bool(moment.day), bool(moment.zone), moment.period_s) != (
            bool(before.day),
            bool(before.zone),
            before.period_s,
        ):
            raise ConfigError(
                "mixes numbers and dates as timestamps, or two forms of dates: keep the "
                "lines of one form"
            )
        if moment.at_s + passed_s < before.at_s - moment.period_s / 2:
            passed_s += moment.period_s
        if moment.at_s + passed_s < before.at_s:
            raise ConfigError(
                "has timestamps that go backwards, by "
                f"{before.at_s - moment.at_s - passed_s:.3g} s: cut the log there"
            )
        before = replace(moment, at_s=moment.at_s + passed_s)
        yield before


@cache
def _midnight_s(day: str) -> float | None:
    """Return the start of a day in UTC; None if there is no such day."""
    for form in DAY_FORMS:
        with suppress(ValueError):
            return datetime.strptime(day, form).replace(tzinfo=timezone.utc).timestamp()
    return None


def _of_number(text: str, unit_s: float | None) -> Moment | None:
    number = NUMBER.fullmatch(text)
    if number is None or number[3].lower() not in {"", *SECONDS}:
        return None
    value = float(number[1].replace(",", "."))
    since_1970 = next(
        (
            scale_s
            for scale_s in (1.0, 1e-3, 1e-6, 1e-9)
            if EARLIEST_S <= value * scale_s < LATEST_S
        ),
        None,
    )
    scale_s = (
        SECONDS.get(number[3].lower())
        or unit_s
        or since_1970
        or (1.0 if abs(value) < EARLIEST_S else None)
    )
    return (
        None
        if scale_s is None or value * scale_s > LATEST_S
        else Moment(value * scale_s, scale_s * 10.0 ** -len(number[2] or ""))
    )
