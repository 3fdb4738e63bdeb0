"""Rate limits per sender: a burst at once, and a rate per second (a token bucket)."""

import threading
import time
from collections.abc import Callable

MOST_REMEMBERED = 20_000  # Above this number, senders whose bucket is full again are forgotten.


class Allowance:
    """A bucket per sender, of `burst` units, refilled at `per_s`; usable from several threads."""

    def __init__(
        self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        # By sender: units left, and the time of that count.
        self._balances: dict[str, tuple[float, float]] = {}
        self._exceeded: set[str] = set()
        self._lock = threading.Lock()

    def spend(self, name: str, units: float = 1.0) -> bool:
        """Count `units` sent by `name`, and return whether they were within the limit."""
        with self._lock:
            now_s = self._clock()
            balance, since_s = self._balances.get(name, (self._burst, now_s))
            balance = min(self._burst, balance + self._per_s * (now_s - since_s)) - units
            if balance < 0:
                self._exceeded.add(name)
            if len(self._balances) >= MOST_REMEMBERED:
                full_s = self._burst / self._per_s
                self._balances = {
                    other: entry
                    for other, entry in self._balances.items()
                    if now_s - entry[1] < full_s
                }
            self._balances[name] = max(0.0, balance), now_s
        return balance >= 0

    def exceeded(self) -> list[str]:
        """Return the senders that exceeded the limit since the last call."""
        with self._lock:
            names, self._exceeded = self._exceeded, set()
        return sorted(names)
