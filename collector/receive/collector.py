"""The collector commits results from MQTT to the ledger in groups, then sends the receipts.

It also drains the ledger to InfluxDB.
"""

import ctypes
import itertools
import logging
import secrets
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from edgemeter.agent.base import config, durable_file
from edgemeter.agent.base.allowance import Allowance
from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import (
    CONNECT_TIMEOUT_S,
    SHORT_LIFE_S,
    SHORT_LIVES,
    TAKEN_OVER,
    Message,
    SessionProfile,
    Will,
)
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import COLLECTOR_STATE_S, CollectorState
from edgemeter.agent.ledger.chunks import coalesce
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.quarantine import RejectionKind
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.run_row import RecordKey
from edgemeter.collector.influx.drain import Drain, open_drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.receive.admission import Admitted
from edgemeter.collector.receive.feed import Feed, FeedEvents
from edgemeter.collector.receive.inbox import Inbox

logger = logging.getLogger(__name__)

# A message of 100 records is some 300 kB of text.
FREED_BYTES = 4 << 20
IDLE_S = 1.0
RETRY_S = 2.0
GOODBYE_S = 2.0
# How often retention runs, and how soon again while there is more to remove.
FORGET_S = 60.0
SLICE_S = 0.2
# The collector is unwell if neither a commit nor a pass of the writer ends within this time; on a
# slow card both take seconds at most. After the longer one only a restart helps: a commit waits 30
# s for another process, or 40 s for a server, and fails with the reason.
UNWELL_S, STALLED_S = 10.0, 60.0
# The rate and burst of rejected or shed messages that a device may send; each costs one, plus one
# per USELESS_BYTES. Without receipts a board sends its 1,000 records, or 8 MB, again after 5 s, 10
# s, 20 s, ...
USELESS_PER_S, USELESS_AT_ONCE, USELESS_BYTES = 200.0, 4000.0, 16 << 10
# Bounds of the histogram of receipts: from one commit on a fast disk to a card that stalls.
RECEIPT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class CollectorCounts:
    """Counts since the start.

    `rejections` are invalid messages or records; `shed` messages have to be sent again.

    `receipts` counts messages of results by the time to their receipt, at most each of
    RECEIPT_BOUNDS_S, and longer; `receipts_s` is its sum.
    """

    messages: int = 0
    inserted: int = 0
    duplicates: int = 0
    collisions: int = 0
    rejections: Counter[RejectionKind] = field(default_factory=Counter)
    shed: int = 0
    receipts: list[int] = field(default_factory=lambda: [0] * (len(RECEIPT_BOUNDS_S) + 1))
    receipts_s: float = 0.0

    @property
    def quarantined(self) -> int:
        """The number of messages and records in the quarantine."""
        return self.rejections.total() + self.collisions


class Collector(FeedEvents):
    """Receives from the broker at `address` into the ledger at `ledger_place`.

    It drains the ledger to InfluxDB if one is given.

    `start` once, then `stop`. Without a thread: `open`, then `poll` repeatedly.

    Collectors of one `group` share the messages. `retention` removes old records. `trouble` is why
    nothing can be committed now, `refusal` why the broker rejects our subscription; None when all
    is well. `inbox` contains messages that are not committed and receipted yet.
    """

    def __init__(
        self,
        address: BrokerAddress,
        ledger_place: LedgerPlace,
        influx: InfluxConfig | None = None,
        *,
        group: str | None = None,
        retention: Retention | None = None,
        feed_of: Callable[..., Feed] = Feed,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self.place = ledger_place
        self.drain: Drain | None = None
        self.counts = CollectorCounts()
        self.trouble: str | None = None
        self.refusal: str | None = None
        self._influx = influx
        self._retention = retention
        self._feed_of = feed_of
        self._clock = clock
        self._next_retention_s = 0.0
        self._progress_s = clock()
        if group is not None and (
            not group
            or any(character in "/+# " or not character.isprintable() for character in group)
        ):
            raise ConfigError(
                f"{group!r} is not a valid group name: use one without '/', '+', '#' and spaces"
            )
        self._group = group
        shared = f"$share/{group}/" if group is not None else ""
        self._topics = [f"{shared}{messages.topics_of('result')}", messages.EVERY_JOB_STATE]
        self._topics += [
            messages.topics_of(kind) for kind in ("state", "birth", "health", "activity")
        ]
        self._useless = Allowance(USELESS_PER_S, USELESS_AT_ONCE, clock)
        self.inbox = Inbox()
        self._stopping = threading.Event()
        self._state_topic = ""
        self._opened = ExitStack()
        self._feed: Feed | None = None
        self._report_due_s = self._connected_s = float("-inf")
        self._short_lives = 0
        self._lost_reason: str | None = None
        self._ledger: Ledger | None = None
        self._writer: threading.Thread | None = None

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Open it, and poll it in a thread; raises the errors of `open`."""
        _keep_freed_buffers()
        self.open(timeout_s)
        self._writer = threading.Thread(target=self._write, name="edgemeter-ledger", daemon=True)
        self._writer.start()

    def open(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when results are being received.

        If InfluxDB does not answer now, it is retried; the ledger keeps everything.

        Raises:
            ConfigError: the file is not a ledger, or the broker or InfluxDB refuses the
                credentials.
            UnavailableError: the ledger cannot be opened or is in use by another collector, no
            broker answers in time, or a library is missing.
        """
        with ExitStack() as stack:
            self._ledger = stack.enter_context(open_ledger(self.place))
            name, lock = _hold_name(self.place, self._ledger)
            stack.callback(lock.release)
            if self._influx is not None:
                self.drain = open_drain(self.place, self._influx)
                stack.callback(self.drain.stop)
                if self._retention is not None:
                    self._retention = replace(self._retention, sink=self.drain.sink_name)
                self.drain.start()
            # A fleet's service learns from it that results arrive.
            self._state_topic = messages.COLLECTOR_STATE.format(collector=name)
            will = Will(self._state_topic, messages.encode_message(CollectorState(state="offline")))
            # With a constant name the broker keeps messages for us while we are away. Messages are
            # acknowledged after the commit, so that the broker immediately repeats those that a
            # killed collector had not committed; the outboxes would do so later. In a group the
            # others get them: nothing is kept for a collector that is gone.
            lasting: Literal["clean", "persistent"] = (
                "persistent" if self._group is None else "clean"
            )
            feed = self._feed = self._feed_of(
                self.address, SessionProfile(f"collector-{name}", lasting, will), self
            )
            feed.connect(timeout_s)
            self._opened = stack.pop_all()
        # Messages that the broker has sent by now arrived after our subscriptions.
        feed.flush(timeout_s)
        if self._group is not None and feed.version == "3.1.1":
            logger.warning(
                "the broker at %s %s",
                self.address,
                "supports MQTT 3.1.1 only, which has no shared subscriptions: unless it adds "
                "them, no result arrives",
            )

    def stop(self) -> None:
        """Commit the received messages and end every thread; may be called twice."""
        self._stopping.set()
        self.inbox.close()
        if self._writer is not None:
            self._writer.join()
        if self._feed is not None:
            self._publish_state(self._feed, CollectorState(state="offline"))
            self._feed.flush(GOODBYE_S)
            self._feed.close()
        self._opened.close()

    def settled(self, timeout_s: float) -> bool:
        """Wait until everything received is committed and drained.

        Return False after `timeout_s`.
        """
        deadline_s = time.monotonic() + timeout_s
        with open_ledger(self.place, "read") as ledger:
            while not self.inbox.is_idle() or (
                self.drain is not None and not self.drain.has_reached(ledger.last_row())
            ):
                if time.monotonic() > deadline_s:
                    return False
                time.sleep(0.05)
        return True

    def stalled_s(self) -> float:
        """Return the seconds since a commit or a pass of the writer ended.

        A writer without work passes every second.
        """
        return self._clock() - self._progress_s

    def is_connected(self) -> bool:
        return self._feed is not None and self._feed.is_connected()

    def unwell(self) -> str | None:
        """Return why nothing can be received now, None if it can; answers at once, without I/O."""
        trouble = self.refusal or self.trouble
        if trouble is None and self.stalled_s() > UNWELL_S:
            return (
                f"no commit has ended for {self.stalled_s():.0f} s: see the log, the disk and "
                "who else uses the ledger"
            )
        if not self.is_connected():
            return f"no connection to the broker at {self.address}"
        return trouble

    def is_stalled(self) -> bool:
        """Return whether the writer has made no progress for so long that only a restart helps."""
        return self.trouble is None and self.stalled_s() > STALLED_S

    def report(self) -> None:
        """Publish this collector's state, if due, and the devices that send useless messages.

        These devices send more useless messages than any board does.
        """
        if self._feed is None or not self._feed.is_connected():
            return
        state: Literal["online", "offline"] = "online" if self.unwell() is None else "offline"
        if self._clock() >= self._report_due_s:
            self._report_due_s = self._clock() + COLLECTOR_STATE_S
            self._publish_state(self._feed, CollectorState(state=state))
        if flooders := self._useless.exceeded():
            # Not retained: the fleet's service bans them once.
            names = tuple(device.rpartition("/")[2] for device in flooders)
            self._publish_state(self._feed, CollectorState(state=state, flooding=names), "passing")

    def connected(self) -> None:
        """Session event: the broker may have published the Will."""
        self._connected_s, self._report_due_s, self._lost_reason = (
            self._clock(),
            float("-inf"),
            None,
        )
        if self._feed is not None:
            self._feed.subscribe(self._topics)
            self.report()

    def disconnected(self, reason: str) -> None:
        self.refusal = None
        is_repeated, self._lost_reason = reason == self._lost_reason, reason
        if reason == TAKEN_OVER:
            logger.error(
                "another collector uses a copy of this ledger and took over its client id: stop "
                "one of the two"
            )
        elif not (self._stopping.is_set() or is_repeated):
            self._short_lives = (
                self._short_lives + 1 if self._clock() - self._connected_s < SHORT_LIFE_S else 0
            )
            logger.warning(
                "lost the connection to the broker at %s: %s%s; reconnecting",
                self.address,
                reason,
                ", repeatedly: does another collector use a copy of this ledger?"
                if self._short_lives > SHORT_LIVES
                else "",
            )

    def answered(self, refusal: str | None) -> None:
        """Handle the broker's refusal of a subscription or a publish.

        It is an event of the session. A refused publish only affects the report of our state.
        """
        if refusal is not None and refusal.startswith("subscription ") and self.refusal is None:
            self.refusal = (
                f"the broker at {self.address} refuses the collector's {refusal}: update its "
                "access control list"
            )
            logger.error("%s", self.refusal)

    def has_room(self, timeout_s: float) -> bool:
        """Feed event: wait for room in the inbox."""
        return self.inbox.has_room(timeout_s)

    def received_all(self, messages: Sequence[Message]) -> None:
        shed = self.inbox.put(messages)
        if shed and self._feed is not None:
            self.counts.shed += len(shed)
            self._feed.acknowledge_all(shed)
            for message in shed:
                device = self._count_useless(message.topic, len(message.payload))
            logger.warning(
                "%s sends more than can be stored: some messages have to come again",
                device,
                extra=about(device),
            )

    def poll(self, wait_s: float = 0.0) -> None:
        """Commit the received messages, waiting `wait_s` for the first one, and send receipts."""
        if self._ledger is None or self._feed is None:
            return
        self._progress_s = self._clock()
        waiting = deque(self.inbox.take(wait_s))
        while waiting:
            group = Admitted(time.time_ns())
            while waiting and not group.is_full():
                group.add(waiting.popleft())
            self._keep(self._ledger, self._feed, group)
            self.inbox.done(group.messages)
        self._apply_retention(self._ledger)

    def _publish_state(
        self,
        feed: Feed,
        state: CollectorState,
        lasting: Literal["passing", "retained"] = "retained",
    ) -> None:
        feed.publish(self._state_topic, messages.encode_message(state), lasting=lasting)

    def _write(self) -> None:
        while not self._stopping.is_set() or not self.inbox.is_idle():
            self.poll(IDLE_S)

    def _keep(self, ledger: Ledger, feed: Feed, group: Admitted) -> None:
        """Commit a group, then send its receipts, then acknowledge it.

        None of these is done if it could not be committed until the end.
        """
        while (receipts := self._commit(ledger, group)) is None:
            # Meanwhile the inbox fills up, and then the broker waits.
            if self._stopping.wait(RETRY_S):
                return
        self.counts.rejections.update(rejection.kind for rejection in group.rejections)
        for rejection in group.rejections:
            device = self._count_useless(rejection.topic, len(rejection.payload))
            logger.warning(
                "quarantined a message of %s: %s",
                rejection.topic,
                rejection.reason,
                extra=about(device),
            )
        # QoS 0: a receipt is lost only with the connection; then the device sends again and gets
        # another.
        feed.publish_all(receipts)
        if self.drain is not None:
            self.drain.wake()
        self._progress_s = now_s = self._clock()
        for arrived_s, times in group.arrived_s.items():
            self.counts.receipts[bisect_left(RECEIPT_BOUNDS_S, now_s - arrived_s)] += times
            self.counts.receipts_s += times * (now_s - arrived_s)
        self.counts.messages += len(group.messages)
        feed.acknowledge_all(group.messages)

    def _count_useless(self, topic: str, size_bytes: int) -> str:
        """Count a rejected or shed message; return the topic of its device."""
        device = topic.rpartition("/")[0]
        if device.startswith(messages.TOPIC_ROOT):
            self._useless.spend(device, 1 + size_bytes / USELESS_BYTES)
        return device

    def _commit(self, ledger: Ledger, group: Admitted) -> list[tuple[str, bytes]] | None:
        """Commit a group; return its receipts, None if it cannot be committed now."""
        try:
            committed = ledger.commit(
                group.arrivals, group.rejections, group.changes, group.batches
            )
            self.counts.inserted += committed.inserted
            self.counts.duplicates += committed.duplicates
            self.counts.collisions += committed.collisions
            receipts = _receipts(committed.held, ledger.received_ns_of(group.timeless))
        except EdgemeterError as error:
            # Logged once, not at every retry: the log may be on the same full disk. The cause is
            # known, so there is no traceback.
            if self.trouble != str(error):
                logger.error("cannot commit, so no receipt is sent: %s", error)  # noqa: TRY400
            self.trouble = str(error)
            return None
        if self.trouble is not None:
            logger.warning("results are being committed again")
        self.trouble = None
        return receipts

    def _apply_retention(self, ledger: Ledger) -> None:
        if self._retention is None or self._clock() < self._next_retention_s:
            return
        try:
            is_all = ledger.forget(self._retention, time.time_ns()).is_all
        except EdgemeterError as error:
            logger.warning("cannot remove old records: %s", error)
            is_all = True
        self._next_retention_s = self._clock() + (FORGET_S if is_all else SLICE_S)


def _keep_freed_buffers() -> None:
    """Keep freed buffers for the next messages.

    Returning and allocating them each time costs a fifth of the time.

    Source: mallopt(3) and glibc's malloc.h: M_MMAP_THRESHOLD is -3, M_TRIM_THRESHOLD -1. Other C
    libraries have no such call.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(-3, FREED_BYTES)
        library.mallopt(-1, 2 * FREED_BYTES)


def _receipts(
    record_keys: Sequence[RecordKey], received_ns: Mapping[RecordKey, int]
) -> list[tuple[str, bytes]]:
    """Return topic and payload of each receipt.

    `received_ns` is when the records without a time of their own first arrived.
    """
    sequences: dict[tuple[str, str, int, int | None], set[int]] = defaultdict(set)
    for key in record_keys:
        fleet, device, number, seq = key
        sequences[fleet, device, number, received_ns.get(key)].add(seq)
    receipts = []
    for (fleet, device, number, only_ns), seqs in sequences.items():
        receipt = messages.Receipt(
            session=number, held=tuple(coalesce(sorted(seqs))), received_ns=only_ns
        )
        receipts.append(
            (str(messages.Topic(fleet, device, "receipt")), messages.encode_message(receipt))
        )
    return receipts


def _hold_name(ledger_place: LedgerPlace, ledger: Ledger) -> tuple[str, DeviceLock]:
    """Return the broker name of a ledger's collector, and the lock that holds it.

    The name is for a lasting session.

    A file belongs to one collector, which has the file's identity. Each collector of a shared
    ledger on this machine has a name of its own, in $EDGEMETER_HOME/cache. Raises UnavailableError
    if another collector uses the file, or the name cannot be written.
    """
    if isinstance(ledger_place, Path):
        lock = DeviceLock(ledger_place, "collector")
        if not lock.take():
            raise UnavailableError(
                f"another collector uses {str(ledger_place)!r}: stop it, or give this one "
                "another (--ledger)"
            )
        return ledger.identity(), lock
    folder = config.home() / "cache"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = (
            folder / f"{ledger_place.name}.collector-{number}" for number in itertools.count(1)
        )
        path, lock = next(
            (path, lock) for path in paths if (lock := DeviceLock(path, "collector")).take()
        )
        if not path.exists():
            durable_file.write(path, secrets.token_hex(8).encode())
        return path.read_text(encoding="ascii").strip(), lock
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"cannot keep the name of this collector in {str(folder)!r} ({error}): check the folder"
        ) from error
