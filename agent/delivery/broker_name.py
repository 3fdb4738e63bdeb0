"""The name under which a process of a device connects to the broker: a state machine with timeouts.

    own        it holds the device's lock and uses its name, Will and state
    beside     another process on this board does; it publishes under another name
    displaced  a device with the same name on another board took over; it publishes under another
               name until a timeout

    own -> displaced      the broker reports a takeover, or the connection keeps ending while such
                          a device exists
    displaced -> own      its state reports offline, or after minutes, each time twice as many;
                          both boards deliver meanwhile
    beside -> own         the other process has ended, and this one is the daemon

All times are monotonic seconds given by the caller.
"""

import threading
from collections.abc import Callable
from typing import Literal

from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.base.mqtt_session import SHORT_LIFE_S, SHORT_LIVES, TAKEN_OVER
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.delivery.send_window import retry_spread

NameState = Literal["own", "beside", "displaced"]

FIRST_DISPLACED_S = 300.0
LONGEST_DISPLACED_S = 3600.0
# After this time without a message, a device of the same name and the number of its takeovers are
# forgotten.
FORGET_S = 600.0


class BrokerName:
    """The broker name of one process of a device, whose session is `session`.

    Any thread may call it.
    """

    def __init__(
        self,
        lock: DeviceLock,
        session: int,
        *,
        is_resident: bool,
        spread: Callable[[], float] = retry_spread,
    ) -> None:
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
        """Return the state that decides the name of the next connection."""
        with self._guard:
            if now_s < self._until_s:
                self.state = "displaced"
            else:
                self.state = "own" if self._lock.take() else "beside"
            return self.state

    def is_due(self, now_s: float) -> bool:
        """Return whether to reconnect, because the name has changed."""
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
        with self._guard:
            self._connected_s = now_s

    def disconnected(self, reason: str, now_s: float) -> None:
        """Note the disconnect, and use another name for a while if another process has ours.

        That is after a takeover, or if our connections break early and there is a rival.
        """
        with self._guard:
            lived_s = now_s - self._connected_s
            self._short_lives = self._short_lives + 1 if lived_s < SHORT_LIFE_S else 0
            if lived_s >= FORGET_S:
                self._times = 0
            has_rival = now_s - self._rival_s < FORGET_S
            if self.state == "own" and (
                reason == TAKEN_OVER or (has_rival and self._short_lives >= SHORT_LIVES)
            ):
                pause_s = min(LONGEST_DISPLACED_S, FIRST_DISPLACED_S * 2.0 ** min(self._times, 10))
                self._until_s = now_s + pause_s * self._spread()
                self._times += 1
                self._short_lives = 0

    def state_seen(self, state: DeviceState, now_s: float) -> bool:
        """Note the retained state under our name.

        Returns whether another device's has replaced ours.

        Before ours has arrived, another's is left from an earlier time.
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
