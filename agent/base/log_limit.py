"""Limits a server's log lines about one device, so that no board fills a disk.

There is one line a minute, with the number of suppressed ones. Code that logs events that a device
can cause at will marks them, `logger.warning(..., extra=about(DEVICE))`; a server's log handlers
have the filter.
"""

import logging
import time
from collections.abc import Callable

EVERY_S = 60.0
MOST_REMEMBERED = 10_000  # Above this number, devices whose minute is over are forgotten.


def about(who: str) -> dict[str, str]:
    """Return the `extra` that marks a log record as one about `who`."""
    return {"about": who}


class LogLimit(logging.Filter):
    """Passes one marked record a minute per module and device, and all unmarked ones.

    `clock` is in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # By module and device: time of the last line, and number of lines suppressed since.
        self._lines: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged; it names the number of suppressed lines."""
        if (who := getattr(record, "about", None)) is None:
            return True
        now_s, key = self._clock(), (record.name, who)
        logged_s, left_out = self._lines.get(key, (-EVERY_S, 0))
        if key in self._lines and now_s - logged_s < EVERY_S:
            self._lines[key] = logged_s, left_out + 1
            return False
        if left_out:
            record.msg, record.args = (
                f"{record.getMessage()} ({left_out} more lines about it were suppressed)",
                (),
            )
        if len(self._lines) >= MOST_REMEMBERED:
            self._lines = {
                other: line for other, line in self._lines.items() if now_s - line[0] < EVERY_S
            }
        self._lines[key] = now_s, 0
        return True


def apply() -> None:
    """Apply the limit to all logging of this program."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
