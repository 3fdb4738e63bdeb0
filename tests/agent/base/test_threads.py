"""Facts about the threads of a service: one that dies ends it, with a line that names it."""

import sys
import threading

import pytest

from edgemeter.agent.base.errors import FAILED, UnavailableError
from edgemeter.agent.base.threads import ended_by_dead_threads, until_stopped

DEADLINE_S = 60


def start(work, name="edgemeter-page"):
    threading.Thread(target=work, name=name, daemon=True).start()


def overflow():
    raise OverflowError("can't serialize ints\n < -2**63")


def test_a_thread_that_dies_ends_the_service_with_a_line_that_names_it():
    """The code that waits for a signal wakes, and the process ends with a failure's status.

    The error says of what and where the thread died.
    """
    before = threading.excepthook
    # The wait belongs to the block that raises.
    with pytest.raises(UnavailableError) as ended, until_stopped() as stopped:  # noqa: PT012
        start(overflow)
        assert stopped.wait(DEADLINE_S)
    text = str(ended.value)
    assert text.startswith(
        "the thread 'edgemeter-page' died (OverflowError: can't serialize ints < -2**63, "
        "test_threads.py line "
    )
    assert "\n" not in text
    assert ended.value.exit_status == FAILED
    assert threading.excepthook is before


def test_a_thread_that_ends_is_no_death():
    """A thread may end by itself or by `sys.exit`."""
    ended = []
    with ended_by_dead_threads(lambda: ended.append(1)):
        for work in (list, sys.exit):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(DEADLINE_S)
    assert ended == []
