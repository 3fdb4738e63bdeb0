"""Times of a schedule: five fields as cron has them (minute, hour, day of month, month, day of week), in the board's local time.

    *  5  1,2,5-9  */15  8-18/2  jan..dec  sun..sat (0 and 7 are Sunday)  @hourly @daily @midnight @weekly @monthly @yearly @annually

As in Vixie's and Debian's cron: with a day of month and a day of week that both are restricted (neither begins with `*`) either is
enough. When the clock is put forward, a fixed time that does not exist comes right after the gap, once; when it is put back, a fixed
time comes in the first of both hours. Where minute or hour begins with `*`, the times go on by real time through both.
Source: cron(8) and crontab(5) of Debian's cron 3.0pl1. A shift of more than three hours is no summer time, and is taken as it comes.
"""

import time
from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError

_NICKNAMES = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_SHIFT_S = 3 * 3600
# 29 February comes after eight years at the latest (2096, 2104).
_HORIZON_S = int(8.1 * 366 * 86_400)
_LONGEST_MONTHS = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}


@dataclass(frozen=True, slots=True)
class Cron:
    """The times of one schedule; `next_s` finds them."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    needs_both_days: bool
    goes_by_real_time: bool

    def next_s(self, after_s: float) -> int:
        """Return the first time after `after_s`, both seconds since 1970 (UTC); raises ConfigError if there is none."""
        now_s = (int(after_s) // 60 + 1) * 60
        # Local minutes begin with UTC ones everywhere since 1972.
        end_s = now_s + _HORIZON_S
        while now_s < end_s:
            local_time = time.localtime(now_s)
            gap_s = local_time.tm_gmtoff - time.localtime(now_s - 60).tm_gmtoff
            if 0 < gap_s <= _SHIFT_S and not self.goes_by_real_time:
                skipped = range(now_s - 60, now_s - 60 + gap_s, 60)
                if self._fits(local_time) or any(self._fits(time.gmtime(t + 60 + local_time.tm_gmtoff - gap_s)) for t in skipped):
                    return now_s
            elif self._fits(local_time) and (self.goes_by_real_time or not _is_repeated(now_s, local_time.tm_gmtoff)):
                return now_s
            # An hour in which nothing fits is left in one step; a gap begins with an hour in all zones that have one.
            step = 1 if local_time.tm_hour in self.hours and self._fits_day(local_time) else 60 - local_time.tm_min
            now_s += 60 * step
        raise ConfigError("the schedule has no time in the next eight years: correct its day and month")

    def _fits(self, at: time.struct_time) -> bool:
        return at.tm_min in self.minutes and at.tm_hour in self.hours and self._fits_day(at)

    def _fits_day(self, at: time.struct_time) -> bool:
        if at.tm_mon not in self.months:
            return False
        of_month, of_week = at.tm_mday in self.days, (at.tm_wday + 1) % 7 in self.weekdays
        return (of_month and of_week) if self.needs_both_days else (of_month or of_week)


def parse(text: str) -> Cron:
    """Return the times that `text` names; raises ConfigError if it has not five fields, one is wrong, or no such day ever comes."""
    written = text.strip().lower()
    fields = _NICKNAMES.get(written, written).split()
    if len(fields) != len(_FIELDS):
        raise ConfigError(f"{text!r} is not a schedule: write five fields (minute hour day month weekday), or {', '.join(_NICKNAMES)}")
    minutes, hours, days, months, weekdays = (_field(field, text, *limits) for field, limits in zip(fields, _FIELDS, strict=True))
    needs_both = fields[2].startswith("*") or fields[4].startswith("*")
    if needs_both and min(days) > max(_LONGEST_MONTHS[month] for month in months):
        raise ConfigError(f"{text!r} is not a schedule: its months have no day {min(days)}")
    goes_by_real_time = fields[0].startswith("*") or fields[1].startswith("*")
    return Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), needs_both, goes_by_real_time)


def _is_repeated(now_s: int, offset_s: int) -> bool:
    """Return whether the clock has shown this time before, and was put back since."""
    before_s = time.localtime(now_s - _SHIFT_S).tm_gmtoff
    back_s = before_s - offset_s
    return 0 < back_s <= _SHIFT_S and time.localtime(now_s - back_s).tm_gmtoff == before_s


def _field(field: str, text: str, unit: str, lowest: int, highest: int, names: dict[str, int]) -> frozenset[int]:
    numbers: set[int] = set()
    for part in field.split(","):
        stretch, slash, step_text = part.partition("/")
        first_text, dash, last_text = stretch.partition("-")
        if stretch == "*":
            # Sunday stands in the range twice.
            first, last = lowest, min(highest, 6) if unit == "day of week" else highest
        else:
            first = _number(first_text, names)
            last = _number(last_text, names) if dash else first
        step = _number(step_text, {}) if slash else 1
        if not lowest <= first <= last <= highest or step < 1 or (slash and stretch != "*" and not dash):
            raise ConfigError(
                f"{text!r} is not a schedule: {part!r} is not a {unit} ({lowest}-{highest}, *, A-B, */N, A-B/N, lists of these)"
            )
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _number(word: str, names: dict[str, int]) -> int:
    """Return the number, -1 when it is none."""
    return names.get(word, int(word) if word.isascii() and word.isdigit() and len(word) <= 2 else -1)
