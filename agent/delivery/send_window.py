"""The window of sent records without a receipt, and when one of them is sent again."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.outbox import Pending

WINDOW_RECORDS = 1000
WINDOW_BYTES = 8 << 20
FIRST_TIMEOUT_S = 5.0
LONGEST_TIMEOUT_S = 60.0
LONGEST_REPEAT_S = 300.0
Key = tuple[int, int]


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
