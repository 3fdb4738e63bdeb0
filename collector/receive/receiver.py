"""The receiver: takes results from MQTT into the ledger, and then, and only then, sends the receipts.

The network thread only queues. One writer takes whatever has gathered while it committed the last group, commits it as one
transaction, publishes the receipts and lets the broker forget the messages.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.delivery import messages, topics
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.mqtt_session import CONNECT_TIMEOUT_S, TAKEN_OVER, Message, MqttSession, Profile
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.errors import EdgemeterError
from edgemeter.collector.keep.ledger import Committed, Key, Ledger, coalesce
from edgemeter.collector.receive.admission import Admitted
from edgemeter.collector.receive.inbox import Inbox

logger = logging.getLogger(__name__)

GROUP_MESSAGES = 2000
RETRY_S = 2.0
SUBSCRIPTIONS = (topics.EVERY_RESULT, topics.EVERY_STATE, topics.EVERY_BIRTH)


@dataclass(slots=True)
class Counts:
    """What came in since the start."""

    messages: int = 0
    inserted: int = 0
    duplicates: int = 0
    collisions: int = 0
    rejected: int = 0


class Receiver:
    """Receives into the ledger at `ledger_path`, and calls `committed` after each commit; `start` once, `stop` once or more."""

    def __init__(self, address: BrokerAddress, ledger_path: Path, committed: Callable[[], None] = lambda: None) -> None:
        self.counts = Counts()
        self._address = address
        self._ledger_path = ledger_path
        self._committed = committed
        self._inbox = Inbox()
        self._stopping = threading.Event()
        self._session: MqttSession | None = None
        self._ledger: Ledger | None = None
        self._writer: threading.Thread | None = None

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when the ledger is open and the broker has accepted us.

        Raises:
            ConfigError: the ledger's file is not one, or the broker refuses who we say we are.
            UnavailableError: the ledger may not be opened, or no broker answers within `timeout_s`.
        """
        ledger = self._ledger = Ledger(self._ledger_path)
        # A name that stays lets the broker keep for us what comes while we are away. Messages are acknowledged after the commit, so
        # that the broker brings at once what a killed collector had taken and not committed; the outboxes would after a while.
        profile = Profile(f"collector-{ledger.collector_id()}", lasting="persistent", acknowledging="manual")
        session = self._session = MqttSession(self._address, profile, self)
        try:
            session.connect(timeout_s)
        except EdgemeterError:
            ledger.close()
            raise
        self._writer = threading.Thread(target=self._write, args=(ledger, session), name="edgemeter-ledger", daemon=True)
        self._writer.start()

    def stop(self) -> None:
        """Commit what has come, and end the threads; may be called twice."""
        self._stopping.set()
        self._inbox.close()
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._session is not None:
            self._session.close()
        if self._ledger is not None:
            self._ledger.close()

    def is_idle(self) -> bool:
        """Return whether everything that has come is committed and receipted."""
        return self._inbox.is_idle()

    def is_alive(self) -> bool:
        """Return whether the writer works; one that has died is a bug, and whoever runs us has to end."""
        return self._writer is not None and self._writer.is_alive()

    def connected(self) -> None:
        """Session event: a connection is up."""
        logger.info("connected to the broker at %s", self._address)
        if self._session is not None:
            self._session.subscribe(SUBSCRIPTIONS)

    def disconnected(self, reason: str) -> None:
        """Session event: the connection is gone."""
        if reason == TAKEN_OVER:
            logger.error("another collector works with a copy of this ledger and took its name: stop one of the two")
        elif not self._stopping.is_set():
            logger.warning("connection to the broker at %s lost: %s; trying again", self._address, reason)

    def received(self, message: Message) -> None:
        """Session event: a message."""
        self._inbox.put(message)

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's word on a subscription."""
        if refusal is not None:
            logger.error("the broker at %s refuses the collector (%s): allow it to read edgemeter/v1/#", self._address, refusal)

    def _write(self, ledger: Ledger, session: MqttSession) -> None:
        while not self._stopping.is_set() or not self._inbox.is_idle():
            taken = self._inbox.take(GROUP_MESSAGES, timeout_s=1.0)
            if taken and self._keep(ledger, session, taken):
                for message in taken:
                    session.acknowledge(message)
            self._inbox.done()

    def _keep(self, ledger: Ledger, session: MqttSession, taken: list[Message]) -> bool:
        admitted = Admitted()
        received_ns = time.time_ns()
        for message in taken:
            admitted.add(message, received_ns)
        committed = self._commit(ledger, admitted)
        if committed is None:
            return False
        self.counts.messages += len(taken)
        self.counts.inserted += committed.inserted
        self.counts.duplicates += committed.duplicates
        self.counts.collisions += committed.collisions
        self.counts.rejected += len(admitted.rejections)
        for rejection in admitted.rejections:
            logger.warning("quarantined what came on %s: %s", rejection.topic, rejection.reason)
        _send_receipts(session, committed.held)
        self._committed()
        return True

    def _commit(self, ledger: Ledger, admitted: Admitted) -> Committed | None:
        while True:
            try:
                return ledger.commit(admitted.arrivals, admitted.rejections, admitted.changes)
            except EdgemeterError as error:
                logger.error("nothing can be kept, so nothing is confirmed: %s", error)  # noqa: TRY400 - no traceback for what is known
            # Meanwhile the inbox fills, and then the broker waits.
            if self._stopping.wait(RETRY_S):
                return None


def _send_receipts(session: MqttSession, held: tuple[Key, ...]) -> None:
    sequences: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for fleet, device, number, seq in held:
        sequences[fleet, device, number].add(seq)
    for (fleet, device, number), seqs in sequences.items():
        receipt = messages.Receipt(session=number, held=tuple(coalesce(sorted(seqs))))
        # QoS 0: a receipt gets lost only with the connection, and then the device sends again and gets another.
        session.publish(str(Topic(fleet, device, "receipt")), messages.encode(receipt), qos=0)
