"""Facts about the log lines of a server on one device.

There is one line a minute, with the number of those that were left out.
"""

import logging

import pytest

from edgemeter.agent.base import log_limit
from edgemeter.agent.base.log_limit import LogLimit, about


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def logged(clock):
    """Return a logger and what comes out of its one handler."""
    lines = []

    class Kept(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    logger = logging.getLogger("test-log-limit")
    logger.propagate = False
    handler = Kept()
    handler.addFilter(LogLimit(clock))
    logger.addHandler(handler)
    yield logger, lines
    logger.removeHandler(handler)


def test_one_line_a_minute_and_the_count_of_those_left_out(logged, clock):
    """The first line comes at once, and the next a minute later with the count."""
    logger, lines = logged
    for number in range(1000):
        logger.warning("garbage %d, 100%%", number, extra=about("pi-1"))
    assert lines == ["garbage 0, 100%"]
    clock.now_s += log_limit.EVERY_S
    logger.warning("garbage %s", "again, 50%", extra=about("pi-1"))
    clock.now_s += log_limit.EVERY_S
    logger.warning("once more", extra=about("pi-1"))
    assert lines[1:] == [
        "garbage again, 50% (999 more lines about it were suppressed)",
        "once more",
    ]


def test_one_device_silences_no_other_and_nothing_else(logged):
    """Each device has its own minute, and a line about no device is never held back."""
    logger, lines = logged
    for _ in range(3):
        for who in ("pi-1", "pi-2"):
            logger.warning("%s", who, extra=about(who))
        logger.warning("all")
    assert lines == ["pi-1", "pi-2", "all", "all", "all"]


def test_names_without_end_are_forgotten(logged, clock, monkeypatch):
    """When there are many names, those whose minute is over are forgotten."""
    logger, _ = logged
    monkeypatch.setattr(log_limit, "MOST_REMEMBERED", 10)
    for number in range(100):
        logger.warning("x", extra=about(f"pi-{number}"))
        clock.now_s += log_limit.EVERY_S
    (limit,) = logger.handlers[0].filters
    assert len(limit._lines) <= 11
