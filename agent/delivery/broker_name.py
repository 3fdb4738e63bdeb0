"""The name under which a process of a device is known to the broker: a state machine with expiry.

    own        it holds the device's lock and carries its name, Will and state
    beside     another process on this board does; it publishes under a name of its own
    displaced  a namesake on another board took the name over; it publishes under a name of its own, until the time is over

    own -> displaced      the broker says that the name was taken over, or the connection keeps ending while a namesake is about
    displaced -> own      when the namesake's state says that it has gone, or after minutes, each time twice as many; both boards deliver
                          meanwhile
    beside -> own         the other process has ended, and this one is the resident one
All times are monotonic seconds given by the caller.
"""

import threading
from collections.abc import Callable
from typing import Literal

from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.base.mqtt_session import SHORT_LIFE_S, SHORT_LIVES, TAKEN_OVER
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.delivery.sender import retry_spread

NameState = Literal["own", "beside", "displaced"]

FIRST_DISPLACED_S = 300.0
LONGEST_DISPLACED_S = 3600.0
# A namesake that was not heard of for so long is forgotten, as is how often it came.
FORGET_S = 600.0


class BrokerName:
    """The name of one process of a device whose session is `session`; any thread may call."""

    def __init__(self, lock: DeviceLock, session: int, *, is_resident: bool, spread: Callable[[], float] = retry_spread) -> None:
        self.state: NameState | None = None
        self._lock = lock
        self._session = session
        self._is_resident = is_resident
        self._spread = spread
        self._guard = threading.Lock()
        self._until_s = 0.0
        self._times = 0
        self._connected_s = float("-inf")
        self._short_lives = 0
        self._has_own_state = False
        self._rival_s = float("-inf")

    def choose(self, now_s: float) -> NameState:
        """Return under which name to connect now."""
        with self._guard:
            if now_s < self._until_s:
                self.state = "displaced"
            else:
                self.state = "own" if self._lock.take() else "beside"
            return self.state

    def is_due(self, now_s: float) -> bool:
        """Return whether to connect anew, because another name is ours now."""
        with self._guard:
            if self.state == "own":
                return now_s < self._until_s
            if self.state == "displaced":
                return now_s >= self._until_s
            return self.state == "beside" and self._is_resident and self._lock.take()

    def wait_s(self, now_s: float) -> float:
        """Return how long the name remains unchanged without an event, at most a minute."""
        with self._guard:
            return min(60.0, max(0.0, self._until_s - now_s)) if self.state == "displaced" else 60.0

    def connected(self, now_s: float) -> None:
        """Note that a connection is up."""
        with self._guard:
            self._connected_s = now_s

    def disconnected(self, reason: str, now_s: float) -> None:
        """Note the disconnect; give way for a while if a namesake took over, or if one exists and our connections break early."""
        with self._guard:
            lived_s = now_s - self._connected_s
            self._short_lives = self._short_lives + 1 if lived_s < SHORT_LIFE_S else 0
            if lived_s >= FORGET_S:
                self._times = 0
            has_rival = now_s - self._rival_s < FORGET_S
            if self.state == "own" and (reason == TAKEN_OVER or (has_rival and self._short_lives >= SHORT_LIVES)):
                pause_s = min(LONGEST_DISPLACED_S, FIRST_DISPLACED_S * 2.0 ** min(self._times, 10))
                self._until_s = now_s + pause_s * self._spread()
                self._times += 1
                self._short_lives = 0

    def state_seen(self, state: DeviceState, now_s: float) -> bool:
        """Note the state that the broker has under our name; return whether a rival's has replaced ours.

        Until ours has come back, another's is left over from the last time.
        """
        with self._guard:
            if state.session == self._session:
                self._has_own_state = True
            elif self.state == "displaced" and state.state != "online":
                self._until_s = now_s
            elif self._has_own_state:
                self._rival_s = now_s
                return self.state == "own"
            return False
