"""The drain writes the ledger to a bucket in batches, in order, with retries.

Its position is stored in the ledger.

A failed batch is written again, later in smaller parts, so that a slow server makes progress too.
Only points that the server rejects for good are skipped, and quarantined.
"""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.agent.contract.record import decode
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.ledger.chunks import SkippedRecord, warn_of_skipped
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.quarantine import RecordReference, Rejection
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.collector.influx.bucket import Bucket, PointsRejectedError
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import point_line, point_ns
from edgemeter.collector.influx.status_points import status_lines
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger

logger = logging.getLogger(__name__)

# One write of 5,000 points is 85 times cheaper than 5,000 writes.
BATCH_POINTS = 5_000
# A failure halves the size of batches; each success raises it a little.
SMALLEST_SHARE = 1 / 256
REGAIN = 1.1
DRAIN_POLL_S = 5.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
# How often a service writes presence, health and lag.
STATUS_EVERY_S = 60.0
# The pause after a server could not delete points.
REMOVAL_EVERY_S = 3600.0
# Errors of a server for points older than the bucket's retention.
_EXPIRED = ("beyond retention policy", "outside retention policy")


@dataclass(slots=True)
class _Batch:
    """Points to write, with the record of each, for all records up to `last_row`."""

    last_row: int
    lines: list[str] = field(default_factory=list)
    references: list[RecordReference] = field(default_factory=list)
    skipped: list[SkippedRecord] = field(default_factory=list)


class Drain:
    """Drains the ledger at `ledger_place` to `bucket` in its own thread; `start` once, then `stop`.

    `trouble` is why it makes no progress, else None; `rejected` counts the records that the server
    rejected, except for expired ones, which is not their fault; `sink_name` is the name of its
    position in the ledger. With `status_every_s` it also writes the presence and health of devices,
    and its lag.
    """

    def __init__(
        self,
        ledger_place: LedgerPlace,
        bucket: Bucket,
        *,
        status_every_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trouble: str | None = None
        self.rejected = 0
        self.sink_name = bucket.name
        self._place = ledger_place
        self._bucket = bucket
        self._status_every_s = status_every_s
        self._clock = clock
        self._status_due_s = self._removal_due_s = 0.0
        self._ledger: Ledger | None = None
        self._position = -1
        self._share = 1.0
        self._has_expired = False
        self._failures = 0
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgemeter-drain", daemon=True)
        self._posting = ThreadPoolExecutor(1, "edgemeter-drain-write")

    def start(self) -> None:
        """Begin at the position that the ledger has for this bucket.

        It raises EdgemeterError if the ledger cannot be opened.
        """
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
        self._posting.shutdown()
        self._bucket.close()

    def has_reached(self, row: int) -> bool:
        """Return whether the bucket has every record up to `row`."""
        return self._position >= row

    def _run(self) -> None:
        if self._ledger is None:
            return
        with self._ledger as ledger:
            while not self._stopping.is_set():
                self._wake.clear()
                pause_s = self.poll(ledger)
                # After a failure, new commits do not help: wait for the pause to end.
                (self._wake if self.trouble is None else self._stopping).wait(pause_s)

    def poll(self, ledger: Ledger) -> float:
        """Drain the records that `ledger` has now; return the number of seconds without work."""
        try:
            if self._has_lease(ledger):
                self._drain(ledger)
                self._remove_withdrawn(ledger)
                self._write_status(ledger)
            else:
                self._position = ledger.position(self.sink_name)
        except EdgemeterError as error:
            self._failures += 1
            # Logged once, not at every retry.
            if self.trouble != str(error):
                logger.log(
                    logging.ERROR if isinstance(error, ConfigError) else logging.WARNING,
                    "not drained: %s",
                    error,
                )
            self.trouble = str(error)
            self._share = max(self._share / 2, SMALLEST_SHARE)
            if isinstance(error, ConfigError):
                return LONGEST_PAUSE_S
            spread = random.uniform(0.75, 1.25)  # noqa: S311 - spreads repeats, no secret
            return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10)) * spread
        self._failures, self.trouble = 0, None
        return DRAIN_POLL_S

    def _has_lease(self, ledger: Ledger) -> bool:
        # One of a ledger's collectors drains; another takes over when the lease expires.
        return ledger.lease(f"drain {self.sink_name}")

    def _drain(self, ledger: Ledger) -> None:
        self._position = ledger.position(self.sink_name)
        following = self._next(ledger, self._position)
        while not self._stopping.is_set() and (batch := following):
            writing = self._posting.submit(self._bucket.write, batch.lines)
            # The next batch is made while the server stores this one. The read ends before anything
            # is saved: SQLite immediately refuses a write within a read that commits have
            # overtaken.
            try:
                following = self._next(ledger, batch.last_row)
            finally:
                rejected = writing.result()
            # If this batch took longer than the lease, the next owner writes the same points. If
            # the position was set back, or the status is due, the next pass continues from the
            # position.
            if (
                not self._has_lease(ledger)
                or not self._note(ledger, batch, rejected)
                or self._is_status_due()
            ):
                self._wake.set()
                return

    def _next(self, ledger: Ledger, after_row: int) -> _Batch | None:
        batch = _Batch(after_row)
        points = (
            (row, point)
            for chunk in ledger.chunks(after_row=after_row)
            for row, point in chunk.read_each(
                partial(_point, chunk.received_ns), batch.skipped.append
            )
        )
        with closing(points):
            for row, point in points:
                batch.last_row = row
                if point is not None:
                    batch.lines.append(point[0])
                    batch.references.append(point[1])
                if len(batch.lines) >= BATCH_POINTS * self._share:
                    break
        return batch if batch.last_row > after_row else None

    def _note(self, ledger: Ledger, batch: _Batch, rejected: Mapping[int, str]) -> bool:
        """Advance the position to the end of the batch.

        Return False if it was set back meanwhile.
        """
        expired = {
            index for index, reason in rejected.items() if any(text in reason for text in _EXPIRED)
        }
        if expired and not self._has_expired:
            logger.warning(
                "records older than what %s retains stay in the ledger and are not written there",
                self.sink_name,
            )
        self._has_expired = self._has_expired or bool(expired)
        reasons = {
            index: f"the sink rejects it: {reason}"
            for index, reason in sorted(rejected.items())
            if index not in expired
        }
        # One line per reason, even if thousands are rejected together.
        for reason, count in Counter(reasons.values()).items():
            logger.warning("quarantined %d records: %s", count, reason)
        quarantined = [(batch.references[index], reason) for index, reason in reasons.items()]
        for skipped in batch.skipped:
            warn_of_skipped(skipped)
            if skipped.reference is not None:
                quarantined.append(
                    (
                        skipped.reference,
                        f"it is not drained, because it cannot be read: {skipped.reason}",
                    )
                )
        self.rejected += len(quarantined)
        now_ns = time.time_ns()
        is_expected = ledger.advance(
            self.sink_name,
            batch.last_row,
            [
                Rejection(self.sink_name, msgspec.json.encode(reference), reason, now_ns)
                for reference, reason in quarantined
            ],
            after=self._position,
        )
        if is_expected:
            self._position = batch.last_row
        self._share = min(self._share * REGAIN, 1.0)
        self._failures = 0
        return is_expected

    def _remove_withdrawn(self, ledger: Ledger) -> None:
        """Delete the points of excluded or deleted runs.

        A server that cannot is asked again in an hour.
        """
        history = LedgerRuns(ledger)
        withdrawn = (
            history.withdrawn(self.sink_name) if self._clock() >= self._removal_due_s else []
        )
        for number, run in withdrawn:
            try:
                self._bucket.delete(run.device, point_ns(run))
            except (ConfigError, PointsRejectedError) as error:
                logger.warning(
                    "the points of %d runs that were excluded or deleted stay in %s: %s",
                    len(withdrawn),
                    self.sink_name,
                    error,
                )
                self._removal_due_s = self._clock() + REMOVAL_EVERY_S
                return
            history.note_removed(number, self.sink_name)

    def _is_status_due(self) -> bool:
        return self._status_every_s is not None and self._clock() >= self._status_due_s

    def _write_status(self, ledger: Ledger) -> None:
        if self._status_every_s is None or not self._is_status_due():
            return
        lag_rows = max(0, ledger.last_row() - self._position)
        rejected = self._bucket.write(
            [*status_lines(ledger.devices(), ledger.identity(), lag_rows, time.time_ns())]
        )
        if rejected:
            logger.warning(
                "%d points of presence, health or lag were rejected: %s",
                len(rejected),
                next(iter(rejected.values())),
            )
        self._status_due_s = self._clock() + self._status_every_s


def _point(received_ns: int, raw: msgspec.Raw) -> tuple[str, RecordReference]:
    # A record with an impossible time has that of its receipt: otherwise it would be beyond the
    # bucket's retention, or stay for years.
    run = placed(decode(raw), received_ns)
    return point_line(run), RecordReference(
        run.fleet, run.device, run.session or 0, run.seq or 0, run.id
    )


def open_drain(ledger_place: LedgerPlace, influx: InfluxConfig) -> Drain:
    """Return a drain to `influx` that also writes presence, health and lag.

    A server that is down now is retried.

    Raises:
        ConfigError: InfluxDB refuses the credentials, or there is no such bucket.
        UnavailableError: influxdb-client is not installed.
    """
    bucket = Bucket(influx)
    drain = Drain(ledger_place, bucket, status_every_s=STATUS_EVERY_S)
    try:
        bucket.check()
    except TransientError as error:
        # With nothing to drain, nothing else would report it yet; the drain itself reports another
        # problem only.
        drain.trouble = str(error)
        logger.warning("not drained: %s", error)
    except EdgemeterError:
        # A wrong token must show at the start.
        bucket.close()
        raise
    return drain
