"""The service: takes messages from the broker to the desks, in one thread, and lets each look at what is due."""

import hashlib
import logging
import queue
import threading
import time

from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.disconnection import TAKEN_OVER
from edgemeter.agent.delivery.log_limit import about
from edgemeter.agent.delivery.mqtt_session import CONNECT_TIMEOUT_S, Message, MqttSession, Profile
from edgemeter.agent.errors import EdgemeterError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve import desks
from edgemeter.provisioning.serve.desk import Desk

logger = logging.getLogger(__name__)

CLIENT_ID = "edgemeter-fleet"
LOOK_S = 0.5
# More than a thousand devices say at once after a power cut; the broker holds back what comes beyond it.
WAITING_MESSAGES = 20_000


def client_id(folder: FleetFolder) -> str:
    """Return the service's name at the broker.

    Whoever comes to the broker with it ends the service's session, and a device may come with any name: so it holds what the authority's
    key alone tells.
    """
    try:
        secret = folder.ca_key.read_bytes()
    except OSError:
        return CLIENT_ID
    return f"{CLIENT_ID}-{hashlib.sha256(b'client id of the service ' + secret).hexdigest()[:16]}"


class Service:
    """Serves the fleet in `folder` at the broker at `address`; `start` once, `stop` once or more."""

    def __init__(self, folder: FleetFolder, address: BrokerAddress) -> None:
        self.address = address
        self._registry = Registry(folder.registry)
        self._session = MqttSession(address, Profile(client_id(folder), "persistent"), self)
        self._desks = desks.make(folder, self._registry, self._publish)
        self._topics = sorted({topic for desk in self._desks.values() for topic in desk.topics})
        self._messages: queue.Queue[Message] = queue.Queue(WAITING_MESSAGES)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgemeter-fleet", daemon=True)

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when the broker has accepted us.

        Raises:
            UnavailableError: no broker answers within `timeout_s`.
            ConfigError: it refuses who we say we are.
        """
        self._session.connect(timeout_s)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close everything; may be called twice."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._session.close()
        for desk in self._desks.values():
            desk.close()
        self._registry.close()

    def is_alive(self) -> bool:
        """Return whether it works; when not, the process has to end."""
        return self._thread.is_alive()

    def connected(self) -> None:
        """Session event: subscribe, each time."""
        if self._topics:
            self._session.subscribe(self._topics)

    def disconnected(self, reason: str) -> None:
        """Session event: it comes back by itself, unless another has its name, which ends it."""
        if reason == TAKEN_OVER:
            logger.error("another service of this fleet has come to the broker at %s and ends this one: let one serve it", self.address)
            self._ended.set()
        elif not self._ended.is_set():
            logger.info("connection to the broker at %s lost: %s", self.address, reason)

    def received(self, message: Message) -> None:
        """Session event: put it where the thread takes it."""
        while not self._ended.is_set():
            try:
                self._messages.put(message, timeout=1.0)
            except queue.Full:
                continue
            return

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's word on what we sent."""
        if refusal is not None:
            text = "the broker at %s refuses: %s; compare its ACL with that of `edgemeter fleet init`"
            logger.warning(text, self.address, refusal, extra=about(refusal))

    def _publish(self, topic: str, payload: bytes) -> None:
        self._session.publish(topic, payload)

    def _run(self) -> None:
        due_s = 0.0
        while not self._ended.is_set():
            try:
                message = self._messages.get(timeout=max(0.0, due_s - time.monotonic()))
            except queue.Empty:
                message = None
            if message is not None:
                for name, desk in self._desks.items():
                    if any(fits(pattern, message.topic) for pattern in desk.topics):
                        self._do(name, desk, message)
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + LOOK_S
                if not self._session.is_connected():
                    # Nobody can say anything, nor hear it: nobody is late.
                    continue
                for name, desk in self._desks.items():
                    self._do(name, desk, None)

    def _do(self, name: str, desk: Desk, message: Message | None) -> None:
        try:
            if message is None:
                desk.look(time.time_ns())
            else:
                desk.received(message)
        except EdgemeterError as error:
            # A device can send what is refused as often as it likes; a desk that cannot look says so twice a second.
            where, who = (f" (on {message.topic!r})", message.topic.rpartition("/")[0]) if message else ("", f"{name}: {error}")
            logger.warning("%s: %s%s", name, error, where, extra=about(who))


def fits(pattern: str, topic: str) -> bool:
    """Return whether `topic` is one of those that the MQTT subscription `pattern` names."""
    wanted, said = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        said = said[: len(wanted)]
    return len(wanted) == len(said) and all(one in {"+", other} for one, other in zip(wanted, said, strict=True))
