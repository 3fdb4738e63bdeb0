"""The collector's presence at the broker: a retained state and a Will, by which a fleet's service knows that results arrive."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.mqtt_session import MqttSession, SessionEvents, SessionProfile, Will
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import COLLECTOR_STATE, COLLECTOR_STATE_S, CollectorState

logger = logging.getLogger(__name__)

GOODBYE_S = 2.0
POLL_S = 1.0


class CollectorPresence(SessionEvents):
    """Reports the collector `name()`, asked when it starts, as online while `is_well()`, and the devices in `flooders()`.

    `start` once, `stop` once or more.
    """

    def __init__(
        self,
        address: BrokerAddress,
        name: Callable[[], str],
        is_well: Callable[[], bool],
        flooders: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        self._address = address
        self._name = name
        self._is_well = is_well
        self._flooders = flooders
        self._topic = ""
        self._session: MqttSession | None = None
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgemeter-presence", daemon=True)

    def start(self) -> None:
        """Return when the broker has accepted us.

        Raises:
            ConfigError: the broker refuses the credentials.
            UnavailableError: no broker answers.
        """
        name = self._name()
        self._topic = COLLECTOR_STATE.format(collector=name)
        will = Will(self._topic, messages.encode_message(CollectorState(state="offline")))
        self._session = MqttSession(self._address, SessionProfile(f"collector-{name}-presence", will=will), self)
        self._session.connect()
        self._thread.start()

    def stop(self) -> None:
        """Report that it is offline, and end; may be called twice."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._report("offline")
        if self._session is not None:
            self._session.flush(GOODBYE_S)
            self._session.close()

    def connected(self) -> None:
        """Session event: the broker may have published the Will."""
        self._wake.set()

    def disconnected(self, reason: str) -> None:
        """Session event: it comes back by itself."""
        logger.debug("the collector's presence waits for the broker: %s", reason)

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's answer; an older ACL does not allow this topic, which costs nothing but the report."""
        if refusal is not None:
            logger.debug("the broker refuses %s: %s", self._topic, refusal)

    def _run(self) -> None:
        due_s = 0.0
        while not self._stopping.is_set():
            if self._wake.is_set() or time.monotonic() >= due_s:
                self._wake.clear()
                self._report("online" if self._is_well() else "offline")
                due_s = time.monotonic() + COLLECTOR_STATE_S
            if flooders := self._flooders():
                # Not retained: the fleet's service bans them once.
                self._report("online", flooders)
            self._wake.wait(POLL_S)

    def _report(self, state: Literal["online", "offline"], flooders: Sequence[str] = ()) -> None:
        if self._session is not None and self._session.is_connected():
            payload = messages.encode_message(CollectorState(state=state, flooding=tuple(flooders)))
            self._session.publish(self._topic, payload, lasting="passing" if flooders else "retained")
