"""The sender: what of the outbox goes out over a connection now, what goes again, and what has to wait."""

import logging
import time

from edgemeter.agent.delivery import messages
from edgemeter.agent.delivery.mqtt_session import MqttSession
from edgemeter.agent.delivery.outbox import Outbox, Pending
from edgemeter.agent.delivery.parcels import PARCEL_BYTES, PARCEL_RECORDS, Parcel, parcels
from edgemeter.agent.delivery.send_window import SendWindow
from edgemeter.agent.delivery.topics import Topic

logger = logging.getLogger(__name__)

WINDOW_RECORDS = 1000
WINDOW_BYTES = 8 << 20
# After a connection that brought no receipt messages are half as large; each receipt makes the next twice as large again.
SMALLEST_SHARE = 1 / 64


class Sender:
    """Sends the records of `device` that lie in `outbox`, within a window of unreceipted ones; called from one thread.

    A line may be so bad that it breaks before a large message is through: messages get smaller until some are. Records of another fleet
    than `fleet`, to which the device belonged before, are held back for as long as a connection lasts on which the broker refused one.
    """

    def __init__(self, outbox: Outbox, device: str, fleet: str, window_records: int, receipt_timeout_s: float) -> None:
        self.too_large: set[int] = set()
        self.holds_former = False
        self._outbox = outbox
        self._device = device
        self._fleet = fleet
        self._former: set[int] = set()
        self._share = 1.0
        self._was_heard = True
        self._has_to_begin_anew = False
        self._window = SendWindow(window_records, WINDOW_BYTES, receipt_timeout_s)

    @property
    def resent(self) -> int:
        """How many records were sent again."""
        return self._window.resent

    def send(self, session: MqttSession) -> float:
        """Send what is due; return after how long to look again."""
        now_s = time.monotonic()
        if self._has_to_begin_anew:
            self._has_to_begin_anew = False
            self._window.restart()
        self._window.expire(now_s, session.is_on_its_way)
        self._send_again(session, now_s)
        self._send_on(session, now_s)
        return self._window.wait_s(now_s)

    def refused(self, session: MqttSession) -> bool:
        """Take the broker's refusal of a message, from any thread; return whether that was one of a former fleet's."""
        answered = {number for number in self._former.copy() if not session.is_on_its_way(number)}
        self._former.difference_update(answered)
        if answered:
            self.holds_former = self._has_to_begin_anew = True
        return bool(answered)

    def receipted(self, receipt: messages.Receipt) -> None:
        """Take the records that `receipt` names off the way."""
        self._was_heard = True
        self._share = min(1.0, 2 * self._share)
        self._window.receipted(receipt, time.monotonic())

    def restart(self) -> None:
        """Begin again at the oldest record: what was on the way may be lost."""
        if not self._was_heard:
            self._share = max(self._share / 2, SMALLEST_SHARE)
        self._was_heard = False
        self.holds_former = False
        self._former.clear()
        self._window.restart()

    def _send_again(self, session: MqttSession, now_s: float) -> None:
        again: list[Pending] = []
        for row in self._window.due(now_s):
            one = self._outbox.read(row)
            if one is None:
                self._window.gone(row)
            else:
                again.append(one)
        for first in range(0, len(again), PARCEL_RECORDS):
            for parcel in parcels(again[first : first + PARCEL_RECORDS], session.largest_bytes()):
                if parcel.fits:
                    self._window.sent_again(parcel.records, self._publish(session, parcel))

    def _send_on(self, session: MqttSession, now_s: float) -> None:
        room = session.room()
        while room > 0 and (records := self._window.room(now_s)):
            limit_bytes = min(int(PARCEL_BYTES * self._share), self._window.room_bytes())
            after = self._window.after_row
            fleet = self._fleet if self.holds_former else None
            waiting = self._outbox.pending(min(records, PARCEL_RECORDS), limit_bytes, after_row=after, device=self._device, fleet=fleet)
            if not waiting:
                return
            # What does not fit into the broker's window stays behind the cursor, and is taken the next time.
            for parcel in list(parcels(waiting, session.largest_bytes()))[:room]:
                if parcel.fits:
                    self._window.sent(parcel.records, now_s, self._publish(session, parcel))
                    room -= 1
                else:
                    self._pass_over(parcel, session.largest_bytes())

    def _pass_over(self, parcel: Parcel, largest_bytes: int) -> None:
        (one,) = parcel.records
        self._window.skip(one)
        if one.row not in self.too_large:
            self.too_large.add(one.row)
            size_bytes = len(parcel.payload)
            logger.error("record %d of session %d has %d bytes, the broker takes %d", one.seq, one.session, size_bytes, largest_bytes)

    def _publish(self, session: MqttSession, parcel: Parcel) -> int:
        first = parcel.records[0]
        number = session.publish(str(Topic(first.fleet, first.device, "result")), parcel.payload)
        if first.fleet != self._fleet:
            self._former = {one for one in self._former.copy() if session.is_on_its_way(one)} | {number}
        return number
