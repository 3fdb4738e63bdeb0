"""The drain: brings the ledger to a sink in batches, in order, again after any failure; what is drained is noted in the ledger."""

import logging
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from edgemeter.agent import records
from edgemeter.agent.errors import ConfigError, EdgemeterError
from edgemeter.collector.keep import line_protocol
from edgemeter.collector.keep.influx import Refused
from edgemeter.collector.keep.ledger import Held, Ledger
from edgemeter.collector.keep.quarantine import Rejection

logger = logging.getLogger(__name__)

BATCH_RECORDS = 1000
LOOK_S = 5.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0


class Sink(Protocol):
    """Where points go. Called from one thread, may block as long as its own timeouts."""

    @property
    def name(self) -> str:
        """Its name in the ledger: the same place has the same name."""
        ...

    def write(self, lines: Sequence[str]) -> list[Refused]:
        """Store points; return those that are not taken, when all others are stored.

        Raises:
            ConfigError: somebody has to correct the configuration first.
            TransientError: not now.
        """
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Drain:
    """Drains the ledger at `ledger_path` to `sink` in a thread of its own; `start` once, `stop` once or more."""

    def __init__(self, ledger_path: Path, sink: Sink) -> None:
        self.trouble: str | None = None
        self._ledger_path = ledger_path
        self._sink = sink
        self._position = -1
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgemeter-drain", daemon=True)

    def start(self) -> None:
        """Begin where the ledger says that this sink stands."""
        self._thread.start()

    def wake(self) -> None:
        """Look into the ledger now: something was committed."""
        self._wake.set()

    def stop(self) -> None:
        """End after the batch that is on its way; may be called twice."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sink.close()

    def has_reached(self, row: int) -> bool:
        """Return whether the sink has everything up to `row`."""
        return self._position >= row

    def _run(self) -> None:
        failures = 0
        with Ledger(self._ledger_path) as ledger:
            while not self._stopping.is_set():
                self._wake.clear()
                pause_s = LOOK_S
                try:
                    while not self._stopping.is_set() and self._drain_batch(ledger):
                        pass
                    failures, self.trouble = 0, None
                except EdgemeterError as error:
                    failures += 1
                    pause_s = self._pause_s(error, failures)
                    self._report(error)
                    self._stopping.wait(pause_s)
                    continue
                self._wake.wait(pause_s)

    def _drain_batch(self, ledger: Ledger) -> bool:
        self._position = ledger.position(self._sink.name)
        batch = list(ledger.records(after_row=self._position, limit=BATCH_RECORDS))
        if not batch:
            return False
        refused = self._sink.write([line_protocol.line(held.record) for held in batch])
        rejections = [self._rejection(batch[one.index], one.reason) for one in refused]
        for rejection in rejections:
            logger.warning("quarantined: %s", rejection.reason)
        ledger.advance(self._sink.name, batch[-1].row, rejections)
        self._position = batch[-1].row
        return True

    def _rejection(self, held: Held, reason: str) -> Rejection:
        return Rejection(self._sink.name, records.encode(held.record), f"the sink does not take it: {reason}", held.received_ns)

    def _report(self, error: EdgemeterError) -> None:
        # Once when it begins, not with every repeat.
        if self.trouble != str(error):
            level = logging.ERROR if isinstance(error, ConfigError) else logging.WARNING
            logger.log(level, "not drained: %s", error)
        self.trouble = str(error)

    def _pause_s(self, error: EdgemeterError, failures: int) -> float:
        if isinstance(error, ConfigError):
            return LONGEST_PAUSE_S
        spread = random.uniform(0.75, 1.25)  # noqa: S311 - spreads repeats, no secret
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10)) * spread
