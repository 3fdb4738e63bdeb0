"""Decides which records of the outbox are sent now, in which batches, and which wait.

One record is sent as its JSON, several of one fleet (a topic) as a JSON array, either compressed
(zlib) above a size; the first byte tells the form. Waiting records are sent together, so that a
device that is behind catches up in few messages.
"""

import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from edgemeter.agent.base.mqtt_session import MqttSession
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.delivery.message_limit import BATCH_BYTES, MessageLimit
from edgemeter.agent.delivery.outbox import Outbox, Pending
from edgemeter.agent.delivery.send_window import SendWindow

logger = logging.getLogger(__name__)

BATCH_RECORDS = 100
# Smaller than a record: a message of fewer records.
COMPRESS_ABOVE_BYTES = 1 << 10
# Measured on records with and without raw samples: higher levels take twice the time for a
# twentieth of the size.
COMPRESSION_LEVEL = 3


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
