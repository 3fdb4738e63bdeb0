"""Which messages of an MQTT client are on the way: sent, and not acknowledged by the broker."""

import threading


class OutstandingPublishes:
    """Message ids of QoS 1 on the way. Its lock is never held while paho-mqtt is called, which holds locks of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[int] = set()
        self._unasked: set[int] = set()
        self._early: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, mid: int) -> bool:
        return mid in self._waiting

    def published(self, mid: int, qos: int) -> None:
        """Note what `publish` returned."""
        with self._lock:
            if mid in self._early:
                self._early.discard(mid)
            elif qos:
                self._waiting.add(mid)
            else:
                self._unasked.add(mid)

    def reported(self, mid: int) -> bool:
        """Note what was reported as done; return False for QoS 0, whose report means nothing."""
        with self._lock:
            if mid in self._unasked:
                self._unasked.discard(mid)
                return False
            if mid in self._waiting:
                self._waiting.discard(mid)
            else:
                self._early.add(mid)
            return True

    def reconnected(self) -> None:
        """Forget everything: it went with the connection."""
        with self._lock:
            self._waiting.clear()
            self._unasked.clear()
            self._early.clear()
