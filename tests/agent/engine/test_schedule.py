"""Facts about `edgemeter.agent.engine.schedule`: users of a server, who wait for nobody here."""

import threading
import time

import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.engine.schedule import side_by_side
from edgemeter.agent.engine.stopwatch import Stopwatch
from tests.fixtures.timing_world import Answering

pytestmark = pytest.mark.usefixtures("played")

MS = 1_000_000


def test_each_user_is_served_beside_the_others():
    """Three users who wait for each other all get through, and none before its arrival.

    The answers are in the order of arrival.
    """
    meeting = threading.Barrier(3, timeout=150)
    watch = Stopwatch(Answering(lambda *_: meeting.wait()))
    begin_ns, begun = side_by_side(watch, [0, MS, 2 * MS])
    timed = watch.timed(begin_ns)
    assert (begun, timed.numbers.tolist()) == (3, [0, 1, 2])
    assert (timed.arrivals_ns - begin_ns).tolist() == [0, MS, 2 * MS]
    assert min(timed.starts_ns - timed.arrivals_ns) >= 0


def test_who_finds_no_room_is_left_out_and_not_put_off():
    """Two places are taken until all have arrived, so that the others are never begun."""
    answered = []
    last_came = threading.Event()

    def answer(number, _):
        answered.append(number)
        last_came.wait(150)

    def arrivals():
        yield from (0, 0, MS, 2 * MS)
        last_came.set()

    assert side_by_side(Stopwatch(Answering(answer)), arrivals(), limit=2)[1] == 2
    assert sorted(answered) == [0, 1]


def test_the_first_failure_ends_the_schedule():
    """A query that arrives later is not begun any more."""
    failed = threading.Event()

    def answer(*_):
        failed.set()
        raise MeasurementError("the server failed")

    def arrivals():
        yield 0
        assert failed.wait(150)
        for _ in range(1000):
            time.sleep(0.05)
            yield from (50 * MS,)

    watch = Stopwatch(Answering(answer))
    with pytest.raises(MeasurementError, match="the server failed"):
        side_by_side(watch, arrivals())
