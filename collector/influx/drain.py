"""The drain: writes the ledger to a sink in batches, in order, with retries; the position is held in the ledger.

While the sink stores one batch the next is prepared. A batch that fails is written again, later in smaller parts, so that a slow server
makes progress too. Only what the sink rejects for good is skipped, and quarantined.
"""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.ledger.chunks import HeldChunk, SkippedRecord, warn_of_skipped
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.quarantine import Rejection, record_reference
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.collector.influx.client import PointsRejectedError
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import Points, point_ns
from edgemeter.collector.influx.sink import RejectedPoint, Sink, open_sink
from edgemeter.collector.influx.status_points import CollectorStatus, status_lines
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger

logger = logging.getLogger(__name__)

# One write of 5,000 points is 85 times cheaper than 5,000 writes; InfluxDB 1 accepts 25 MB at once.
BATCH_POINTS = 5_000
# An idle sink gets a batch of this share: preparing points takes about as long as storing them. For figures of records, 20,000 of them,
# 35 us of processor time a point on two quiet cores, for whole records 83; of the first, on a busy machine, 3 to decompress, 7 to parse
# 5.2 kB of JSON and 16 to write the line. Storing a point of figures took InfluxDB 46 us there.
IDLE_SHARE = 0.2
# Of whole records this is some 1,000 points. Four times as much raises the peak of the process by 50 MB and is not faster; half is slower.
BATCH_CHARACTERS = 2_000_000
# A failure halves the size of batches; each success raises it a little.
SMALLEST_SHARE = 1 / 256
REGAIN = 1.1
DRAIN_POLL_S = 5.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
# How often a service writes presence, health and lag; a device that reports nothing new is written again after an hour.
STATUS_EVERY_S = 60.0
DEVICES_AGAIN_S = 3600.0
# How long a server that could not delete points is left alone.
REMOVAL_EVERY_S = 3600.0


@dataclass(slots=True)
class _Batch:
    """Points to write, and the row and chunk of the record of each, of all records up to `last_row`."""

    last_row: int
    lines: list[str] = field(default_factory=list)
    owners: list[tuple[int, HeldChunk]] = field(default_factory=list)
    characters: int = 0
    skipped: list[SkippedRecord] = field(default_factory=list)

    def add(self, row: int, chunk: HeldChunk, lines: Sequence[str]) -> None:
        self.last_row = row
        self.lines += lines
        self.owners += [(row, chunk)] * len(lines)
        self.characters += sum(map(len, lines))


class Drain:
    """Drains the ledger at `ledger_place` to `sink` in its own thread; `start` once, `stop` once or more.

    `trouble` is why it makes no progress, None when it does; `rejected` counts the records that the sink rejected, `expired` those that are
    older than what it retains, which is no fault of theirs; `sink_name` is that of its position in the ledger. With `status_every_s` it
    also writes the presence and health of devices, where they changed, and its lag.
    """

    def __init__(
        self,
        ledger_place: LedgerPlace,
        sink: Sink,
        points: Points | None = None,
        *,
        status_every_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trouble: str | None = None
        self.rejected = self.expired = 0
        self._place = ledger_place
        self.sink_name = sink.name
        self._sink = sink
        self._points = points or Points()
        self._status_every_s = status_every_s
        self._clock = clock
        self._status_due_s = 0.0
        self._devices_written: dict[tuple[str, str], object] = {}
        self._devices_due_s = 0.0
        self._ledger: Ledger | None = None
        self._was_missing = False
        self._position = -1
        self._removal_due_s = 0.0
        self._share = 1.0
        self._failures = 0
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgemeter-drain", daemon=True)

    def start(self) -> None:
        """Begin at the position that the ledger has for this sink; raises EdgemeterError if the ledger cannot be opened."""
        self._ledger = open_ledger(self._place)
        self._thread.start()

    def wake(self) -> None:
        """Check the ledger now: something was committed."""
        self._wake.set()

    def stop(self) -> None:
        """End after the batch in progress; may be called twice."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sink.close()

    def positions(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Return the positions that a ledger holds, and that of this sink, 0 if it was never reached."""
        return {self.sink_name: 0, **positions}

    def has_reached(self, row: int) -> bool:
        """Return whether the sink has every record up to `row`."""
        return self._position >= row

    def _run(self) -> None:
        if self._ledger is None:
            return
        with self._ledger as ledger, ThreadPoolExecutor(1, "edgemeter-sink") as writer:
            while not self._stopping.is_set():
                self._wake.clear()
                pause_s = self.poll(ledger, writer)
                # What a server refuses does not change by what is committed.
                (self._wake if self.trouble is None else self._stopping).wait(pause_s)

    def poll(self, ledger: Ledger, writer: Executor) -> float:
        """Drain what `ledger` holds now, the batches written by `writer`; return for how many seconds there is nothing to do."""
        try:
            if self._has_lease(ledger):
                self._drain(ledger, writer)
                self._remove_withdrawn(ledger)
                self._write_status(ledger)
            else:
                self._position = ledger.position(self.sink_name)
        except EdgemeterError as error:
            self._failures += 1
            # Logged once, not at every retry.
            if self.trouble != str(error):
                logger.log(logging.ERROR if isinstance(error, ConfigError) else logging.WARNING, "not drained: %s", error)
            self.trouble = str(error)
            is_anew = False
            with suppress(EdgemeterError):
                is_anew = self._begin_anew_if_missing(ledger)
            self._share = max(self._share / 2, SMALLEST_SHARE)
            # A place that went is made anew at once; what is refused otherwise waits for somebody to change it.
            return FIRST_PAUSE_S if is_anew else _drain_pause_s(error, self._failures)
        self._failures, self.trouble = 0, None
        return DRAIN_POLL_S

    def _has_lease(self, ledger: Ledger) -> bool:
        # Of several collectors of one ledger one drains; another takes over when its lease has ended.
        return ledger.lease(f"drain {self.sink_name}")

    def _drain(self, ledger: Ledger, writer: Executor) -> None:
        self._begin_anew_if_missing(ledger)
        self._position = read_to = ledger.position(self.sink_name)
        in_progress: tuple[_Batch, Future[list[RejectedPoint]]] | None = None
        try:
            while True:
                written = in_progress
                # Only this thread and the writer's in turn use the sink: for the status the pass ends, after one batch at least.
                is_ending = self._stopping.is_set() or (written is not None and self._is_status_due())
                batch = None if is_ending else self._next(ledger, read_to, written[1] if written is not None else None)
                if written is not None:
                    written[1].result()
                    if not self._has_lease(ledger):
                        # This batch took longer than the lease: who has it now writes the same points.
                        return
                    if self._begin_anew_if_missing(ledger):
                        self._wake.set()
                        return
                # The sink does not wait until the ledger has noted what it stored.
                in_progress = (batch, writer.submit(self._sink.write, batch.lines)) if batch is not None else None
                if written is not None and not self._note(ledger, written[0], written[1].result()):
                    # The position was set back: the next pass begins there.
                    self._wake.set()
                    return
                if batch is None:
                    if is_ending:
                        self._wake.set()
                    return
                read_to = batch.last_row
        finally:
            # What was not noted is written again.
            if in_progress is not None:
                in_progress[1].exception()

    def _remove_withdrawn(self, ledger: Ledger) -> None:
        """Delete the points of runs that were excluded or deleted; a server that cannot is asked again in an hour."""
        history = LedgerRuns(ledger)
        withdrawn = history.withdrawn(self.sink_name) if self._clock() >= self._removal_due_s else []
        for number, run in withdrawn:
            try:
                self._sink.remove(run.device, point_ns(run))
            except (ConfigError, PointsRejectedError) as error:
                logger.warning("the points of %d runs that were excluded or deleted stay in %s: %s", len(withdrawn), self.sink_name, error)
                self._removal_due_s = self._clock() + REMOVAL_EVERY_S
                return
            history.note_removed(number, self.sink_name)

    def _begin_anew_if_missing(self, ledger: Ledger) -> bool:
        self._was_missing = self._sink.was_missing() or self._was_missing
        if not self._was_missing:
            return False
        is_anew = ledger.position(self.sink_name) > 0
        if is_anew:
            logger.warning("%s was missing: everything in the ledger is drained again", self.sink_name)
            ledger.advance(self.sink_name, 0)
        # The ledger may not answer: then it is set back later.
        self._was_missing = False
        return is_anew

    def _is_status_due(self) -> bool:
        return self._status_every_s is not None and self._clock() >= self._status_due_s

    def _write_status(self, ledger: Ledger) -> None:
        if self._status_every_s is None or not self._is_status_due():
            return
        now_s = self._clock()
        now_ns = time.time_ns()
        waiting_since_ns = ledger.waiting_since_ns(self._position)
        quarantined = ledger.quarantined_count()
        status = CollectorStatus(ledger.identity(), ledger.last_row(), self._position, waiting_since_ns, self.rejected, quarantined)
        if now_s >= self._devices_due_s:
            self._devices_written.clear()
            self._devices_due_s = now_s + DEVICES_AGAIN_S
        changed = [device for device in ledger.devices() if self._devices_written.get((device.fleet, device.device)) != device]
        rejected = self._sink.write(status_lines(changed, status, now_ns))
        if rejected:
            logger.warning("%d points of presence, health or lag were rejected: %s", len(rejected), rejected[0].reason)
        self._devices_written |= {(device.fleet, device.device): device for device in changed}
        self._status_due_s = now_s + self._status_every_s

    def _next(self, ledger: Ledger, after_row: int, writing: Future[list[RejectedPoint]] | None) -> _Batch | None:
        """Return the next batch: a full one, or a smaller one where the sink is idle: `writing` is what it stores now."""
        batch = _Batch(after_row)
        points = (
            (chunk, point) for chunk in ledger.chunks(after_row=after_row) for point in self._points.of_chunk(chunk, batch.skipped.append)
        )
        # Ended before anything is saved: SQLite refuses at once what is written within a read that commits have overtaken.
        with closing(points):
            for chunk, (row, lines) in points:
                batch.add(row, chunk, lines)
                share = self._share if writing is not None and not writing.done() else self._share * IDLE_SHARE
                if len(batch.lines) >= BATCH_POINTS * share or batch.characters >= BATCH_CHARACTERS * share:
                    break
        return batch if batch.last_row > after_row else None

    def _note(self, ledger: Ledger, batch: _Batch, rejected: Sequence[RejectedPoint]) -> bool:
        # A record of many points is rejected once.
        reasons = {batch.owners[point.index]: point.reason for point in reversed(rejected) if not point.is_expired}
        expired_records = {batch.owners[point.index][0] for point in rejected if point.is_expired}
        if expired_records and not self.expired:
            logger.warning("records older than what %s retains stay in the ledger and are not written there", self.sink_name)
        self.expired += len(expired_records)
        payloads = {chunk: dict(chunk.payloads()) for chunk in {chunk for _, chunk in reasons}}
        rejections = [
            Rejection(self.sink_name, record_reference(payloads[chunk][row]), f"the sink rejects it: {reason}", chunk.received_ns)
            for (row, chunk), reason in reversed(reasons.items())
        ]
        # Of thousands rejected together one line reports all.
        for reason, count in Counter(rejection.reason for rejection in rejections).items():
            logger.warning("quarantined %d records: %s", count, reason)
        for skipped in batch.skipped:
            warn_of_skipped(skipped)
            if skipped.reference is not None:
                reason = f"it is not drained, because it cannot be read: {skipped.reason}"
                rejections.append(Rejection(self.sink_name, msgspec.json.encode(skipped.reference), reason, time.time_ns()))
        self.rejected += len(rejections)
        is_expected = ledger.advance(self.sink_name, batch.last_row, rejections, after=self._position)
        if is_expected:
            self._position = batch.last_row
        self._share = min(self._share * REGAIN, 1.0)
        self._failures = 0
        return is_expected


def open_drain(ledger_place: LedgerPlace, influx: InfluxConfig) -> Drain:
    """Return a drain to `influx` that also writes presence, health and lag. A server that is down now is retried.

    Raises:
        ConfigError: InfluxDB refuses the credentials.
        UnavailableError: influxdb-client is not installed.
    """
    sink = open_sink(influx)
    drain = Drain(ledger_place, sink, Points(influx.extent, influx.also), status_every_s=STATUS_EVERY_S)
    try:
        sink.prepare()
    except TransientError as error:
        # With nothing to drain, nothing else would report it yet; the drain itself reports another trouble only.
        drain.trouble = str(error)
        logger.warning("not drained: %s", error)
    except EdgemeterError:
        # A wrong token must show at the start.
        sink.close()
        raise
    return drain


def _drain_pause_s(error: EdgemeterError, failures: int) -> float:
    if isinstance(error, ConfigError):
        return LONGEST_PAUSE_S
    spread = random.uniform(0.75, 1.25)  # noqa: S311 - spreads repeats, no secret
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10)) * spread
