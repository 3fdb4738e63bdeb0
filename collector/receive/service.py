"""The collector as one object: receiver, ledger and drain, started and stopped together; used by the command and by the demo."""

import time
from pathlib import Path

from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.mqtt_session import CONNECT_TIMEOUT_S
from edgemeter.agent.errors import EdgemeterError, TransientError
from edgemeter.collector.keep.drain import Drain
from edgemeter.collector.keep.influx import InfluxSink
from edgemeter.collector.keep.influx_config import InfluxConfig
from edgemeter.collector.keep.ledger import Ledger
from edgemeter.collector.receive.receiver import Counts, Receiver


class Collector:
    """Receives from the broker at `address` into the ledger at `ledger_path`, and drains that to InfluxDB when one is given."""

    def __init__(self, address: BrokerAddress, ledger_path: Path, influx: InfluxConfig | None = None) -> None:
        self.address = address
        self.ledger_path = ledger_path
        self._influx = influx
        self._drain: Drain | None = None
        self._receiver = Receiver(address, ledger_path, self._committed)

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
            self._drain = Drain(self.ledger_path, _reached(InfluxSink(self._influx)))
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

    def is_alive(self) -> bool:
        """Return whether it works; when not, the process has to end."""
        return self._receiver.is_alive()

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


def _reached(sink: InfluxSink) -> InfluxSink:
    # A wrong token has to be seen at the start; a server that is down has not.
    try:
        sink.prepare()
    except TransientError:
        return sink
    except EdgemeterError:
        sink.close()
        raise
    return sink
