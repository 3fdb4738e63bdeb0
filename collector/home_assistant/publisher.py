"""The publisher: keeps Home Assistant's retained messages at the broker equal to what the ledger holds, in its own thread."""

import logging
import threading
import time
from contextlib import closing

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionEvents, SessionProfile
from edgemeter.collector.home_assistant.discovery import home_messages
from edgemeter.collector.index.history import LedgerHistory
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger

logger = logging.getLogger(__name__)

POLL_S = 2.0
ROOM_POLL_S = 0.02
GOODBYE_S = 2.0


class HomePublisher(SessionEvents):
    """Publishes the devices and newest runs of the ledger at `ledger_place`; `start` once, `stop` once or more."""

    def __init__(self, address: BrokerAddress, ledger_place: LedgerPlace, agent: str, poll_s: float = POLL_S) -> None:
        self._address = address
        self._place = ledger_place
        self._agent = agent
        self._poll_s = poll_s
        self._session: MqttSession | None = None
        self._sent: dict[str, bytes] = {}
        self._seen: object = None
        self._is_new_connection = threading.Event()
        self._stopping = threading.Event()
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="edgemeter-home-assistant", daemon=True)

    def start(self) -> None:
        """Return when the broker has accepted us.

        Raises:
            ConfigError: the broker refuses the credentials, or the file is no ledger.
            UnavailableError: no broker answers.
        """
        with open_ledger(self._place, "read") as ledger:
            profile = SessionProfile(f"collector-{ledger.identity()}-home-assistant")
        self._session = MqttSession(self._address, profile, self)
        self._session.connect()
        self._thread.start()

    def stop(self) -> None:
        """End the session and the thread; what was published stays. May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._session is not None:
            self._session.flush(GOODBYE_S)
            self._session.close()

    def connected(self) -> None:
        """Session event: the broker may have lost what it retained."""
        self._is_new_connection.set()

    def disconnected(self, reason: str) -> None:
        """Session event: it comes back by itself."""
        logger.debug("Home Assistant's messages wait for the broker: %s", reason)

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's answer."""
        if refusal is not None:
            remedy = "allow the collector to write homeassistant/device/# and edgemeter/home-assistant/#"
            self._report(f"the broker refuses it ({refusal}): {remedy}")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._publish_changes()
            except EdgemeterError as error:
                self._report(str(error))
            self._stopping.wait(self._poll_s)

    def _publish_changes(self) -> None:
        session = self._session
        if session is None or not session.is_connected():
            return
        if self._is_new_connection.is_set():
            self._is_new_connection.clear()
            self._sent.clear()
            self._seen = None
        with open_ledger(self._place, "read") as ledger:
            now = ledger.last_row(), ledger.devices()
        if now == self._seen:
            return
        with closing(LedgerHistory(self._place)) as history:
            messages = home_messages(history.newest_runs(), now[1], self._agent)
        if all(self._send(session, topic, payload) for topic, payload in messages.items() if self._sent.get(topic) != payload):
            self._seen = now

    def _send(self, session: MqttSession, topic: str, payload: bytes) -> bool:
        while not session.room():
            if self._stopping.is_set() or not session.is_connected():
                return False
            time.sleep(ROOM_POLL_S)
        session.publish(topic, payload, lasting="retained")
        self._sent[topic] = payload
        return True

    def _report(self, problem: str) -> None:
        # Logged once, not at every message.
        if problem != self._problem:
            logger.warning("Home Assistant is not told: %s", problem)
        self._problem = problem
