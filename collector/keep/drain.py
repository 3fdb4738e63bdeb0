"""The drain: brings the ledger to a sink in batches, in order, again after any failure; what is drained is noted in the ledger.

While the sink stores one batch the next is read and written out. A batch that fails is written again as it was, or in smaller parts, so
that a slow server gets on too; nothing is passed over but what the sink refuses for good, and that lies in quarantine.
"""

import logging
import random
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent import record_parts
from edgemeter.agent.errors import ConfigError, EdgemeterError
from edgemeter.collector.keep.ledger import Ledger
from edgemeter.collector.keep.points import Points
from edgemeter.collector.keep.quarantine import Rejection
from edgemeter.collector.keep.refusals import Refused
from edgemeter.collector.keep.sink import Sink

logger = logging.getLogger(__name__)

# One write of 5,000 points is 85 times cheaper than 5,000 writes; InfluxDB 1 takes 25 MB at once.
BATCH_POINTS = 5_000
BATCH_CHARACTERS = 8_000_000
# After a failure batches are half as large; each one that is stored makes the next a little larger.
SMALLEST_SHARE = 1 / 256
REGAIN = 1.1
LOOK_S = 5.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Kept:
    """A record in the ledger: its row, its own JSON text, and when it came."""

    row: int
    payload: bytes
    received_ns: int


@dataclass(slots=True)
class _Batch:
    """Points on their way, and which record each is of, of all records up to `last_row`."""

    last_row: int
    lines: list[str] = field(default_factory=list)
    owners: list[_Kept] = field(default_factory=list)
    characters: int = 0

    def add(self, kept: _Kept, lines: Sequence[str]) -> None:
        self.last_row = kept.row
        self.lines += lines
        self.owners += [kept] * len(lines)
        self.characters += sum(map(len, lines))


class Drain:
    """Drains the ledger at `ledger_path` to `sink` in a thread of its own; `start` once, `stop` once or more.

    `trouble` is why it does not get on, None when it does; `refused` counts the records that the sink did not take.
    """

    def __init__(self, ledger_path: Path, sink: Sink, points: Points | None = None) -> None:
        self.trouble: str | None = None
        self.refused = 0
        self._ledger_path = ledger_path
        self._sink = sink
        self._points = points or Points()
        self._position = -1
        self._share = 1.0
        self._failures = 0
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

    def is_alive(self) -> bool:
        """Return whether it works; one that has died is a bug, and whoever runs us has to end."""
        return self._thread.is_alive()

    def has_reached(self, row: int) -> bool:
        """Return whether the sink has everything up to `row`."""
        return self._position >= row

    def _run(self) -> None:
        with Ledger(self._ledger_path) as ledger, ThreadPoolExecutor(1, "edgemeter-sink") as writer:
            while not self._stopping.is_set():
                self._wake.clear()
                try:
                    self._drain(ledger, writer)
                except EdgemeterError as error:
                    self._failures += 1
                    self._report(error)
                    self._share = max(self._share / 2, SMALLEST_SHARE)
                    self._stopping.wait(_pause_s(error, self._failures))
                else:
                    self._failures, self.trouble = 0, None
                    self._wake.wait(LOOK_S)

    def _drain(self, ledger: Ledger, writer: ThreadPoolExecutor) -> None:
        """Bring everything to the sink that the ledger holds now."""
        self._position = read_to = ledger.position(self._sink.name)
        on_its_way: tuple[_Batch, Future[list[Refused]]] | None = None
        while True:
            batch = None if self._stopping.is_set() else self._next(ledger, read_to)
            if on_its_way is not None:
                written, answer = on_its_way
                self._note(ledger, written, answer.result())
            if batch is None:
                return
            read_to = batch.last_row
            on_its_way = batch, writer.submit(self._sink.write, batch.lines)

    def _next(self, ledger: Ledger, after_row: int) -> _Batch | None:
        batch = _Batch(after_row)
        for row, received_ns, payload, is_checked in ledger.payloads(after_row=after_row):
            try:
                lines = self._points.lines(payload, is_checked=is_checked)
            except ConfigError:
                if is_checked:
                    raise
                # It is about to go to the quarantine.
                continue
            batch.add(_Kept(row, payload, received_ns), lines)
            if len(batch.lines) >= BATCH_POINTS * self._share or batch.characters >= BATCH_CHARACTERS * self._share:
                break
        return batch if batch.lines else None

    def _note(self, ledger: Ledger, batch: _Batch, refused: Sequence[Refused]) -> None:
        # A record of many points is refused once.
        reasons = {batch.owners[one.index]: one.reason for one in reversed(refused)}
        rejections = [self._rejection(kept, reason) for kept, reason in reasons.items()][::-1]
        self._say(rejections)
        self.refused += len(rejections)
        ledger.advance(self._sink.name, batch.last_row, rejections)
        self._position = batch.last_row
        self._share = min(self._share * REGAIN, 1.0)
        self._failures = 0

    def _say(self, rejections: Sequence[Rejection]) -> None:
        # Of thousands that are refused together one says it for all.
        for reason, count in Counter(rejection.reason for rejection in rejections).items():
            logger.warning("quarantined %d records: %s", count, reason)

    def _rejection(self, kept: _Kept, reason: str) -> Rejection:
        # Without its raw samples, which may be megabytes and stay in the ledger.
        head, _ = record_parts.part(kept.payload)
        return Rejection(self._sink.name, head, f"the sink does not take it: {reason}", kept.received_ns)

    def _report(self, error: EdgemeterError) -> None:
        # Once when it begins, not with every repeat.
        if self.trouble != str(error):
            level = logging.ERROR if isinstance(error, ConfigError) else logging.WARNING
            logger.log(level, "not drained: %s", error)
        self.trouble = str(error)


def _pause_s(error: EdgemeterError, failures: int) -> float:
    if isinstance(error, ConfigError):
        return LONGEST_PAUSE_S
    spread = random.uniform(0.75, 1.25)  # noqa: S311 - spreads repeats, no secret
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10)) * spread
