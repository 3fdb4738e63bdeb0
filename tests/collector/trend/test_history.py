"""Facts about reading much at once."""

import gc

from edgemeter.collector.trend.history import without_garbage_collection
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.series_factory import FIRST_DAY, make_days


def test_garbage_is_collected_again_when_the_first_of_two_readers_ends():
    """The second found it off, and leaves it as it is."""
    first, second = without_garbage_collection(), without_garbage_collection()
    first.__enter__()
    second.__enter__()
    try:
        assert not gc.isenabled()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        assert gc.isenabled()
    finally:
        gc.enable()


def test_the_first_day_asked_for_is_among_those_returned():
    """A day before it is not."""
    history = history_of(make_days([100.0] * 5))
    (key,) = history.series()
    assert [run.day - FIRST_DAY for run in history.points(key, FIRST_DAY + 3)] == [3, 4]
