"""The receiver: commits results from MQTT to the ledger, and only then sends the receipts.

The inbox lies between the network thread, which must not wait for the disk, and the writer thread, which commits in groups.
"""

import logging
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import CONNECT_TIMEOUT_S, TAKEN_OVER, Message
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import EVERY_BIRTH, EVERY_HEALTH, EVERY_RESULT, EVERY_STATE, Topic
from edgemeter.agent.ledger.chunks import Committed, RecordKey, coalesce
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.quarantine import Rejection, RejectionKind
from edgemeter.agent.ledger.retention import Retention
from edgemeter.collector.ledgers.collector_name import CollectorName
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.receive.admission import WHOLE_BYTES, Admitted, CheckDepth, is_compressed
from edgemeter.collector.receive.feed import Feed
from edgemeter.collector.receive.monitor import Histogram

INBOX_LIMIT_BYTES = 32 << 20
# What a device may have taken in its turn: one with large messages waits while the others have theirs.
QUANTUM_BYTES = 64 << 10
# In an inbox that is half full a device may fill this share.
DEVICE_RATIO = 0.25


class _Waiting:
    """The messages of one device that wait, and how many bytes it may still have taken."""

    __slots__ = ("bytes", "credit_bytes", "messages")

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.bytes = 0
        self.credit_bytes = 0


class Inbox:
    """A queue of messages, bounded in bytes: the producer checks `is_full` first; `has_room` is called when it no longer is.

    Devices take turns, so that none starves the others; the messages of one device keep their order.
    """

    def __init__(self, limit_bytes: int = INBOX_LIMIT_BYTES, has_room: Callable[[], None] = lambda: None) -> None:
        self._limit_bytes = limit_bytes
        self._has_room = has_room
        self._waiting: dict[str, _Waiting] = {}
        self._turns: deque[str] = deque()
        self._count = 0
        self._bytes = 0
        self._taken = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._count

    def put(self, messages: Sequence[Message]) -> list[Message]:
        """Add messages, and return the results that have no room because their device waits with too many already.

        Those may be acknowledged to the broker: without a receipt the device sends them again. A closed inbox drops all.
        """
        with self._changed:
            if self._is_closed:
                return []
            shed = [message for message in messages if not self._add(message)]
            self._changed.notify_all()
        return shed

    def is_full(self) -> bool:
        """Return whether the producer should wait: backpressure, not loss."""
        return self._bytes >= self._limit_bytes

    def take(self, limit: int, limit_bytes: int, timeout_s: float) -> list[Message]:
        """Return the next messages, up to `limit` or `limit_bytes`, waiting at most `timeout_s` for the first; call `done` afterwards."""
        taken: list[Message] = []
        taken_bytes = 0
        with self._changed:
            self._changed.wait_for(lambda: self._count or self._is_closed, timeout_s)
            was_full = self.is_full()
            while self._turns and len(taken) < limit and taken_bytes < limit_bytes:
                taken_bytes += self._take_turn(taken, limit, limit_bytes - taken_bytes)
            self._count -= len(taken)
            self._bytes -= taken_bytes
            self._taken = len(taken)
        if was_full and not self.is_full():
            self._has_room()
        return taken

    def done(self) -> None:
        """Mark what `take` returned last as processed."""
        with self._changed:
            self._taken = 0

    def is_idle(self) -> bool:
        """Return whether nothing is queued or being processed."""
        with self._changed:
            return not self._count and not self._taken

    def close(self) -> None:
        """Accept no more messages, and release waiting threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _add(self, message: Message) -> bool:
        device, _, kind = message.topic.rpartition("/")
        size_bytes = len(message.payload)
        waiting = self._waiting.get(device)
        if waiting is None:
            waiting = self._waiting[device] = _Waiting()
            self._turns.append(device)
        elif 2 * self._bytes >= self._limit_bytes and waiting.bytes + size_bytes > DEVICE_RATIO * self._limit_bytes and kind == RESULT_KIND:
            return False
        waiting.messages.append(message)
        waiting.bytes += size_bytes
        self._bytes += size_bytes
        self._count += 1
        return True

    def _take_turn(self, taken: list[Message], limit: int, limit_bytes: int) -> int:
        """Take what the next device may have; return how many bytes."""
        device = self._turns[0]
        waiting = self._waiting[device]
        is_alone = len(self._turns) == 1
        credit_bytes = waiting.credit_bytes + QUANTUM_BYTES
        turn_bytes = 0
        while waiting.messages and len(taken) < limit and turn_bytes < limit_bytes:
            size_bytes = len(waiting.messages[0].payload)
            if turn_bytes + size_bytes > credit_bytes and not is_alone:
                break
            taken.append(waiting.messages.popleft())
            turn_bytes += size_bytes
        waiting.bytes -= turn_bytes
        waiting.credit_bytes = max(0, credit_bytes - turn_bytes)
        self._turns.popleft()
        if waiting.messages:
            self._turns.append(device)
        else:
            del self._waiting[device]
        return turn_bytes


logger = logging.getLogger(__name__)

GROUP_MESSAGES = 2000
GROUP_BYTES = 8 << 20

# A group ends at this much decompressed text, or this many rejections.
GROUP_TEXT_BYTES = 16 << 20
GROUP_REJECTIONS = 2000

# Of a group that is likely to hold more than WHOLE_BYTES of text only the envelopes are validated before the commit. Compressed batches
# expand by about this ratio.
COMPRESSION_RATIO = 16
CHECK_CHUNKS = 8
RETRY_S = 2.0

# The last part of a result's topic; other messages are few, and nobody sends them again.
RESULT_KIND = "result"

# How often retention runs, and how soon again while there is more to remove.
FORGET_S = 60.0
SLICE_S = 0.2

# The collector is unwell if neither a commit nor a pass of the writer ends within this time; on a slow card both take seconds at most.
STALLED_S = 60.0

# Bounds of the histogram of receipts: from one commit on a fast disk to a card that stalls.
RECEIPT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class ReceiverCounts:
    """Counts since the start; `rejections` are messages, or records in them, that are not valid; `shed` messages have to come again.

    `receipt_s` is the time from reading a message of results to its receipt.
    """

    messages: int = 0
    inserted: int = 0
    duplicates: int = 0
    collisions: int = 0
    rejections: Counter[RejectionKind] = field(default_factory=Counter)
    forgotten: int = 0
    shed: int = 0
    receipt_s: Histogram = field(default_factory=lambda: Histogram(RECEIPT_BOUNDS_S))

    @property
    def rejected(self) -> int:
        """How many messages, or records in them, are not valid."""
        return sum(self.rejections.values())

    @property
    def quarantined(self) -> int:
        """How many entered the quarantine."""
        return self.rejected + self.collisions


class Receiver:
    """Receives into the ledger at `place`, and calls `committed` after each commit; `start` once, `stop` once or more.

    Receivers of one `group` share the messages. `retention` removes old records. `trouble` is why nothing can be committed now, `refusal`
    why the broker rejects our subscription; None when all is well.
    """

    def __init__(
        self,
        address: BrokerAddress,
        place: LedgerPlace,
        committed: Callable[[], None] = lambda: None,
        *,
        group: str | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.counts = ReceiverCounts()
        self.trouble: str | None = None
        self.refusal: str | None = None
        self.retention = retention
        self._next_retention_s = 0.0
        self._progress_s = time.monotonic()
        self._address = address
        self._place = place
        self._committed = committed
        self._group = _checked(group)
        self._inbox = Inbox(has_room=self._wake_feed)
        self._stopping = threading.Event()
        self._name: CollectorName | None = None
        self._feed: Feed | None = None
        self._ledger: Ledger | None = None
        self._writer: threading.Thread | None = None

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when the ledger is open and the broker has accepted us.

        Raises:
            ConfigError: the file is no ledger, or the broker refuses the credentials.
            UnavailableError: the ledger cannot be opened or is in use by another collector, or no broker answers within `timeout_s`.
        """
        ledger = self._ledger = open_ledger(self._place)
        try:
            self._name = CollectorName(self._place, ledger)
        except EdgemeterError:
            ledger.close()
            raise
        # A name that stays lets the broker keep for us what comes while we are away. Messages are acknowledged after the commit, so
        # that the broker brings at once what a killed collector had taken and not committed; the outboxes would after a while. In a
        # group the others can have what we do not take: nothing is kept for one that is gone.
        lasting: Literal["clean", "persistent"] = "persistent" if self._group is None else "clean"
        feed = self._feed = Feed(self._address, f"collector-{self._name.id}", self._subscriptions(), self, lasting=lasting)
        try:
            feed.connect(timeout_s)
        except EdgemeterError:
            ledger.close()
            self._name.release()
            raise
        if self._group is not None and feed.version == "3.1.1":
            logger.warning(
                "the broker at %s supports MQTT 3.1.1 only, which has no shared subscriptions: unless it adds them, no result arrives",
                self._address,
            )
        self._writer = threading.Thread(target=self._write, args=(ledger, feed), name="edgemeter-ledger", daemon=True)
        self._writer.start()

    def stop(self) -> None:
        """Commit what was received, and end the threads; may be called twice."""
        self._stopping.set()
        self._inbox.close()
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._feed is not None:
            self._feed.close()
        if self._ledger is not None:
            self._ledger.close()
        if self._name is not None:
            self._name.release()

    @property
    def name(self) -> str:
        """The name of this collector at the broker; empty before the start."""
        return self._name.id if self._name is not None else ""

    def is_idle(self) -> bool:
        """Return whether everything received is committed and receipted."""
        return self._inbox.is_idle()

    def is_alive(self) -> bool:
        """Return whether the writer thread is alive; if it died, which is a bug, the process must end."""
        return self._writer is not None and self._writer.is_alive()

    def stalled_s(self) -> float:
        """Return for how many seconds neither a commit nor a pass of the writer has ended; a writer without work passes every second."""
        return time.monotonic() - self._progress_s

    def is_connected(self) -> bool:
        """Return whether the broker is connected."""
        return self._feed is not None and self._feed.is_connected()

    def waiting(self) -> int:
        """Return how many received messages are not committed yet."""
        return len(self._inbox)

    def is_full(self) -> bool:
        """Feed event: return whether the inbox is full."""
        return self._inbox.is_full()

    def received(self, messages: Sequence[Message]) -> None:
        """Feed event: messages."""
        shed = self._inbox.put(messages)
        if shed and self._feed is not None:
            self.counts.shed += len(shed)
            self._feed.acknowledge(shed)
            device = shed[0].topic.rpartition("/")[0]
            logger.warning("%s sends more than can be stored: some messages have to come again", device, extra=about(device))

    def disconnected(self, reason: str) -> None:
        """Feed event: the connection is gone."""
        self.refusal = None
        if reason == TAKEN_OVER:
            logger.error("another collector uses a copy of this ledger and took over its client id: stop one of the two")
        elif not self._stopping.is_set():
            logger.warning("lost the connection to the broker at %s: %s; reconnecting", self._address, reason)

    def refused(self, reason: str) -> None:
        """Feed event: the broker rejects the subscription."""
        self.refusal = f"the broker at {self._address} rejects the collector's subscription ({reason}): allow it to read edgemeter/v1/#"
        logger.error("%s", self.refusal)

    def _subscriptions(self) -> tuple[str, ...]:
        shared = f"$share/{self._group}/" if self._group is not None else ""
        return (f"{shared}{EVERY_RESULT}", EVERY_STATE, EVERY_BIRTH, EVERY_HEALTH)

    def _wake_feed(self) -> None:
        if self._feed is not None:
            self._feed.wake()

    def _write(self, ledger: Ledger, feed: Feed) -> None:
        has_unchecked = True
        while not self._stopping.is_set() or not self._inbox.is_idle():
            self._progress_s = time.monotonic()
            taken = self._inbox.take(GROUP_MESSAGES, GROUP_BYTES, timeout_s=0.0 if has_unchecked else 1.0)
            if taken:
                self._keep_all(ledger, feed, taken)
                has_unchecked = True
            self._inbox.done()
            if not taken and has_unchecked:
                has_unchecked = self._check(ledger)
            self._apply_retention(ledger)

    def _keep_all(self, ledger: Ledger, feed: Feed, taken: list[Message]) -> None:
        depth: CheckDepth = "whole" if sum(map(_likely_bytes, taken)) <= WHOLE_BYTES else "envelope"
        received_ns = time.time_ns()
        begin = 0
        while begin < len(taken):
            # Where nothing is validated later, it is before the commit, however much it is.
            admitted = Admitted(depth) if ledger.defers_checks else Admitted(whole_bytes=sys.maxsize)
            end = begin
            receipted: list[Message] = []
            while end < len(taken) and admitted.text_bytes < GROUP_TEXT_BYTES and len(admitted.rejections) < GROUP_REJECTIONS:
                before = admitted.accepted()
                admitted.add(taken[end], received_ns)
                receipted += [taken[end]] if admitted.accepted() > before else []
                end += 1
            if not self._keep(ledger, feed, admitted):
                return
            self._progress_s = now_s = time.monotonic()
            for one in receipted:
                self.counts.receipt_s.observe(now_s - one.arrived_s)
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
        self.counts.rejections.update(one.kind for one in rejections)
        for rejection in rejections:
            limit = about(rejection.topic.rpartition("/")[0])
            logger.warning("quarantined a message of %s: %s", rejection.topic, rejection.reason, extra=limit)

    def _check(self, ledger: Ledger) -> bool:
        try:
            rejections = ledger.check(CHECK_CHUNKS)
        except EdgemeterError as error:
            logger.warning("cannot validate records that were committed by their envelope: %s", error)
            return False
        self._note(rejections or ())
        return rejections is not None

    def _apply_retention(self, ledger: Ledger) -> None:
        now_s = time.monotonic()
        if self.retention is None or now_s < self._next_retention_s:
            return
        try:
            gone = ledger.forget(self.retention, time.time_ns())
        except EdgemeterError as error:
            logger.warning("cannot remove old records: %s", error)
            self._next_retention_s = now_s + FORGET_S
        else:
            self.counts.forgotten += gone.records
            self._next_retention_s = now_s + (FORGET_S if gone.is_all else SLICE_S)

    def _commit(self, ledger: Ledger, admitted: Admitted) -> Committed | None:
        while True:
            try:
                committed = ledger.commit(admitted.arrivals, admitted.rejections, admitted.changes, admitted.batches)
            except EdgemeterError as error:
                # Logged once, not at every retry: the log may lie on the same full disk.
                if self.trouble != str(error):
                    logger.error("cannot commit, so no receipt is sent: %s", error)  # noqa: TRY400 - no traceback for what is known
                self.trouble = str(error)
            else:
                if self.trouble is not None:
                    logger.warning("results are being committed again")
                self.trouble = None
                return committed
            # Meanwhile the inbox fills up, and then the broker waits.
            if self._stopping.wait(RETRY_S):
                return None


def _likely_bytes(message: Message) -> int:
    return len(message.payload) * (COMPRESSION_RATIO if is_compressed(message.payload) else 1)


def _checked(group: str | None) -> str | None:
    if group is not None and (not group or any(character in "/+# " or not character.isprintable() for character in group)):
        raise ConfigError(f"{group!r} is not a valid group name: use one without '/', '+', '#' and spaces")
    return group


def _send_receipts(feed: Feed, held: tuple[RecordKey, ...]) -> None:
    sequences: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for fleet, device, number, seq in held:
        sequences[fleet, device, number].add(seq)
    for (fleet, device, number), seqs in sequences.items():
        receipt = messages.Receipt(session=number, held=tuple(coalesce(sorted(seqs))))
        # QoS 0: a receipt is lost only with the connection; then the device sends again and gets another.
        feed.publish(str(Topic(fleet, device, "receipt")), messages.encode_message(receipt))
