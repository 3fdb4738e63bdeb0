"""Quiet hours: stretches of local time in which no measurement is started."""

import time
from collections.abc import Sequence
from datetime import datetime

NS_PER_S = 1_000_000_000


def is_quiet(windows: Sequence[str], now_ns: int) -> str | None:
    """Return the window (`22:00-06:00`) that `now_ns` (UTC) lies in by this machine's local time, None outside of all.

    A window includes its first minute and not its last; one whose end is not later than its beginning goes over midnight.
    """
    local = time.localtime(now_ns // NS_PER_S)
    minute = local.tm_hour * 60 + local.tm_min
    for window in windows:
        begins, _, ends = window.partition("-")
        first, last = _minute(begins), _minute(ends)
        inside = first <= minute < last if first < last else minute >= first or minute < last
        if inside:
            return window
    return None


def _minute(text: str) -> int:
    clock = datetime.strptime(text, "%H:%M")  # noqa: DTZ007 - a time of day
    return clock.hour * 60 + clock.minute
