"""Devices that send the collector more useless messages than any board does: nothing of them is taken until they are quiet."""

import threading
import time
from collections.abc import Callable, Collection

from edgemeter.agent.base.allowance import Allowance
from edgemeter.agent.contract.messages import TOPIC_ROOT

# What a device may send that is rejected or has no room, for long and at once; a message costs one, and one for each so many bytes. Without
# receipts a board sends its 1,000 records, or 8 MB, again after 5 s, 10 s, 20 s, ...
USELESS_PER_S, USELESS_AT_ONCE, USELESS_BYTES = 200.0, 4000.0, 16 << 10
MUTE_S = 10.0


def source_of(topic: str) -> str:
    """Return whose topic this is: all levels but the last."""
    return topic.rpartition("/")[0]


class UselessMessages:
    """Counts what was rejected or had no room, by device; usable from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowance = Allowance(USELESS_PER_S, USELESS_AT_ONCE, clock)
        self._lock = threading.Lock()
        self._flooders: set[str] = set()
        self._muted_until_s: dict[str, float] = {}

    def count(self, topic: str, size_bytes: int) -> None:
        """Count one message."""
        source = source_of(topic)
        with self._lock:
            if source.startswith(TOPIC_ROOT) and not self._allowance.spend(source, 1 + size_bytes / USELESS_BYTES):
                self._flooders.add(source)
                self._muted_until_s[source] = self._clock() + MUTE_S

    def muted(self) -> Collection[str]:
        """Return the sources of which nothing is taken now."""
        if self._muted_until_s:
            now_s = self._clock()
            with self._lock:
                self._muted_until_s = {source: until_s for source, until_s in self._muted_until_s.items() if until_s > now_s}
        return self._muted_until_s

    def flooders(self) -> list[str]:
        """Return the names of the devices that flooded since the last call."""
        with self._lock:
            flooders, self._flooders = self._flooders, set()
        return sorted(source.rpartition("/")[2] for source in flooders)
