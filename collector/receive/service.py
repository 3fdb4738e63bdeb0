"""The collector as one object: receiver, ledger and drain, started and stopped together."""

import ctypes
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import get_args

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.mqtt_session import CONNECT_TIMEOUT_S
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.presence import DeviceBacklog
from edgemeter.agent.ledger.quarantine import RejectionKind
from edgemeter.agent.ledger.retention import Retention
from edgemeter.collector.influx.drain import Drain, open_drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.receive.feed import Feed
from edgemeter.collector.receive.monitor import MonitorMetric
from edgemeter.collector.receive.receiver import Receiver
from edgemeter.collector.trend.watch_file import open_watch, watch_file_beside

# Devices choose the names of their fleets: these many have labels of their own.
FLEETS_LIMIT = 100
OTHER_FLEETS = "(others)"
# A message of 100 records is some 300 kB of text.
FREED_BYTES = 4 << 20
_WAITING_ALERTS = "SELECT channel, count(*), min(due_ns) FROM notified WHERE due_ns IS NOT NULL GROUP BY channel ORDER BY channel"
_REJECTIONS = (
    "Rejected messages and records: no topic of ours, invalid presence, payload or record, of another origin than its topic "
    "or without an outbox's number, a collision of numbers, rejected by the sink."
)


class Collector:
    """Receives from the broker at `address` into the ledger at `ledger_place`, and drains that to InfluxDB when one is given.

    `counts` are those since the start.
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
        self._influx = influx
        self._drain: Drain | None = None
        self.receiver = Receiver(address, ledger_place, self._wake_drain, group=group, retention=retention, feed_of=feed_of, clock=clock)
        self.counts = self.receiver.counts

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when results are being received. If InfluxDB does not answer now, it is retried; the ledger keeps everything.

        Raises:
            ConfigError: the file is no ledger, or the broker or InfluxDB refuses the credentials.
            UnavailableError: no broker answers within `timeout_s`, or a library is missing.
        """
        _keep_freed_buffers()
        open_ledger(self.place).close()
        if self._influx is not None:
            self._drain = open_drain(self.place, self._influx)
            if self.receiver.retention is not None:
                self.receiver.retention = replace(self.receiver.retention, sink=self._drain.sink_name)
        try:
            self.receiver.start(timeout_s)
        except EdgemeterError:
            self.stop()
            raise
        if self._drain is not None:
            self._drain.start()

    def stop(self) -> None:
        """Commit what was received and end every thread; may be called twice."""
        self.receiver.stop()
        if self._drain is not None:
            self._drain.stop()

    def settled(self, timeout_s: float) -> bool:
        """Wait until everything received is committed, and drained; return False after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not self._is_settled():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def trouble(self) -> str | None:
        """Return why the drain makes no progress, None when it does."""
        return self._drain.trouble if self._drain is not None else None

    def safety(self) -> str:
        """Return when a record is acknowledged, in words: on how many disks it is then.

        Raises:
            UnavailableError: the ledger cannot be opened now.
        """
        with open_ledger(self.place, "read") as ledger:
            return ledger.safety()

    def metrics(self) -> Iterator[MonitorMetric]:
        """Yield every metric.

        Raises:
            ConfigError: the ledger is damaged or gone.
            TransientError: it is in use; retry.
        """
        counts = self.counts
        # Every reason is there from the start: a rate needs the 0 before the 1.
        rejections: dict[str, float] = {kind: counts.rejections[kind] for kind in get_args(RejectionKind)}
        rejections |= {"collision": counts.collisions, "sink": self._drain.rejected if self._drain is not None else 0}
        yield MonitorMetric("messages_total", "counter", "Messages received since the start.", counts.messages)
        yield MonitorMetric("records_total", "counter", "New records committed since the start.", counts.inserted)
        yield MonitorMetric("duplicates_total", "counter", "Repeated records, dropped.", counts.duplicates)
        yield MonitorMetric("rejections_total", "counter", _REJECTIONS, rejections, "reason")
        expired = self._drain.expired if self._drain is not None else 0
        yield MonitorMetric("expired_total", "counter", "Records older than what a sink accepts, in the ledger only.", expired)
        yield MonitorMetric("receipt_seconds", "histogram", "From reading a message with results to its receipt.", counts.receipt_s)
        yield MonitorMetric("shed_total", "counter", "Messages of devices that send too much, to be sent again.", counts.shed)
        yield MonitorMetric("stalled_seconds", "gauge", "Time since a commit or a pass of the writer ended.", self.receiver.stalled_s())
        yield MonitorMetric("forgotten_total", "counter", "Records removed by retention.", counts.forgotten)
        yield MonitorMetric("waiting_messages", "gauge", "Messages received and not committed yet.", len(self.receiver.inbox))
        yield MonitorMetric("connected", "gauge", "1 while the broker is connected.", int(self.receiver.is_connected()))
        yield MonitorMetric("drain_ok", "gauge", "0 while the drain makes no progress.", int(self.trouble() is None))
        with open_ledger(self.place, "read") as ledger:
            yield MonitorMetric("ledger_row", "gauge", "Row of the newest record in the ledger.", ledger.last_row())
            yield from self._drain_metrics(ledger)
            devices = ledger.backlogs()
            yield MonitorMetric(
                "devices", "gauge", "Devices by last reported state.", Counter(device.state or "unknown" for device in devices), "state"
            )
            yield from _backlog_metrics(devices)
            yield MonitorMetric("ledger_bytes", "gauge", "Size of the ledger on its disk.", ledger.size_bytes())
            yield MonitorMetric("receipt_info", "gauge", "1, with when a record is acknowledged.", {ledger.safety(): 1}, "when")
            yield MonitorMetric("quarantine_entries", "gauge", "Entries in the quarantine.", ledger.quarantined_count())
        yield from _alert_metrics(self.place)

    def _drain_metrics(self, ledger: Ledger) -> Iterator[MonitorMetric]:
        positions = ledger.positions()
        if self._drain is not None:
            positions = self._drain.positions(positions)
        now_ns = time.time_ns()
        since_ns = {sink: ledger.waiting_since_ns(row) for sink, row in positions.items()}
        lag_s = {sink: 0.0 if since is None else max(0, now_ns - since) / 1e9 for sink, since in since_ns.items()}
        yield MonitorMetric("sink_row", "gauge", "Row up to which the sink has every record.", positions, "sink")
        yield MonitorMetric("sink_lag_seconds", "gauge", "Age of the oldest record that the sink does not have.", lag_s, "sink")

    def _is_settled(self) -> bool:
        if not self.receiver.inbox.is_idle():
            return False
        if self._drain is None:
            return True
        with open_ledger(self.place, "read") as ledger:
            last_row = ledger.last_row()
        return self._drain.has_reached(last_row)

    def _wake_drain(self) -> None:
        if self._drain is not None:
            self._drain.wake()


def _keep_freed_buffers() -> None:
    """Keep freed buffers for the next messages: given back and fetched each time, they cost a fifth of the time.

    Source: mallopt(3) and glibc's malloc.h: M_MMAP_THRESHOLD is -3, M_TRIM_THRESHOLD -1. Other C libraries have no such call.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(-3, FREED_BYTES)
        library.mallopt(-1, 2 * FREED_BYTES)


def _alert_metrics(ledger_place: LedgerPlace) -> Iterator[MonitorMetric]:
    """Yield what the channels of alerts have not got; nothing where no alert was ever checked."""
    if isinstance(ledger_place, Path) and not watch_file_beside(str(ledger_place)).exists():
        return
    waiting, checked_ns = None, None
    with suppress(EdgemeterError), open_watch(ledger_place, "read") as file, file.reading() as statements:
        waiting = statements.execute(_WAITING_ALERTS).fetchall()
        checked_ns = statements.execute("SELECT max(checked_ns) FROM alert_checks").fetchone()[0]
    yield MonitorMetric("alerts_readable", "gauge", "1 where the state of the alerts can be read, else 0.", int(waiting is not None))
    if waiting is not None:
        counts = {channel: alerts for channel, alerts, _ in waiting}
        since_s = {channel: since_ns / 1e9 for channel, _, since_ns in waiting}
        yield MonitorMetric("alert_notices", "gauge", "Notifications of alerts undelivered to a channel.", counts, "channel")
        yield MonitorMetric("alert_notices_since_timestamp_seconds", "gauge", "When the oldest was due.", since_s, "channel")
        if checked_ns is not None:
            age_s = max(0, time.time_ns() - checked_ns) / 1e9
            yield MonitorMetric("alert_check_age_seconds", "gauge", "Time since the last check of alerts.", age_s)


def _backlog_metrics(devices: Sequence[DeviceBacklog]) -> Iterator[MonitorMetric]:
    waiting: dict[str, list[int]] = defaultdict(list)
    for device in devices:
        if device.waiting_records is not None:
            waiting[device.fleet].append(device.waiting_records)
    largest = sorted(waiting, key=lambda fleet: (-sum(waiting[fleet]), fleet))
    for fleet in largest[FLEETS_LIMIT:]:
        waiting[OTHER_FLEETS] += waiting.pop(fleet)
    sums, highest = ({fleet: of(counts) for fleet, counts in waiting.items()} for of in (sum, max))
    text = (
        f"Records that wait in the readable outboxes of a fleet, as last reported; of the {FLEETS_LIMIT} fleets with most, and all others."
    )
    yield MonitorMetric("outbox_records", "gauge", text, sums, "fleet")
    yield MonitorMetric("outbox_records_max", "gauge", "Those of the fullest outbox.", highest, "fleet")
