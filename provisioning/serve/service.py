"""The service: passes messages from the broker to the handlers, and polls each of them.

It does so in one thread.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Literal

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import (
    CONNECT_TIMEOUT_S,
    TAKEN_OVER,
    Message,
    MqttSession,
    SessionProfile,
)
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.certificates import active_bans, ban_device
from edgemeter.provisioning.serve.handler import HANDLERS, FleetHandler, subscription
from edgemeter.provisioning.serve.inbox import ServiceInbox

logger = logging.getLogger(__name__)

CLIENT_ID = "edgemeter-fleet"
POLL_S = 0.5
# A handler may wait for a broker that stalls, ten seconds for each session that it ends.
STALLED_S = 60.0
# A flood leaves a backlog at the broker, up to its limit, before the sender is disconnected; others
# wait behind it.
MOST_DROPPED = 2000
RENEWAL_S = 3.0


class FleetService:
    """Serves the fleet in `folder` at the broker at `address`; `start` once, then `stop`."""

    def __init__(
        self,
        folder: FleetFolder,
        address: BrokerAddress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._clock = clock
        self._registry = open_registry(folder)
        # Any client that connects with its id ends its session, so the id contains a secret.
        secret = hashlib.sha256(
            b"client id of the service " + folder.ca_key.read_bytes()
        ).hexdigest()[:16]
        self._client_id = f"{CLIENT_ID}-{secret}"
        self.session = MqttSession(
            address, SessionProfile(self._client_id, "persistent", acknowledges="later"), self
        )
        self._handlers: dict[str, FleetHandler] = {
            name: resolve_name(kind)(folder, self._registry, self._publish)
            for name, kind in HANDLERS.items()
        }
        topics = [
            (name, topic)
            for name, fleet_handler in self._handlers.items()
            for topic in fleet_handler.topics
        ]
        self._topics = sorted({topic for _, topic in topics})
        self._routes = [(name, subscription(topic)) for name, topic in topics]
        self._inbox = ServiceInbox(clock)
        self._ended = threading.Event()
        self._pass_s = clock()
        self._due_s = 0.0
        self._renewed_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="edgemeter-fleet", daemon=True)

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Connect, until the broker has accepted the service.

        Raises:
            UnavailableError: no broker answers.
            ConfigError: the broker refuses the service.
        """
        self.session.connect(timeout_s)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close everything; may be called twice."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.session.close()
        for fleet_handler in self._handlers.values():
            fleet_handler.close()
        self._registry.close()

    def is_alive(self) -> bool:
        """Return whether it runs.

        If not, another service has taken over, and the process has to end.
        """
        return self._thread.is_alive()

    def is_stalled(self) -> bool:
        """Return whether it has made no progress for so long that only a restart can help."""
        return self._clock() - self._pass_s > STALLED_S

    def connected(self) -> None:
        """Session event: subscribe, each time."""
        self.session.subscribe(self._topics)

    def disconnected(self, reason: str) -> None:
        """Log that the connection was lost, and end if another service has taken over.

        Otherwise the session reconnects automatically.
        """
        if reason == TAKEN_OVER:
            logger.error(
                "another service of this fleet has connected to the broker at %s and replaces "
                "this one: run only one",
                self.address,
            )
            self._ended.set()
        elif not self._ended.is_set():
            logger.info("connection to the broker at %s lost: %s", self.address, reason)

    def received(self, message: Message) -> None:
        for unread in self._inbox.put(message):
            self.session.acknowledge(unread)

    def answered(self, refusal: str | None) -> None:
        if refusal is not None:
            text = (
                "the broker at %s refuses: %s; compare its ACL with that of `edgemeter fleet init`"
            )
            logger.warning(text, self.address, refusal, extra=about(refusal))

    def _publish(
        self, topic: str, payload: bytes, *, lasting: Literal["passing", "retained"] = "passing"
    ) -> None:
        self.session.publish(topic, payload, lasting=lasting)

    def work(self) -> None:
        """Pass on the next message, if one arrives before the handlers are due, and do due work.

        The thread calls it repeatedly.
        """
        self._pass_s = self._clock()
        message = self._inbox.take(max(0.0, self._due_s - self._clock()))
        if message is not None:
            for name, topics in self._routes:
                if topics.fullmatch(message.topic):
                    self._do(name, self._handlers[name], message)
            self.session.acknowledge(message)
        if self._clock() >= self._due_s:
            self._due_s = self._clock() + POLL_S
            self._ban_flooders()
            if self.session.is_connected():
                # Otherwise no device can report: nothing is late.
                for name, fleet_handler in self._handlers.items():
                    self._do(name, fleet_handler, None)
            if (
                self._inbox.dropped_count > MOST_DROPPED
                and self._clock() - self._renewed_s > RENEWAL_S
            ):
                self._renew_session()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.work()

    def _ban_flooders(self) -> None:
        """Ban flooding senders for a time, and drop messages of banned ones.

        The access handler makes the broker refuse them.
        """
        now_ns = time.time_ns()
        try:
            if flooders := self._inbox.flooders():
                with self._registry.transaction() as statements:
                    for device in flooders:
                        ban_device(
                            statements,
                            self._registry,
                            device,
                            "it sent more messages than any board needs",
                            now_ns,
                        )
            self._inbox.ban(active_bans(self._registry, now_ns))
        except EdgemeterError as error:
            logger.warning("cannot ban a flooding device: %s", error)

    def _renew_session(self) -> None:
        """Reconnect without the broker's backlog: most of it is a flooding sender's.

        Other senders' messages come again: their reports are retained, and a device repeats those
        of its jobs until they are acknowledged.
        """
        self._renewed_s = self._clock()
        logger.info(
            "dropped %d messages of a flood: reconnecting to the broker, without the others",
            self._inbox.dropped_count,
        )
        self.session.close()
        self.session = MqttSession(
            self.address, SessionProfile(self._client_id, "clean", acknowledges="later"), self
        )
        try:
            self.session.connect()
        except EdgemeterError as error:
            logger.warning("%s: trying again in %g s", error, RENEWAL_S)
            return
        self._inbox.dropped_count = 0

    def _do(self, name: str, fleet_handler: FleetHandler, message: Message | None) -> None:
        try:
            if message is None:
                fleet_handler.poll(time.time_ns())
            else:
                fleet_handler.received(message)
        except EdgemeterError as error:
            # A device can send rejected messages as often as it likes; a handler that cannot poll
            # fails twice a second.
            where, who = (
                (f" (on {message.topic!r})", message.topic.rpartition("/")[0])
                if message
                else ("", f"{name}: {error}")
            )
            logger.warning("%s: %s%s", name, error, where, extra=about(who))
