"""The daily comparison of a collector's ledger with its InfluxDB, in a thread of its own, slowly, so that nothing else waits for it."""

import logging
import threading
import time
from contextlib import closing

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import Points
from edgemeter.collector.influx.reconcile import Reconciler
from edgemeter.collector.influx.reconciliation import outcomes, save
from edgemeter.collector.influx.sink import open_sink
from edgemeter.collector.influx.tag_values import TagValues
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger

logger = logging.getLogger(__name__)

EVERY_NS = NS_PER_DAY
# How often it is asked whether a comparison is due, and how long after one that failed.
POLL_S, AGAIN_S = 60.0, 3600.0
# After some milliseconds of work.
PAUSE_S = 0.005
LEASE_AGAIN_S = 2.0


class _StoppedError(Exception):
    """The collector ends."""


class DailyReconciler:
    """Compares the ledger at `ledger_place` with `influx` every day and repairs that, in its own thread; `reader` may read it.

    Of several collectors of one ledger one does. The outcome is kept in the ledger; an error is logged, and it is tried again in
    an hour, or in a day where somebody has to change something first.
    """

    def __init__(self, ledger_place: LedgerPlace, influx: InfluxConfig, reader: InfluxConfig, *, poll_s: float = POLL_S) -> None:
        self._ledger_place, self._poll_s = ledger_place, poll_s
        self._influx, self._reader = influx, reader
        self._stopping = threading.Event()
        self._lease_due_s = 0.0
        # Of a database that cannot keep the outcome.
        self._last_ns = 0
        self._thread = threading.Thread(target=self._run, name="edgemeter-reconciler", daemon=True)

    def start(self) -> None:
        """Begin; the first comparison is due a day after the last one, whoever did it."""
        self._thread.start()

    def stop(self) -> None:
        """End, also in a comparison, after the request in progress; may be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._poll_s):
            try:
                with open_ledger(self._ledger_place) as ledger, closing(open_sink(self._influx)) as sink:
                    last_ns = max((outcome.at_ns for outcome in outcomes(ledger) if outcome.sink == sink.name), default=self._last_ns)
                    # A clock that was set back is no reason to wait for years.
                    if 0 <= time.time_ns() - last_ns < EVERY_NS or not ledger.position(sink.name):
                        continue
                    self._lease_due_s = 0.0
                    points = Points(self._influx.extent, self._influx.also, TagValues())
                    outcome = Reconciler(ledger, sink, points, self._reader, lambda: self._pause(ledger, sink.name)).reconcile(repairs=True)
                    save(ledger, outcome)
                    self._last_ns = outcome.at_ns
                if outcome.days:
                    logger.warning("%s", outcome.sentence)
            except _StoppedError:
                return
            except EdgemeterError as error:
                logger.warning("the ledger was not compared with %s: %s", self._influx, error)
                self._stopping.wait(EVERY_NS / 1e9 if isinstance(error, ConfigError) else AGAIN_S)

    def _pause(self, ledger: Ledger, sink: str) -> None:
        if self._stopping.wait(PAUSE_S):
            raise _StoppedError
        if time.monotonic() >= self._lease_due_s:
            if not ledger.lease(f"reconcile {sink}"):
                raise TransientError("another collector compares it")
            self._lease_due_s = time.monotonic() + LEASE_AGAIN_S
