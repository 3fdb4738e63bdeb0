"""Decides which records of the outbox are sent now, in which batches.

It also decides which are repeated, and which wait.

One record is sent as its JSON, several of one fleet (a topic) as a JSON array, either compressed
(zlib) above a size; the first byte tells the form. Waiting records are sent together, so that a
device that is behind catches up in few messages.
"""

import logging
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from edgemeter.agent.base.mqtt_session import MqttSession
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Receipt, Topic
from edgemeter.agent.delivery.message_limit import BATCH_BYTES, MessageLimit
from edgemeter.agent.delivery.outbox import Outbox, Pending

logger = logging.getLogger(__name__)

WINDOW_RECORDS = 1000
WINDOW_BYTES = 8 << 20
BATCH_RECORDS = 100
# Smaller than a record: a message of fewer records.
COMPRESS_ABOVE_BYTES = 1 << 10
# Measured on records with and without raw samples: higher levels take twice the time for a
# twentieth of the size.
COMPRESSION_LEVEL = 3
FIRST_TIMEOUT_S = 5.0
LONGEST_TIMEOUT_S = 60.0
LONGEST_REPEAT_S = 300.0
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """Records for one topic, and their payload; `fits`: whether the broker accepts its size."""

    records: Sequence[Pending]
    payload: bytes
    fits: bool


def packed(encoded: list[bytes]) -> bytes:
    """Return one payload of several encoded records."""
    text = messages.join_records(encoded)
    return zlib.compress(text, COMPRESSION_LEVEL) if len(text) > COMPRESS_ABOVE_BYTES else text


def batches(pending: Sequence[Pending], alone_bytes: int, together_bytes: int) -> Iterator[Batch]:
    """Yield the records in order in few batches.

    Those of several records have at most `together_bytes`; one above `alone_bytes` stays alone.
    """
    for _, together in groupby(pending, key=lambda record: record.fleet):
        yield from _batches_of(list(together), alone_bytes, together_bytes)


def _batches_of(together: list[Pending], alone_bytes: int, together_bytes: int) -> Iterator[Batch]:
    payload = packed([record.payload for record in together])
    if len(together) == 1 or len(payload) <= together_bytes:
        yield Batch(together, payload, len(payload) <= alone_bytes)
        return
    half = len(together) // 2
    yield from _batches_of(together[:half], alone_bytes, together_bytes)
    yield from _batches_of(together[half:], alone_bytes, together_bytes)


@dataclass(slots=True)
class _SentRecord:
    row: int
    size_bytes: int
    at_s: float
    message: int
    tries: int = 1


def retry_spread() -> float:
    """Return a random factor around 1, so that many devices do not act at the same time."""
    return random.uniform(0.75, 1.25)  # noqa: S311 - spreads repeats over time, no secret


class SendWindow:
    """The sent records without a receipt, limited in number and bytes.

    All times are monotonic seconds given by the caller.

    Without any receipt, there is no collector: everything waits, longer each time, and starts again
    at the oldest record. If only some records get no receipt, the collector rejected them: each of
    them is sent again, later and later, and does not delay those behind it.
    """

    def __init__(
        self,
        limit_records: int,
        limit_bytes: int,
        first_timeout_s: float = FIRST_TIMEOUT_S,
        spread: Callable[[], float] = retry_spread,
    ) -> None:
        self.limit_records = limit_records
        self.limit_bytes = limit_bytes
        self.first_timeout_s = first_timeout_s
        self.after_row = 0
        self.resent = 0
        self._spread = spread
        self._sent: dict[Key, _SentRecord] = {}
        self._repeats: dict[Key, _SentRecord] = {}
        self._bytes = 0
        self._timeouts = 0
        self._paused_until_s = 0.0
        self._receipt_s = float("-inf")
        self._delay_s: float | None = None

    def timeout_s(self) -> float:
        """Return how long to wait for a receipt: longer for a collector that is slow now."""
        return (
            self.first_timeout_s
            if self._delay_s is None
            else max(self.first_timeout_s, 4 * self._delay_s)
        )

    def room(self, now_s: float) -> int:
        """Return how many more records may be sent now."""
        if now_s < self._paused_until_s or self._bytes >= self.limit_bytes:
            return 0
        return max(0, self.limit_records - len(self._sent))

    def room_bytes(self) -> int:
        """Return how many more bytes may be sent."""
        return max(0, self.limit_bytes - self._bytes)

    def sent(self, pending: Iterable[Pending], now_s: float, message: int = 0) -> None:
        """Add sent records, in the order of the outbox, and the number of their message."""
        for record in pending:
            self.after_row = max(self.after_row, record.row)
            self._sent[record.session, record.seq] = _SentRecord(
                record.row, len(record.payload), now_s, message
            )
            self._bytes += len(record.payload)

    def withdraw(self, pending: Iterable[Pending]) -> None:
        """Take back records that the broker refused, to be sent again in other messages."""
        for record in pending:
            self._repeats.pop((record.session, record.seq), None)
            if (sent := self._sent.pop((record.session, record.seq), None)) is not None:
                self._bytes -= sent.size_bytes
            self.after_row = min(self.after_row, record.row - 1)

    def skip(self, pending: Pending) -> None:
        """Skip a record that cannot be sent on this connection."""
        self.after_row = max(self.after_row, pending.row)

    def holds(self, pending: Pending) -> bool:
        """Return whether a record was sent and has no receipt yet."""
        key = (pending.session, pending.seq)
        return key in self._sent or key in self._repeats

    def receipted(self, receipt: Receipt, now_s: float) -> None:
        self._receipt_s = now_s
        self._timeouts = 0
        self._paused_until_s = 0.0
        for first, last in receipt.held:
            for key in self._named(receipt.session, first, last):
                self._repeats.pop(key, None)
                sent = self._sent.pop(key, None)
                if sent is not None:
                    self._bytes -= sent.size_bytes
                    delay_s = now_s - sent.at_s
                    self._delay_s = (
                        delay_s if self._delay_s is None else 0.9 * self._delay_s + 0.1 * delay_s
                    )

    def gone(self, row: int) -> None:
        """Drop a record that is no longer in the outbox."""
        for key in [key for key, sent in self._repeats.items() if sent.row == row]:
            del self._repeats[key]

    def restart(self) -> None:
        """Start again at the oldest record.

        Messages in flight on the old connection may be lost.
        """
        self.resent += len(self._sent)
        self._sent.clear()
        self._repeats.clear()
        self._bytes = 0
        self.after_row = 0
        self._paused_until_s = 0.0

    def expire(
        self, now_s: float, is_on_its_way: Callable[[int], bool] = lambda _: False
    ) -> list[int]:
        """Return the rows that are to be sent again.

        Their receipt is overdue, or no receipt comes at all. Those in flight (`is_on_its_way`,
        minutes on a slow line) cannot have one.
        """
        for sent in (*self._sent.values(), *self._repeats.values()):
            if is_on_its_way(sent.message):
                sent.at_s = max(sent.at_s, now_s)
        overdue = [key for key, sent in self._sent.items() if now_s - sent.at_s >= self.timeout_s()]
        if not overdue:
            return []
        if self._receipt_s <= self._sent[overdue[0]].at_s:
            rows = [sent.row for sent in (*self._sent.values(), *self._repeats.values())]
            self._timeouts += 1
            self.restart()
            self._paused_until_s = now_s + self._pause_s(self._timeouts, LONGEST_TIMEOUT_S)
            return rows
        for key in overdue:
            sent = self._repeats[key] = self._sent.pop(key)
            self._bytes -= sent.size_bytes
            sent.at_s = now_s + self._pause_s(sent.tries, LONGEST_REPEAT_S)
        return [self._repeats[key].row for key in overdue]

    def sent_again(self, pending: Iterable[Pending], message: int) -> None:
        """Note the number of the message that repeats single records."""
        for record in pending:
            if (sent := self._repeats.get((record.session, record.seq))) is not None:
                sent.message = message

    def due(self, now_s: float) -> list[int]:
        """Return the rows of single records to send again now.

        Each then waits longer than before.
        """
        rows = []
        for sent in self._repeats.values():
            if now_s >= sent.at_s:
                sent.tries += 1
                sent.at_s = now_s + self._pause_s(sent.tries, LONGEST_REPEAT_S)
                rows.append(sent.row)
        self.resent += len(rows)
        return rows

    def wait_s(self, now_s: float) -> float:
        """Return the time until something is due, at most a minute."""
        times = [self._paused_until_s - now_s] if now_s < self._paused_until_s else []
        if self._sent:
            times.append(next(iter(self._sent.values())).at_s + self.timeout_s() - now_s)
        times += [sent.at_s - now_s for sent in self._repeats.values()]
        return min(60.0, max(0.0, min(times, default=60.0)))

    def _named(self, session: int, first: int, last: int) -> list[Key]:
        if last - first <= len(self._sent) + len(self._repeats):
            return [(session, seq) for seq in range(first, last + 1)]
        return [
            key
            for key in [*self._sent, *self._repeats]
            if key[0] == session and first <= key[1] <= last
        ]

    def _pause_s(self, tries: int, longest_s: float) -> float:
        return min(longest_s, self.first_timeout_s * 2.0 ** min(tries - 1, 10)) * self._spread()


class Sender:
    """Sends the records of `device` in `outbox`, within a window of unreceipted ones.

    It is for one thread.

    If the broker refuses a record of a previous fleet of the device, such records are held back
    until the next connection. `too_large` contains the rows that were skipped on this connection.
    """

    def __init__(
        self, outbox: Outbox, device: str, fleet: str, limit: MessageLimit, window: SendWindow
    ) -> None:
        self.limit = limit
        self.window = window
        self.too_large: set[int] = set()
        self.holds_previous = False
        self._outbox = outbox
        self._device = device
        self._fleet = fleet
        self._previous: set[int] = set()
        self._must_restart = False

    def send(self, session: MqttSession, now_s: float) -> float:
        """Send the records that are due; return the seconds until something is due again."""
        if self._must_restart:
            self._must_restart = False
            self.window.restart()
        if self.limit.is_retry_due(now_s):
            self.too_large.clear()
            self.look_back(1)
        self.limit.unconfirmed(self.window.expire(now_s, session.is_on_its_way))
        self._send_again(session, now_s)
        self._send_on(session, now_s)
        return self.window.wait_s(now_s)

    def learn(self, session: MqttSession) -> None:
        """Process the broker's answers, and the end of a connection."""
        self.window.withdraw(self.limit.learn(session, self.window.holds))

    def refused(self, session: MqttSession) -> bool:
        """Note the broker's refusal of a message, from any thread.

        Returns whether it was one of a previous fleet.
        """
        answered = {number for number in self._previous.copy() if not session.is_on_its_way(number)}
        self._previous.difference_update(answered)
        if answered:
            self.holds_previous = self._must_restart = True
        return bool(answered)

    def receipted(self, receipt: messages.Receipt, now_s: float) -> None:
        self.limit.receipted(receipt)
        self.window.receipted(receipt, now_s)

    def restart(self) -> None:
        """Start again at the oldest record: messages in flight may be lost."""
        self.holds_previous = False
        self.too_large.clear()
        self._previous.clear()
        self.limit.restart()
        self.window.restart()

    def look_back(self, row: int) -> None:
        """Read the records from that row on again: some were held back, and no longer are."""
        self.window.after_row = min(self.window.after_row, row - 1)

    def _send_again(self, session: MqttSession, now_s: float) -> None:
        repeats: list[Pending] = []
        rows = self.window.due(now_s)
        self.limit.unconfirmed(rows)
        for row in rows:
            record = self._outbox.read(row)
            if record is None:
                self.window.gone(row)
            else:
                repeats.append(record)
        together = [record for record in repeats if record.row not in self.limit.deferred]
        groups = [
            together[first : first + BATCH_RECORDS]
            for first in range(0, len(together), BATCH_RECORDS)
        ]
        for group in [
            *groups,
            *([record] for record in repeats if record.row in self.limit.deferred),
        ]:
            for batch in self._batches(session, group):
                if batch.fits:
                    self.window.sent_again(batch.records, self._publish(session, batch))

    def _send_on(self, session: MqttSession, now_s: float) -> None:
        room = self.limit.room(session)
        while room > 0 and (records := self.window.room(now_s)):
            limit_bytes = min(BATCH_BYTES, self.window.room_bytes())
            after = self.window.after_row
            fleet = self._fleet if self.holds_previous else None
            waiting = self._outbox.pending(
                min(records, BATCH_RECORDS),
                limit_bytes,
                after_row=after,
                device=self._device,
                fleet=fleet,
            )
            if not waiting and not self._look_back_at_deferred():
                return
            new = [
                record
                for record in waiting
                if not self.window.holds(record) and record.row not in self.limit.deferred
            ]
            if waiting and not new:
                self.window.skip(waiting[-1])
            # Batches that do not fit into the broker's window stay behind the cursor until the next
            # round.
            for batch in list(self._batches(session, new))[:room]:
                if batch.fits:
                    self.window.sent(batch.records, now_s, self._publish(session, batch))
                    room -= 1
                elif self._outbox.leave_samples(batch.records[0].row):
                    # It is read again without them.
                    break
                else:
                    self._pass_over(session, batch)

    def _batches(self, session: MqttSession, records: Sequence[Pending]) -> Iterator[Batch]:
        return batches(records, self.limit.alone_bytes(session), self.limit.together_bytes(session))

    def _look_back_at_deferred(self) -> bool:
        """Read the deferred records again; return whether there are any."""
        if not self.limit.deferred:
            return False
        self.look_back(min(self.limit.deferred))
        self.limit.deferred.clear()
        return True

    def _pass_over(self, session: MqttSession, batch: Batch) -> None:
        (record,) = batch.records
        self.window.skip(record)
        if record.row not in self.too_large:
            self.too_large.add(record.row)
            size_text = (
                f"record {record.seq} of session {record.session} has {len(batch.payload)} bytes "
                "without samples"
            )
            reason = f"{size_text}; {self.limit.why(session)}"
            if self._outbox.set_aside(record.row, reason):
                logger.error("%s: it stays in the outbox", reason)

    def _publish(self, session: MqttSession, batch: Batch) -> int:
        first = batch.records[0]
        number = self.limit.publish(
            session, str(Topic(first.fleet, first.device, "result")), batch.payload, batch.records
        )
        if first.fleet != self._fleet:
            self._previous = {
                message for message in self._previous.copy() if session.is_on_its_way(message)
            } | {number}
        return number
