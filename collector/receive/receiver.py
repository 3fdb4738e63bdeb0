"""The receiver: commits results from MQTT to the ledger, and only then sends the receipts; its writer thread commits in groups."""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeVar

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import CONNECT_TIMEOUT_S, SHORT_LIFE_S, SHORT_LIVES, TAKEN_OVER, Message, SessionProfile, Will
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import COLLECTOR_STATE_S, CollectorState
from edgemeter.agent.ledger.chunks import RecordKey, coalesce
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.quarantine import Rejection, RejectionKind
from edgemeter.agent.ledger.retention import Retention
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.receive.admission import Admitted
from edgemeter.collector.receive.collector_name import hold_name
from edgemeter.collector.receive.feed import Feed, FeedEvents
from edgemeter.collector.receive.inbox import Inbox, UselessMessages, source_of
from edgemeter.collector.receive.monitor import Histogram

logger = logging.getLogger(__name__)

GROUP_MESSAGES = 2000
GROUP_BYTES = 8 << 20

# A group ends at this much decompressed text, or this many rejections. Decoded, records take a few times their text.
GROUP_TEXT_BYTES = 4 << 20
GROUP_REJECTIONS = 2000

# While a server commits a group, the next is read if so many messages wait; of fewer a group of its own would be too small.
AHEAD_MESSAGES = 50

IDLE_S = 1.0
RETRY_S = 2.0
GOODBYE_S = 2.0

# What is measured now; a broker with an older ACL does not let us read it.
LIVE_TOPICS = (messages.topics_of("activity"), messages.EVERY_CAMPAIGN_STATE)

# How often retention runs, and how soon again while there is more to remove.
FORGET_S = 60.0
SLICE_S = 0.2

# The collector is unwell if neither a commit nor a pass of the writer ends within this time; on a slow card both take seconds at most.
# After the longer one only a restart helps: a commit waits 30 s for another process, or 40 s for a server, and fails with the reason.
UNWELL_S, STALLED_S = 10.0, 60.0
_Result = TypeVar("_Result")

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
    def quarantined(self) -> int:
        """How many messages, or records in them, entered the quarantine."""
        return self.rejections.total() + self.collisions


class Receiver(FeedEvents):
    """Receives into the ledger at `ledger_place`, and calls `committed` after each commit; `start` once, `stop` once or more.

    Without a thread of its own: `open`, and then `poll` again and again.

    Receivers of one `group` share the messages. `retention` removes old records. `trouble` is why nothing can be committed now, `refusal`
    why the broker rejects our subscription; None when all is well. `inbox` holds what is not committed and receipted yet, `useless` counts
    what is rejected or has no room.
    """

    def __init__(
        self,
        address: BrokerAddress,
        ledger_place: LedgerPlace,
        committed: Callable[[], None] = lambda: None,
        *,
        group: str | None = None,
        retention: Retention | None = None,
        feed_of: Callable[..., Feed] = Feed,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = ReceiverCounts()
        self.trouble: str | None = None
        self.refusal: str | None = None
        self.retention = retention
        self._feed_of = feed_of
        self._clock = clock
        self._next_retention_s = 0.0
        self._progress_s = clock()
        self._address = address
        self._place = ledger_place
        self._committed = committed
        if group is not None and (not group or any(character in "/+# " or not character.isprintable() for character in group)):
            raise ConfigError(f"{group!r} is not a valid group name: use one without '/', '+', '#' and spaces")
        self._group = group
        self.useless = UselessMessages()
        self.inbox = Inbox()
        self._stopping = threading.Event()
        # At the broker; empty before the start.
        self.name = ""
        self._opened = ExitStack()
        self._feed: Feed | None = None
        self._topics: Sequence[str] = ()
        self._report_due_s = self._connected_s = float("-inf")
        self._short_lives = 0
        self._lost_reason: str | None = None
        self._ledger: Ledger | None = None
        self._writer: threading.Thread | None = None
        self._committer = ThreadPoolExecutor(1, "edgemeter-commit")
        self._underway: Future[bool] | None = None

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Open it, and poll it in a thread; raises what `open` raises."""
        self.open(timeout_s)
        self._writer = threading.Thread(target=self._write, name="edgemeter-ledger", daemon=True)
        self._writer.start()

    def open(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when the ledger is open and the broker has accepted us.

        Raises:
            ConfigError: the file is no ledger, or the broker refuses the credentials.
            UnavailableError: the ledger cannot be opened or is in use by another collector, or no broker answers within `timeout_s`.
        """
        with ExitStack() as stack:
            self._ledger = stack.enter_context(open_ledger(self._place))
            self.name, lock = hold_name(self._place, self._ledger)
            stack.callback(lock.release)
            self._connect(timeout_s)
            self._opened = stack.pop_all()

    def _connect(self, timeout_s: float) -> None:
        # A name that stays lets the broker keep for us what comes while we are away. Messages are acknowledged after the commit, so
        # that the broker brings at once what a killed collector had taken and not committed; the outboxes would after a while. In a
        # group the others can have what we do not take: nothing is kept for one that is gone.
        lasting: Literal["clean", "persistent"] = "persistent" if self._group is None else "clean"
        shared = f"$share/{self._group}/" if self._group is not None else ""
        self._topics = (
            f"{shared}{messages.topics_of('result')}",
            messages.topics_of("state"),
            messages.topics_of("birth"),
            messages.topics_of("health"),
            *LIVE_TOPICS,
        )
        # A fleet's service knows by it that results arrive.
        will = Will(self._state_topic(), messages.encode_message(CollectorState(state="offline")))
        feed = self._feed = self._feed_of(self._address, SessionProfile(f"collector-{self.name}", lasting, will), self)
        feed.connect(timeout_s)
        # What the broker has answered by then came after our subscriptions.
        feed.flush(timeout_s)
        if self._group is not None and feed.version == "3.1.1":
            logger.warning(
                "the broker at %s supports MQTT 3.1.1 only, which has no shared subscriptions: unless it adds them, no result arrives",
                self._address,
            )

    def stop(self) -> None:
        """Commit what was received, and end the threads; may be called twice."""
        self._stopping.set()
        self.inbox.close()
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        self._committer.shutdown()
        if self._feed is not None:
            self._publish_state(self._feed, CollectorState(state="offline"))
            self._feed.flush(GOODBYE_S)
            self._feed.close()
        self._opened.close()

    def stalled_s(self) -> float:
        """Return for how many seconds neither a commit nor a pass of the writer has ended; a writer without work passes every second."""
        return self._clock() - self._progress_s

    def is_connected(self) -> bool:
        """Return whether the broker is connected."""
        return self._feed is not None and self._feed.is_connected()

    def unwell(self) -> str | None:
        """Return why nothing can be received now, None if it can; it asks nobody, so that whoever supervises has an answer at once."""
        trouble = self.refusal or self.trouble
        stalled_s = self.stalled_s()
        if trouble is None and stalled_s > UNWELL_S:
            return f"no commit has ended for {stalled_s:.0f} s: see the log, the disk and who else uses the ledger"
        if not self.is_connected():
            return f"no connection to the broker at {self._address}"
        return trouble

    def is_stalled(self) -> bool:
        """Return whether the writer has made no progress for so long that only a restart can help."""
        return self.trouble is None and self.stalled_s() > STALLED_S

    def report(self) -> None:
        """Publish, if that is due, the state of this collector, and the devices that send more useless messages than any board does."""
        if self._feed is None or not self._feed.is_connected():
            return
        state: Literal["online", "offline"] = "online" if self.unwell() is None else "offline"
        if self._clock() >= self._report_due_s:
            self._report_due_s = self._clock() + COLLECTOR_STATE_S
            self._publish_state(self._feed, CollectorState(state=state))
        if flooders := self.useless.flooders():
            # Not retained: the fleet's service bans them once.
            self._publish_state(self._feed, CollectorState(state=state, flooding=tuple(flooders)), "passing")

    def connected(self) -> None:
        """Session event: the broker may have published the Will."""
        self._connected_s, self._report_due_s, self._lost_reason = self._clock(), float("-inf"), None
        if self._feed is not None:
            self._feed.subscribe(self._topics)
            self.report()

    def disconnected(self, reason: str) -> None:
        """Session event: the connection is gone; or a try to have it back was refused, which is logged once."""
        self.refusal = None
        is_repeated, self._lost_reason = reason == self._lost_reason, reason
        if reason == TAKEN_OVER:
            logger.error("another collector uses a copy of this ledger and took over its client id: stop one of the two")
        elif not (self._stopping.is_set() or is_repeated):
            self._short_lives = self._short_lives + 1 if self._clock() - self._connected_s < SHORT_LIFE_S else 0
            warning = (
                ", again and again: does another collector work with a copy of this ledger?" if self._short_lives > SHORT_LIVES else ""
            )
            logger.warning("lost the connection to the broker at %s: %s%s; reconnecting", self._address, reason, warning)

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker refuses a subscription. Without those of what is measured now, results are received all the same."""
        if refusal is None or not refusal.startswith("subscription "):
            # Our state: an older ACL does not allow its topic, which costs nothing but the report.
            return
        if any(f" {topic}:" in refusal for topic in LIVE_TOPICS):
            text = "the broker at %s refuses the %s: the page cannot show what is measured now; update its ACL"
            logger.warning(text, self._address, refusal)
        elif self.refusal is None:
            self.refusal = f"the broker at {self._address} refuses the collector's {refusal}: allow it to read edgemeter/v1/#"
            logger.error("%s", self.refusal)

    def has_room(self, timeout_s: float) -> bool:
        """Feed event: wait for room in the inbox."""
        return self.inbox.has_room(timeout_s)

    def received_all(self, messages: Sequence[Message]) -> None:
        """Feed event: messages."""
        shed = self.inbox.put(messages)
        if shed and self._feed is not None:
            self.counts.shed += len(shed)
            self._feed.acknowledge_all(shed)
            for message in shed:
                self.useless.count(message.topic, len(message.payload))
            device = source_of(shed[0].topic)
            logger.warning("%s sends more than can be stored: some messages have to come again", device, extra=about(device))

    def poll(self, wait_s: float = 0.0) -> None:
        """Commit what was received, waiting `wait_s` for the first message, and send receipts."""
        if self._ledger is None or self._feed is None:
            return
        self._progress_s = self._clock()
        if len(self.inbox) < AHEAD_MESSAGES:
            self._finish()
        batch = self.inbox.take(GROUP_MESSAGES, GROUP_BYTES, wait_s)
        if batch:
            self._keep_all(self._ledger, self._feed, batch)
        if self._underway is None:
            self.inbox.done()
        self._apply_retention(self._ledger)

    def _state_topic(self) -> str:
        return messages.COLLECTOR_STATE.format(collector=self.name)

    def _publish_state(self, feed: Feed, state: CollectorState, lasting: Literal["passing", "retained"] = "retained") -> None:
        feed.publish(self._state_topic(), messages.encode_message(state), lasting=lasting)

    def _write(self) -> None:
        while not self._stopping.is_set() or not self.inbox.is_idle():
            self.poll(IDLE_S)

    def _keep_all(self, ledger: Ledger, feed: Feed, batch: list[Message]) -> None:
        received_ns = time.time_ns()
        # A server commits one group while the next is read: two are in memory.
        text_bytes = GROUP_TEXT_BYTES // 2 if ledger.is_server else GROUP_TEXT_BYTES
        begin = 0
        while begin < len(batch):
            admitted = Admitted()
            end = begin
            # What one read of the socket brought arrived at one time.
            arrivals_s: Counter[float] = Counter()
            while end < len(batch) and admitted.text_bytes < text_bytes and len(admitted.rejections) < GROUP_REJECTIONS:
                message = batch[end]
                if admitted.add(message, received_ns):
                    arrivals_s[message.arrived_s] += 1
                end += 1
            if not self._finish():
                return
            keep = partial(self._keep, ledger, feed, admitted, batch[begin:end], arrivals_s)
            if ledger.is_server:
                self._underway = self._committer.submit(keep)
            elif not keep():
                return
            begin = end

    def _finish(self) -> bool:
        """Wait until nothing is being committed; return whether the last group was."""
        underway, self._underway = self._underway, None
        return underway is None or underway.result()

    def _keep(self, ledger: Ledger, feed: Feed, admitted: Admitted, group: Sequence[Message], arrivals_s: Mapping[float, int]) -> bool:
        """Commit a group, then acknowledge it; return whether that was done."""
        committed = self._retried(lambda: ledger.commit(admitted.arrivals, admitted.rejections, admitted.changes, admitted.batches))
        if committed is None:
            return False
        received_ns = self._retried(lambda: ledger.received_ns_of(admitted.timeless))
        if received_ns is None:
            return False
        self.counts.inserted += committed.inserted
        self.counts.duplicates += committed.duplicates
        self.counts.collisions += committed.collisions
        self._note(admitted.rejections)
        _send_receipts(feed, committed.held, received_ns)
        self._committed()
        self._progress_s = now_s = self._clock()
        for arrived_s, times in arrivals_s.items():
            self.counts.receipt_s.observe(now_s - arrived_s, times)
        self.counts.messages += len(group)
        feed.acknowledge_all(group)
        return True

    def _note(self, rejections: Sequence[Rejection]) -> None:
        self.counts.rejections.update(rejection.kind for rejection in rejections)
        for rejection in rejections:
            self.useless.count(rejection.topic, len(rejection.payload))
            limit = about(source_of(rejection.topic))
            logger.warning("quarantined a message of %s: %s", rejection.topic, rejection.reason, extra=limit)

    def _apply_retention(self, ledger: Ledger) -> None:
        now_s = self._clock()
        if self.retention is None or now_s < self._next_retention_s:
            return
        self._finish()
        try:
            gone = ledger.forget(self.retention, time.time_ns())
        except EdgemeterError as error:
            logger.warning("cannot remove old records: %s", error)
            self._next_retention_s = now_s + FORGET_S
        else:
            self.counts.forgotten += gone.records
            self._next_retention_s = now_s + (FORGET_S if gone.is_all else SLICE_S)

    def _retried(self, work: Callable[[], _Result]) -> _Result | None:
        """Return the result of `work` on the ledger, None if it could not be done until the end."""
        while True:
            try:
                result = work()
            except EdgemeterError as error:
                # Logged once, not at every retry: the log may lie on the same full disk.
                if self.trouble != str(error):
                    logger.error("cannot commit, so no receipt is sent: %s", error)  # noqa: TRY400 - no traceback for what is known
                self.trouble = str(error)
            else:
                if self.trouble is not None:
                    logger.warning("results are being committed again")
                self.trouble = None
                return result
            # Meanwhile the inbox fills up, and then the broker waits.
            if self._stopping.wait(RETRY_S):
                return None


def _send_receipts(feed: Feed, record_keys: tuple[RecordKey, ...], received_ns: Mapping[RecordKey, int]) -> None:
    sequences: dict[tuple[str, str, int, int | None], set[int]] = defaultdict(set)
    for key in record_keys:
        fleet, device, number, seq = key
        sequences[fleet, device, number, received_ns.get(key)].add(seq)
    receipts = []
    for (fleet, device, number, only_ns), seqs in sequences.items():
        receipt = messages.Receipt(session=number, held=tuple(coalesce(sorted(seqs))), received_ns=only_ns)
        receipts.append((str(messages.Topic(fleet, device, "receipt")), messages.encode_message(receipt)))
    # QoS 0: a receipt is lost only with the connection; then the device sends again and gets another.
    feed.publish_all(receipts)
