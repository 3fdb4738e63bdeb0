"""The last lines that the agent logged, kept in memory: a board whose logs nobody may read, or that keeps none, can still tell."""

import logging
import time
from collections import deque

KEPT_LINES = 400
LONGEST_LINE = 400


class LastWords(logging.Handler):
    """Keeps the last lines, each with the time (UTC) and the level."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        self._lines.append(f"{when} {record.levelname.lower()} {record.getMessage()}"[:LONGEST_LINE])

    def lines(self) -> list[str]:
        """Return the lines, the oldest first."""
        return list(self._lines)
