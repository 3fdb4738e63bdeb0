"""Where the page reads records from: the collector's ledger, or documents that `edgemeter run --json` printed."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.runs.store import LedgerStore, open_store


class RecordSource(Protocol):
    """Records in the order in which they came, by row. Called from any thread."""

    def last_row(self) -> int:
        """Return the row of the newest record, 0 when there is none."""
        ...

    def after(self, row: int, limit: int) -> Iterator[tuple[int, RunRecord]]:
        """Yield up to `limit` records after `row` with their rows."""
        ...

    def one(self, row: int) -> RunRecord:
        """Return the record of a row with its raw samples.

        Raises:
            UnavailableError: it is not there any more.
        """
        ...

    def devices(self) -> Sequence[DevicePresence]:
        """Return what devices reported."""
        ...

    def identity(self) -> str:
        """Return the identity of this source: another one at the same place has another."""
        ...

    def version(self) -> str:
        """Return what changes whenever something is written to it."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """The ledger at `path`, opened to read for each call: a running collector is not disturbed."""

    path: Path

    def last_row(self) -> int:
        """Return the row of the newest record."""
        with Ledger(self.path, "read") as ledger:
            return ledger.last_row()

    def after(self, row: int, limit: int) -> Iterator[tuple[int, RunRecord]]:
        """Yield up to `limit` records after `row`, with their samples."""
        with Ledger(self.path, "read") as ledger:
            for held in ledger.records(with_samples=True, after_row=row, limit=limit):
                yield held.row, held.record

    def one(self, row: int) -> RunRecord:
        """Return the record of a row with its raw samples."""
        found = next(iter(self.after(row - 1, 1)), None)
        if found is None or found[0] != row:
            raise UnavailableError(f"row {row} of the ledger {str(self.path)!r} no longer exists: it was deleted because of its age")
        return found[1]

    def devices(self) -> Sequence[DevicePresence]:
        """Return what devices reported."""
        with Ledger(self.path, "read") as ledger:
            return ledger.devices()

    def identity(self) -> str:
        """Return the name of the ledger's collector."""
        with Ledger(self.path, "read") as ledger:
            return ledger.collector_id()

    def version(self) -> str:
        """Return when the file, or the journal beside it, was last written."""
        stamps = []
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            with contextlib.suppress(OSError):
                stamps.append(f"{path.stat().st_mtime_ns} {path.stat().st_size}")
        return " ".join(stamps)


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """Records read once; what cannot be read is left out."""

    records: Sequence[RunRecord]

    def last_row(self) -> int:
        """Return the number of records."""
        return len(self.records)

    def after(self, row: int, limit: int) -> Iterator[tuple[int, RunRecord]]:
        """Yield up to `limit` records after `row`."""
        yield from enumerate(self.records[row : row + limit], start=row + 1)

    def one(self, row: int) -> RunRecord:
        """Return the record of a row."""
        return self.records[row - 1]

    def devices(self) -> Sequence[DevicePresence]:
        """Return nothing: a document holds runs only."""
        return ()

    def identity(self) -> str:
        """Return a name; nothing of a document is kept from one process to the next."""
        return "document"

    def version(self) -> str:
        """Return always the same: it was read once."""
        return ""


def open_source(where: Sequence[str]) -> RecordSource:
    """Return the source at `where`: one ledger, or documents (and ledgers) read into memory.

    Raises:
        ConfigError: a file is absent, or not ours.
    """
    store = open_store(*where)
    if isinstance(store, LedgerStore):
        return LedgerSource(store.path)
    return DocumentSource(tuple(store.contents(with_samples=True).runs))
