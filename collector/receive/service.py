"""The collector as one object: receiver, ledger and drain, started and stopped together; used by the command and by the demo."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.mqtt_session import CONNECT_TIMEOUT_S
from edgemeter.agent.errors import EdgemeterError, TransientError
from edgemeter.collector.keep.drain import Drain
from edgemeter.collector.keep.influx_config import InfluxConfig
from edgemeter.collector.keep.ledger import Ledger
from edgemeter.collector.keep.points import Points
from edgemeter.collector.keep.retention import Retention
from edgemeter.collector.keep.sink import Sink, open_sink
from edgemeter.collector.receive.monitor import Metric
from edgemeter.collector.receive.receiver import Counts, Receiver

logger = logging.getLogger(__name__)


class Collector:
    """Receives from the broker at `address` into the ledger at `ledger_path`, and drains that to InfluxDB when one is given."""

    def __init__(
        self,
        address: BrokerAddress,
        ledger_path: Path,
        influx: InfluxConfig | None = None,
        *,
        group: str | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.address = address
        self.ledger_path = ledger_path
        self._influx = influx
        self._drain: Drain | None = None
        self._receiver = Receiver(address, ledger_path, self._committed, group=group, retention=retention)

    @property
    def counts(self) -> Counts:
        """What came in since the start."""
        return self._receiver.counts

    def start(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return when results are being received. An InfluxDB that does not answer now is tried again; the ledger keeps everything.

        Raises:
            ConfigError: the ledger's file is not one; the broker or InfluxDB refuses who we say we are.
            UnavailableError: no broker answers within `timeout_s`, or a library is missing.
        """
        Ledger(self.ledger_path).close()
        if self._influx is not None:
            points = Points(self._influx.extent, self._influx.also)
            sink = _reached(open_sink(self._influx))
            self._drain = Drain(self.ledger_path, sink, points)
            if self._receiver.retention is not None:
                self._receiver.retention = replace(self._receiver.retention, sinks=(sink.name,))
        try:
            self._receiver.start(timeout_s)
        except EdgemeterError:
            self.stop()
            raise
        if self._drain is not None:
            self._drain.start()

    def stop(self) -> None:
        """Commit what has come and end every thread; may be called twice."""
        self._receiver.stop()
        if self._drain is not None:
            self._drain.stop()

    def settled(self, timeout_s: float) -> bool:
        """Wait until all that has come is committed, and drained where there is an InfluxDB; return whether it is so in time."""
        deadline = time.monotonic() + timeout_s
        while not self._is_settled():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def trouble(self) -> str | None:
        """Return why the drain does not get on, None when it does."""
        return self._drain.trouble if self._drain is not None else None

    def unwell(self) -> str | None:
        """Return why nothing can be received now, None when it can."""
        if not self._receiver.is_alive():
            return "the writer has stopped"
        if not self._receiver.is_connected():
            return f"no connection to the broker at {self.address}"
        return self._receiver.refusal or self._receiver.trouble

    def metrics(self) -> Iterator[Metric]:
        """Yield what there is to watch.

        Raises:
            ConfigError: the ledger is damaged or gone.
            TransientError: it is in use, try again.
        """
        counts = self.counts
        yield Metric("messages_total", "counter", "Messages received since the start.", counts.messages)
        yield Metric("records_total", "counter", "New records committed since the start.", counts.inserted)
        yield Metric("duplicates_total", "counter", "Records that came again and were dropped.", counts.duplicates_dropped)
        yield Metric("quarantined_total", "counter", "Messages and records that were not taken.", counts.quarantined)
        yield Metric("collisions_total", "counter", "Records whose number another record holds.", counts.collisions)
        yield Metric("forgotten_total", "counter", "Records taken out by retention.", counts.forgotten)
        yield Metric("waiting_messages", "gauge", "Messages received and not committed yet.", self._receiver.waiting())
        yield Metric("connected", "gauge", "1 while the broker is there.", int(self._receiver.is_connected()))
        yield Metric("refused_total", "counter", "Records that the sink did not take.", self._drain.refused if self._drain else 0)
        yield Metric("drain_ok", "gauge", "0 while the drain does not get on.", int(self.trouble() is None))
        with Ledger(self.ledger_path, "read") as ledger:
            yield Metric("ledger_row", "gauge", "Row of the newest record in the ledger.", ledger.last_row())
            yield Metric("sink_row", "gauge", "Row up to which a sink has everything.", ledger.positions(), "sink")
            states = Counter(one.state or "unknown" for one in ledger.devices())
            yield Metric("devices", "gauge", "Devices by what they last said of themselves.", dict(states), "state")
            yield Metric("quarantine_entries", "gauge", "Entries in the quarantine.", ledger.quarantined_count())
        yield Metric("ledger_bytes", "gauge", "Size of the ledger's file.", self.ledger_path.stat().st_size)

    def is_alive(self) -> bool:
        """Return whether it works; when not, the process has to end."""
        return self._receiver.is_alive() and (self._drain is None or self._drain.is_alive())

    def _committed(self) -> None:
        if self._drain is not None:
            self._drain.wake()

    def _is_settled(self) -> bool:
        if not self._receiver.is_idle():
            return False
        if self._drain is None:
            return True
        with Ledger(self.ledger_path, "read") as ledger:
            return self._drain.has_reached(ledger.last_row())


def _reached(sink: Sink) -> Sink:
    # A wrong token has to be seen at the start; a server that is down has not.
    try:
        sink.prepare()
    except TransientError as error:
        # With nothing to drain yet nobody would hear of it before there is.
        logger.warning("not drained yet: %s", error)
        return sink
    except EdgemeterError:
        sink.close()
        raise
    return sink
