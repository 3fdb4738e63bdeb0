"""Where the index gets records from: the collector's ledger, or documents that `edgemeter run --format json` printed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.chunks import SkippedRecord, warn_of_skipped
from edgemeter.agent.ledger.presence import DevicePresence, RetainedMessage
from edgemeter.collector.ledgers.place import LedgerPlace, ledger_version, open_ledger
from edgemeter.collector.runs.store import LedgerStore, RunStore


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """The ledger at `place`, opened to read for each call, from any thread: a running collector is not disturbed."""

    place: LedgerPlace

    def last_row(self) -> int:
        """Return the row of the newest record, 0 when there is none."""
        with open_ledger(self.place, "read") as ledger:
            return ledger.last_row()

    def highest_row(self) -> int:
        """Return the highest row that a record ever had."""
        with open_ledger(self.place, "read") as ledger:
            return ledger.highest_row()

    def count(self) -> int:
        """Return how many records the ledger holds."""
        with open_ledger(self.place, "read") as ledger:
            return ledger.count()

    def rows(self) -> Iterable[int]:
        """Yield the row of every record."""
        with open_ledger(self.place, "read") as ledger:
            yield from ledger.rows()

    def rows_after(self, row: int, limit: int) -> Sequence[int]:
        """Return the rows of up to `limit` records after `row`."""
        with open_ledger(self.place, "read") as ledger:
            return ledger.rows_after(row, limit)

    def rows_of(self, device: str) -> Sequence[int]:
        """Return the rows of the records of a device."""
        with open_ledger(self.place, "read") as ledger:
            return ledger.rows_of(device)

    def read(
        self, rows: Sequence[int], skipped: Callable[[SkippedRecord], object] = warn_of_skipped
    ) -> Iterator[tuple[int, int | None, RunRecord]]:
        """Yield the records of these rows: the row, when it was received (None: unknown), and the record without samples.

        One that cannot be read is left out, and `skipped` is called with it.
        """
        with open_ledger(self.place, "read") as ledger:
            for entry in ledger.records(rows=rows, skipped=skipped):
                yield entry.row, entry.received_ns, entry.record

    def one(self, row: int) -> RunRecord:
        """Return the record of a row with its raw samples; raises UnavailableError if it is not there any more."""
        with open_ledger(self.place, "read") as ledger:
            entry = next(ledger.records(with_samples=True, rows=[row]), None)
        if entry is None:
            raise UnavailableError(
                f"row {row} of the ledger {str(self.place)!r} cannot be read, or no longer exists: it was deleted because of its age"
            )
        return entry.record

    def devices(self) -> Sequence[DevicePresence]:
        """Return what devices reported."""
        with open_ledger(self.place, "read") as ledger:
            return ledger.devices()

    def retained(self) -> Sequence[RetainedMessage]:
        """Return what is measured now: the latest message of each topic."""
        with open_ledger(self.place, "read") as ledger:
            return ledger.retained()

    def identity(self) -> str:
        """Return the epoch of the ledger's rows: another ledger at the same place has another."""
        with open_ledger(self.place, "read") as ledger:
            return ledger.epoch()

    def version(self) -> str:
        """Return what changes with every commit."""
        return ledger_version(self.place)


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """Records read once; what cannot be read is left out."""

    records: Sequence[RunRecord]

    def last_row(self) -> int:
        """Return the number of records."""
        return len(self.records)

    highest_row = count = last_row

    def rows(self) -> Iterable[int]:
        """Return the row of every record."""
        return range(1, len(self.records) + 1)

    def rows_after(self, row: int, limit: int) -> Sequence[int]:
        """Return the rows of up to `limit` records after `row`."""
        return range(row + 1, min(row + limit, len(self.records)) + 1)

    def rows_of(self, device: str) -> Sequence[int]:
        """Return the rows of the records of a device."""
        return [row for row, record in enumerate(self.records, start=1) if record.device == device]

    def read(
        self, rows: Sequence[int], _skipped: Callable[[SkippedRecord], object] = warn_of_skipped
    ) -> Iterator[tuple[int, int | None, RunRecord]]:
        """Yield the records of these rows."""
        return ((row, None, self.records[row - 1]) for row in rows)

    def one(self, row: int) -> RunRecord:
        """Return the record of a row."""
        return self.records[row - 1]

    def devices(self) -> tuple[()]:
        """Return nothing: a document holds runs only."""
        return ()

    retained = devices

    def identity(self) -> str:
        """Return a name; nothing of a document is kept from one process to the next."""
        return "document"

    def version(self) -> str:
        """Return always the same: it was read once."""
        return ""


# Records in the order in which they came, by row.
RecordSource: TypeAlias = LedgerSource | DocumentSource


def source_of(store: RunStore) -> RecordSource:
    """Return the runs of a store: a ledger stays where it is, all else is read into memory."""
    return LedgerSource(store.place) if isinstance(store, LedgerStore) else DocumentSource(tuple(store.contents(with_samples=True).runs))
