"""Facts about reading much at once."""

import contextlib
import gc
import threading
from types import SimpleNamespace

from edgemeter.collector.trend import history


def test_garbage_is_collected_again_when_two_threads_read_at_once(monkeypatch):
    """Also where the first ends between the question of the second, whether it is collected, and its switching off."""
    first, states = contextlib.ExitStack(), []
    ending = threading.Thread(target=first.close)

    def is_enabled():
        states.append(gc.isenabled())
        if len(states) == 2:
            ending.start()
            # Unless the second keeps it from ending now.
            ending.join(0.2)
        return states[-1]

    monkeypatch.setattr(history, "gc", SimpleNamespace(isenabled=is_enabled, disable=gc.disable, enable=gc.enable))
    try:
        first.enter_context(history.without_garbage_collection())
        with history.without_garbage_collection():
            assert states == [True, False]
        ending.join(150)
        assert gc.isenabled()
    finally:
        gc.enable()
