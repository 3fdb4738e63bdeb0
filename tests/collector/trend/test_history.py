"""Facts about reading much at once."""

import gc

from edgemeter.collector.trend.history import without_garbage_collection


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
