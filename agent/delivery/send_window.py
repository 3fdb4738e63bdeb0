"""Which records of the outbox are on their way, when to send one again, and when to wait: no network, no clock of its own."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edgemeter.agent.delivery.messages import Receipt
from edgemeter.agent.delivery.outbox import Pending

FIRST_TIMEOUT_S = 5.0
LONGEST_SILENCE_S = 60.0
LONGEST_REPEAT_S = 300.0

Key = tuple[int, int]


@dataclass(slots=True)
class _Sent:
    row: int
    size_bytes: int
    at_s: float
    message: int
    tries: int = 1


def spread() -> float:
    """Return a factor around 1, so that many devices do not do the same at the same time."""
    return random.uniform(0.75, 1.25)  # noqa: S311 - spreads repeats over time, no secret


class SendWindow:
    """What is sent and not receipted, bounded in records and bytes. All times are monotonic seconds that the caller gives.

    When no receipt comes at all, nobody is there: everything waits, longer each time, and starts again at the oldest record. When
    receipts come but not for some records, a collector is there and did not take these: each of them is sent again, later and
    later, and does not hold up those behind it.
    """

    def __init__(
        self, limit_records: int, limit_bytes: int, first_timeout_s: float = FIRST_TIMEOUT_S, spread: Callable[[], float] = spread
    ) -> None:
        self.limit_records = limit_records
        self.limit_bytes = limit_bytes
        self.first_timeout_s = first_timeout_s
        self.after_row = 0
        self.resent = 0
        self._spread = spread
        self._sent: dict[Key, _Sent] = {}
        self._left_over: dict[Key, _Sent] = {}
        self._bytes = 0
        self._silences = 0
        self._paused_until_s = 0.0
        self._heard_s = float("-inf")
        self._delay_s: float | None = None

    def timeout_s(self) -> float:
        """Return how long to wait for a receipt: a collector that is slow now is given longer."""
        return self.first_timeout_s if self._delay_s is None else max(self.first_timeout_s, 4 * self._delay_s)

    def room(self, now_s: float) -> int:
        """Return how many records may be sent on now."""
        if now_s < self._paused_until_s or self._bytes >= self.limit_bytes:
            return 0
        return max(0, self.limit_records - len(self._sent))

    def room_bytes(self) -> int:
        """Return how many bytes may be sent on."""
        return max(0, self.limit_bytes - self._bytes)

    def sent(self, pending: Iterable[Pending], now_s: float, message: int = 0) -> None:
        """Note records that were sent on, in the order of the outbox, and the number of the message that carries them."""
        for one in pending:
            self.after_row = max(self.after_row, one.row)
            self._sent[one.session, one.seq] = _Sent(one.row, len(one.payload), now_s, message)
            self._bytes += len(one.payload)

    def skip(self, pending: Pending) -> None:
        """Pass over a record that cannot be sent on this connection."""
        self.after_row = max(self.after_row, pending.row)

    def receipted(self, receipt: Receipt, now_s: float) -> None:
        """Take the records that `receipt` names off the way."""
        self._heard_s = now_s
        self._silences = 0
        self._paused_until_s = 0.0
        for first, last in receipt.held:
            for key in self._named(receipt.session, first, last):
                self._left_over.pop(key, None)
                sent = self._sent.pop(key, None)
                if sent is not None:
                    self._bytes -= sent.size_bytes
                    self._learn(now_s - sent.at_s)

    def gone(self, row: int) -> None:
        """Take a record off the way that is no longer in the outbox."""
        for key in [key for key, sent in self._left_over.items() if sent.row == row]:
            del self._left_over[key]

    def restart(self) -> None:
        """Begin again at the oldest record, at once: a connection is new, and what was on the old one may be lost."""
        self.resent += len(self._sent)
        self._sent.clear()
        self._left_over.clear()
        self._bytes = 0
        self.after_row = 0
        self._paused_until_s = 0.0

    def expire(self, now_s: float, is_on_its_way: Callable[[int], bool] = lambda _: False) -> None:
        """Look for records whose receipt is overdue. No receipt can come for what `is_on_its_way`: over a slow line that is minutes."""
        for sent in (*self._sent.values(), *self._left_over.values()):
            if is_on_its_way(sent.message):
                sent.at_s = max(sent.at_s, now_s)
        overdue = [key for key, sent in self._sent.items() if now_s - sent.at_s >= self.timeout_s()]
        if not overdue:
            return
        if self._heard_s <= self._sent[overdue[0]].at_s:
            self._silences += 1
            self.restart()
            self._paused_until_s = now_s + self._pause_s(self._silences, LONGEST_SILENCE_S)
            return
        for key in overdue:
            sent = self._left_over[key] = self._sent.pop(key)
            self._bytes -= sent.size_bytes
            sent.at_s = now_s + self._pause_s(sent.tries, LONGEST_REPEAT_S)

    def sent_again(self, pending: Iterable[Pending], message: int) -> None:
        """Note the number of the message that carries single records again."""
        for one in pending:
            if (sent := self._left_over.get((one.session, one.seq))) is not None:
                sent.message = message

    def due(self, now_s: float) -> list[int]:
        """Return the rows of single records to send again now; each then waits longer than before."""
        rows = []
        for sent in self._left_over.values():
            if now_s >= sent.at_s:
                sent.tries += 1
                sent.at_s = now_s + self._pause_s(sent.tries, LONGEST_REPEAT_S)
                rows.append(sent.row)
        self.resent += len(rows)
        return rows

    def wait_s(self, now_s: float) -> float:
        """Return how long nothing has to be looked at, at most a minute."""
        times = [self._paused_until_s - now_s] if now_s < self._paused_until_s else []
        if self._sent:
            times.append(next(iter(self._sent.values())).at_s + self.timeout_s() - now_s)
        times += [sent.at_s - now_s for sent in self._left_over.values()]
        return min(60.0, max(0.0, min(times, default=60.0)))

    def _named(self, session: int, first: int, last: int) -> list[Key]:
        if last - first <= len(self._sent) + len(self._left_over):
            return [(session, seq) for seq in range(first, last + 1)]
        return [key for key in [*self._sent, *self._left_over] if key[0] == session and first <= key[1] <= last]

    def _learn(self, delay_s: float) -> None:
        self._delay_s = delay_s if self._delay_s is None else 0.9 * self._delay_s + 0.1 * delay_s

    def _pause_s(self, tries: int, longest_s: float) -> float:
        return min(longest_s, self.first_timeout_s * 2.0 ** min(tries - 1, 10)) * self._spread()
