"""The receiver: takes results from MQTT into the ledger, and then, and only then, sends the receipts.

The network thread only queues. One writer takes whatever has gathered while it committed the last group, commits it as one
transaction, publishes the receipts and lets the broker forget the messages. When much has gathered it reads of each record only what
the ledger has to know, and looks at the rest when nothing is waiting.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.delivery import messages, topics
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.device_claim import DeviceClaim
from edgemeter.agent.delivery.disconnection import TAKEN_OVER
from edgemeter.agent.delivery.log_limit import about
from edgemeter.agent.delivery.mqtt_session import CONNECT_TIMEOUT_S, Message
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.collector.keep.ledger import Ledger, coalesce
from edgemeter.collector.keep.ledger_writer import Committed, Key
from edgemeter.collector.keep.quarantine import Rejection
from edgemeter.collector.keep.retention import Retention
from edgemeter.collector.receive import envelope
from edgemeter.collector.receive.admission import Admitted, Look
from edgemeter.collector.receive.feed import Feed
from edgemeter.collector.receive.inbox import Inbox

logger = logging.getLogger(__name__)

GROUP_MESSAGES = 2000
GROUP_BYTES = 8 << 20
# A group ends when its text, decompressed, is as much as this.
GROUP_TEXT_BYTES = 16 << 20
# Up to this much text is looked at whole before it is committed, which takes some 10 ms. Records that travel together get as small as
# this ratio when compressed.
WHOLE_BYTES = 2 << 20
COMPRESSION_RATIO = 16
CHECK_CHUNKS = 8
RETRY_S = 2.0
# How often to look for what is too old, and how soon again while there is more of it.
FORGET_S = 60.0
SLICE_S = 0.2


@dataclass(slots=True)
class Counts:
    """What came in since the start; `rejected` are messages, or records of one, that were no record of ours."""

    messages: int = 0
    inserted: int = 0
    duplicates: int = 0
    collisions: int = 0
    rejected: int = 0
    forgotten: int = 0

    @property
    def duplicates_dropped(self) -> int:
        """How many records came again."""
        return self.duplicates

    @property
    def quarantined(self) -> int:
        """How many went to the quarantine."""
        return self.rejected + self.collisions


class Receiver:
    """Receives into the ledger at `ledger_path`, and calls `committed` after each commit; `start` once, `stop` once or more.

    Receivers of one `group` share what comes. What `retention` does not keep goes from the ledger. `trouble` is why nothing can be kept
    now, `refusal` why the broker lets us hear nothing; None when all is well.
    """

    def __init__(
        self,
        address: BrokerAddress,
        ledger_path: Path,
        committed: Callable[[], None] = lambda: None,
        *,
        group: str | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.counts = Counts()
        self.trouble: str | None = None
        self.refusal: str | None = None
        self.retention = retention
        self._look_again_s = 0.0
        self._address = address
        self._ledger_path = ledger_path
        self._committed = committed
        self._group = _checked(group)
        self._inbox = Inbox(has_room=self._wake_feed)
        self._stopping = threading.Event()
        self._claim: DeviceClaim | None = None
        self._feed: Feed | None = None
        self._ledger: Ledger | None = None
        self._writer: threading.Thread | None = None

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when the ledger is open and the broker has accepted us.

        Raises:
            ConfigError: the ledger's file is not one, or the broker refuses who we say we are.
            UnavailableError: the ledger may not be opened or has a collector already, or no broker answers within `timeout_s`.
        """
        ledger = self._ledger = Ledger(self._ledger_path)
        # A ledger has one collector, whose name at the broker it holds.
        self._claim = DeviceClaim(self._ledger_path, "collector")
        if not self._claim.take():
            ledger.close()
            where = str(self._ledger_path)
            message = f"another collector works with the ledger {where!r}: stop that one, or give this one a ledger of its own (--ledger)"
            raise UnavailableError(message)
        # A name that stays lets the broker keep for us what comes while we are away. Messages are acknowledged after the commit, so
        # that the broker brings at once what a killed collector had taken and not committed; the outboxes would after a while. In a
        # group the others can have what we do not take: nothing is kept for one that is gone.
        lasting: Literal["clean", "persistent"] = "persistent" if self._group is None else "clean"
        feed = self._feed = Feed(self._address, f"collector-{ledger.collector_id()}", self._subscriptions(), self, lasting=lasting)
        try:
            feed.connect(timeout_s)
        except EdgemeterError:
            ledger.close()
            self._claim.release()
            raise
        if self._group is not None and feed.version == "3.1.1":
            logger.warning(
                "the broker at %s speaks MQTT 3.1.1 only, which cannot share: if it does not all the same, no result comes", self._address
            )
        self._writer = threading.Thread(target=self._write, args=(ledger, feed), name="edgemeter-ledger", daemon=True)
        self._writer.start()

    def stop(self) -> None:
        """Commit what has come, and end the threads; may be called twice."""
        self._stopping.set()
        self._inbox.close()
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._feed is not None:
            self._feed.close()
        if self._ledger is not None:
            self._ledger.close()
        if self._claim is not None:
            self._claim.release()

    def is_idle(self) -> bool:
        """Return whether everything that has come is committed and receipted."""
        return self._inbox.is_idle()

    def is_alive(self) -> bool:
        """Return whether the writer works; one that has died is a bug, and whoever runs us has to end."""
        return self._writer is not None and self._writer.is_alive()

    def is_connected(self) -> bool:
        """Return whether the broker is there."""
        return self._feed is not None and self._feed.is_connected()

    def waiting(self) -> int:
        """Return how many messages have come and are not committed."""
        return len(self._inbox)

    def is_full(self) -> bool:
        """Feed event: may more come?"""
        return self._inbox.is_full()

    def received(self, messages: Sequence[Message]) -> None:
        """Feed event: messages."""
        self._inbox.put(messages)

    def disconnected(self, reason: str) -> None:
        """Feed event: the connection is gone."""
        self.refusal = None
        if reason == TAKEN_OVER:
            logger.error("another collector works with a copy of this ledger and took its name: stop one of the two")
        elif not self._stopping.is_set():
            logger.warning("connection to the broker at %s lost: %s; trying again", self._address, reason)

    def refused(self, reason: str) -> None:
        """Feed event: the broker does not let us subscribe."""
        self.refusal = f"the broker at {self._address} refuses the collector ({reason}): allow it to read edgemeter/v1/#"
        logger.error("%s", self.refusal)

    def _subscriptions(self) -> tuple[str, ...]:
        shared = f"$share/{self._group}/" if self._group is not None else ""
        return (f"{shared}{topics.EVERY_RESULT}", topics.EVERY_STATE, topics.EVERY_BIRTH, topics.EVERY_HEALTH)

    def _wake_feed(self) -> None:
        if self._feed is not None:
            self._feed.wake()

    def _write(self, ledger: Ledger, feed: Feed) -> None:
        has_unchecked = True
        while not self._stopping.is_set() or not self._inbox.is_idle():
            taken = self._inbox.take(GROUP_MESSAGES, GROUP_BYTES, timeout_s=0.0 if has_unchecked else 1.0)
            if taken:
                self._keep_all(ledger, feed, taken)
                has_unchecked = True
            self._inbox.done()
            if not taken and has_unchecked:
                has_unchecked = self._check(ledger)
            self._forget(ledger)

    def _keep_all(self, ledger: Ledger, feed: Feed, taken: list[Message]) -> None:
        look: Look = "whole" if sum(map(_likely_bytes, taken)) <= WHOLE_BYTES else "envelope"
        received_ns = time.time_ns()
        begin = 0
        while begin < len(taken):
            admitted = Admitted(look)
            end = begin
            while end < len(taken) and admitted.text_bytes < GROUP_TEXT_BYTES:
                admitted.add(taken[end], received_ns)
                end += 1
            if not self._keep(ledger, feed, admitted):
                return
            self.counts.messages += end - begin
            feed.acknowledge(taken[begin:end])
            begin = end

    def _keep(self, ledger: Ledger, feed: Feed, admitted: Admitted) -> bool:
        committed = self._commit(ledger, admitted)
        if committed is None:
            return False
        self.counts.inserted += committed.inserted
        self.counts.duplicates += committed.duplicates
        self.counts.collisions += committed.collisions
        self._note(admitted.rejections)
        _send_receipts(feed, committed.held)
        self._committed()
        return True

    def _note(self, rejections: Sequence[Rejection]) -> None:
        self.counts.rejected += len(rejections)
        for rejection in rejections:
            who = about(rejection.topic.rpartition("/")[0])
            logger.warning("quarantined what came on %s: %s", rejection.topic, rejection.reason, extra=who)

    def _check(self, ledger: Ledger) -> bool:
        try:
            rejections = ledger.check(CHECK_CHUNKS)
        except EdgemeterError as error:
            logger.warning("cannot look at what came in a hurry: %s", error)
            return False
        self._note(rejections or ())
        return rejections is not None

    def _forget(self, ledger: Ledger) -> None:
        now_s = time.monotonic()
        if self.retention is None or now_s < self._look_again_s:
            return
        try:
            gone = ledger.forget(self.retention, time.time_ns())
        except EdgemeterError as error:
            logger.warning("cannot take out what is too old: %s", error)
            self._look_again_s = now_s + FORGET_S
        else:
            self.counts.forgotten += gone.records
            self._look_again_s = now_s + (FORGET_S if gone.is_all else SLICE_S)

    def _commit(self, ledger: Ledger, admitted: Admitted) -> Committed | None:
        while True:
            try:
                committed = ledger.commit(admitted.arrivals, admitted.rejections, admitted.changes, admitted.shipments)
            except EdgemeterError as error:
                # Once when it begins, not with every try: the log may lie on the same full disk.
                if self.trouble != str(error):
                    logger.error("nothing can be kept, so nothing is confirmed: %s", error)  # noqa: TRY400 - no traceback for what is known
                self.trouble = str(error)
            else:
                if self.trouble is not None:
                    logger.warning("what comes is kept again")
                self.trouble = None
                return committed
            # Meanwhile the inbox fills, and then the broker waits.
            if self._stopping.wait(RETRY_S):
                return None


def _likely_bytes(message: Message) -> int:
    return len(message.payload) * (COMPRESSION_RATIO if envelope.is_compressed(message.payload) else 1)


def _checked(group: str | None) -> str | None:
    if group is not None and (not group or any(character in "/+# " or not character.isprintable() for character in group)):
        message = f"{group!r} is no name for a group of collectors: choose one without '/', '+', '#' and spaces"
        raise ConfigError(message)
    return group


def _send_receipts(feed: Feed, held: tuple[Key, ...]) -> None:
    sequences: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for fleet, device, number, seq in held:
        sequences[fleet, device, number].add(seq)
    for (fleet, device, number), seqs in sequences.items():
        receipt = messages.Receipt(session=number, held=tuple(coalesce(sorted(seqs))))
        # QoS 0: a receipt gets lost only with the connection, and then the device sends again and gets another.
        feed.publish(str(Topic(fleet, device, "receipt")), messages.encode(receipt))
