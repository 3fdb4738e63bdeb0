"""A limit to what a server logs about one device: a line a minute, with the count of those left out. A bad board fills no disk.

Code that logs what a device can cause at will marks it, `logger.warning(..., extra=about(DEVICE))`; a server's handlers have the
filter.
"""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

EVERY_S = 60.0
# Beyond so many, those whose minute is over are forgotten.
MOST_REMEMBERED = 10_000


class _LastLogged(NamedTuple):
    logged_s: float
    left_out: int


def about(who: str) -> dict[str, str]:
    """Return what marks a record as one about `who`, to be given as `extra`."""
    return {"about": who}


class LogLimit(logging.Filter):
    """Lets one record a minute through of each module about each one; others as they are. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lines: dict[tuple[str, str], _LastLogged] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged; it names the number of suppressed lines."""
        who = getattr(record, "about", None)
        if who is None:
            return True
        now_s, key = self._clock(), (record.name, who)
        last = self._lines.get(key)
        if last is not None and now_s - last.logged_s < EVERY_S:
            self._lines[key] = last._replace(left_out=last.left_out + 1)
            return False
        if last is not None and last.left_out:
            record.msg, record.args = f"{record.getMessage()} ({last.left_out} more lines about it were suppressed)", ()
        self._forget(now_s)
        self._lines[key] = _LastLogged(now_s, 0)
        return True

    def _forget(self, now_s: float) -> None:
        if len(self._lines) >= MOST_REMEMBERED:
            self._lines = {key: line for key, line in self._lines.items() if now_s - line.logged_s < EVERY_S}


def apply() -> None:
    """Apply the limit to all logging of this program."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
