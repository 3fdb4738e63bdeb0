"""The ledger: the collector's own store. What it has committed it holds, and may say so in a receipt.

One `Ledger` is one SQLite connection: use one object per thread. Readers and the one writer do not wait for each other (WAL).
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType

import msgspec

from edgemeter.agent import records
from edgemeter.agent.delivery import sqlite_file
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import chunks, gaps, presence, quarantine
from edgemeter.collector.keep import retention as retention_steps
from edgemeter.collector.keep.arrival import Arrival, Shipment
from edgemeter.collector.keep.ledger_file import FORMAT, SUBJECT_COLUMNS
from edgemeter.collector.keep.ledger_writer import COLLISION, Committed, Key, LedgerWriter
from edgemeter.collector.keep.quarantine import Rejection
from edgemeter.collector.keep.retention import Gone, Retention

__all__ = ["COLLISION", "EVERYTHING", "FORMAT", "Arrival", "Committed", "Filter", "Held", "Key", "Ledger", "Shipment", "coalesce"]


@dataclass(frozen=True, slots=True)
class Held:
    """One record in the ledger; `row` rises in the order of commits."""

    row: int
    received_ns: int
    record: RunRecord


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records: a field that is not None has to be equal."""

    device: str | None = None
    fleet: str | None = None
    role: str | None = None
    model: str | None = None
    runtime: str | None = None
    precision: str | None = None
    task: str | None = None
    dataset_sha256: str | None = None
    scenario: str | None = None
    verdict: str | None = None


EVERYTHING = Filter()


@dataclass(slots=True)
class Ledger:
    """The ledger file at `path`; access `write` makes it when absent, `read` refuses then and changes nothing.

    Raises:
        ConfigError: the file is not a ledger, or of a newer version (or absent, access `read`).
        UnavailableError: it may not be opened, or the disk is full.
    """

    path: Path
    access: sqlite_file.Access = "write"
    _connection: sqlite3.Connection = field(init=False, repr=False)
    _writer: LedgerWriter = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._connection = sqlite_file.connect(self.path, FORMAT, self.access)
        self._writer = LedgerWriter(self._connection)

    def __enter__(self) -> "Ledger":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; may be called twice."""
        self._connection.close()

    def commit(
        self,
        batch: Sequence[Arrival],
        rejections: Sequence[Rejection] = (),
        changes: Sequence[presence.Change] = (),
        shipments: Sequence[Shipment] = (),
    ) -> Committed:
        """Keep what came in one transaction, on the disk when this returns; return what became of it.

        A record whose number another record holds goes to the quarantine, as do the `rejections`; `changes` is what devices said
        of themselves.

        Raises:
            UnavailableError: the disk is full; nothing of it is kept.
            TransientError: another process holds the file; nothing of it is kept.
        """
        with sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            committed, collisions = self._writer.keep(batch, shipments)
            quarantine.add(self._connection, [*rejections, *collisions])
            presence.note(self._connection, changes)
        return committed

    def check(self, limit_chunks: int) -> list[Rejection] | None:
        """Look at records whole that came when there was no time for it; those that are none go to the quarantine and are returned.

        Returns None when there was nothing left to look at.
        """
        with sqlite_file.mapped(self.path, FORMAT):
            if not self._connection.execute("SELECT 1 FROM unchecked LIMIT 1").fetchone():
                return None
            with sqlite_file.transaction(self._connection):
                rejections = self._writer.check(limit_chunks)
                quarantine.add(self._connection, rejections)
        return rejections

    def forget(self, retention: Retention, now_ns: int) -> Gone:
        """Take out some of what is too old or too much; call it again until all has gone.

        Raises:
            UnavailableError: the disk is full; nothing has gone.
            TransientError: another process holds the file; as above.
        """
        with sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            return retention_steps.run(self._connection, retention, now_ns)

    def records(
        self, *, with_samples: bool = False, after_row: int = 0, limit: int | None = None, where: Filter = EVERYTHING
    ) -> Iterator[Held]:
        """Yield the records after `after_row` in the order of commits; without samples unless asked for.

        Raises:
            ConfigError: the file is damaged, or a record in it is of a newer schema.
        """
        for row, received_ns, payload, is_checked in self._texts(after_row, limit, where):
            try:
                record = records.decode(payload)
            except ConfigError:
                if is_checked:
                    raise
                # It is about to go to the quarantine.
                continue
            yield Held(row, received_ns, record if with_samples or not record.samples else msgspec.structs.replace(record, samples=()))

    def texts(self, *, after_row: int = 0, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Yield row, time of receipt in ns and JSON text of the records after `after_row`, in the order of commits.

        Raises:
            ConfigError: the file is damaged.
        """
        for row, received_ns, payload, _ in self._texts(after_row, limit, EVERYTHING):
            yield row, received_ns, payload

    def payloads(self, *, after_row: int = 0) -> Iterator[tuple[int, int, bytes, bool]]:
        """Yield row, time of receipt in ns, JSON text and whether it was looked at whole, of the records after `after_row`, in order.

        Raises:
            ConfigError: the file is damaged.
        """
        yield from self._texts(after_row, None, EVERYTHING)

    def text(self, record: RunRecord) -> bytes | None:
        """Return the JSON text held of a record, samples and all; None where it is not held.

        Raises:
            ConfigError: the file is damaged.
        """
        query = "SELECT chunk, place FROM runs WHERE device = ? AND session = ? AND seq = ? AND id = ?"
        with sqlite_file.mapped(self.path, FORMAT):
            found = self._connection.execute(query, (record.device, record.session, record.seq, record.id)).fetchone()
            return self._chunk(found[0])[1][found[1]] if found else None

    def ranges(self, device: str, session: int) -> list[tuple[int, int]]:
        """Return the ranges of sequence numbers (both ends included) that the ledger holds of one session, in order."""
        query = "SELECT seq FROM runs WHERE device = ? AND session = ? ORDER BY seq"
        with sqlite_file.mapped(self.path, FORMAT):
            return coalesce(seq for (seq,) in self._connection.execute(query, (device, session)))

    def count(self) -> int:
        """Return how many records the ledger holds."""
        with sqlite_file.mapped(self.path, FORMAT):
            return int(self._connection.execute("SELECT count(*) FROM runs").fetchone()[0])

    def last_row(self) -> int:
        """Return the row of the newest record, 0 when there is none."""
        with sqlite_file.mapped(self.path, FORMAT):
            return int(self._connection.execute("SELECT coalesce(max(row), 0) FROM runs").fetchone()[0])

    def collector_id(self) -> str:
        """Return the name of this ledger's collector: random, made with the file, 16 hexadecimal digits."""
        with sqlite_file.mapped(self.path, FORMAT):
            return str(self._connection.execute("SELECT collector FROM identity").fetchone()[0])

    def position(self, sink: str) -> int:
        """Return the row up to which `sink` has everything, 0 at first."""
        with sqlite_file.mapped(self.path, FORMAT):
            found = self._connection.execute("SELECT position FROM sinks WHERE name = ?", (sink,)).fetchone()
        return int(found[0]) if found else 0

    def advance(self, sink: str, position: int, rejections: Sequence[Rejection] = ()) -> None:
        """Note that `sink` has everything up to row `position`, but for what `rejections` put into the quarantine."""
        statement = "INSERT INTO sinks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET position = excluded.position"
        with sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            quarantine.add(self._connection, rejections)
            self._connection.execute(statement, (sink, position))

    def quarantined(self) -> list[quarantine.Quarantined]:
        """Return what lies in the quarantine, oldest first."""
        with sqlite_file.mapped(self.path, FORMAT):
            return quarantine.read(self._connection)

    def quarantined_count(self) -> int:
        """Return how many entries lie in the quarantine."""
        with sqlite_file.mapped(self.path, FORMAT):
            return quarantine.count(self._connection)

    def release(self, row: int, arrivals: Sequence[Arrival], shipments: Sequence[Shipment], *, anew: bool) -> Committed:
        """Take an entry out of the quarantine and keep the records that it held, unless another record holds one's number.

        With `anew` a record that is held already gets a new row: every sink gets it again.
        """
        with sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            if anew:
                self._writer.drop([one.record for one in arrivals])
            committed, _ = self._writer.keep(arrivals, shipments)
            if not committed.collisions:
                quarantine.remove(self._connection, row)
        return committed

    def sessions(self) -> list[gaps.SessionHeld]:
        """Return what is held of every session of every device, and how many of its numbers are missing."""
        with sqlite_file.mapped(self.path, FORMAT):
            return gaps.read(self._connection)

    def positions(self) -> dict[str, int]:
        """Return the row that each sink has reached, by its name."""
        with sqlite_file.mapped(self.path, FORMAT):
            return dict(self._connection.execute("SELECT name, position FROM sinks"))

    def devices(self) -> list[presence.Device]:
        """Return every device that said something of itself, by fleet and name."""
        with sqlite_file.mapped(self.path, FORMAT):
            return presence.read(self._connection)

    def _texts(self, after_row: int, limit: int | None, where: Filter) -> Iterator[tuple[int, int, bytes, bool]]:
        wanted = {f.name: value for f in fields(where) if (value := getattr(where, f.name)) is not None}
        conditions = "".join(f" AND {name} = ?" for name in wanted)
        joined = " JOIN subjects USING (subject)" if wanted.keys() & set(SUBJECT_COLUMNS) else ""
        query = f"SELECT row, chunk, place FROM runs{joined} WHERE row > ?{conditions} ORDER BY row LIMIT ?"  # noqa: S608 - our own names
        last: int | None = None
        with sqlite_file.mapped(self.path, FORMAT):
            for row, chunk, place in self._connection.execute(query, (after_row, *wanted.values(), -1 if limit is None else limit)):
                if chunk != last:
                    received_ns, payloads, is_checked = self._chunk(chunk)
                    last = chunk
                yield row, received_ns, payloads[place], is_checked

    def _chunk(self, chunk: int) -> tuple[int, list[bytes], bool]:
        query = "SELECT received_ns, body, NOT EXISTS (SELECT 1 FROM unchecked WHERE chunk = ?) FROM chunks WHERE chunk = ?"
        received_ns, body, is_checked = self._connection.execute(query, (chunk, chunk)).fetchone()
        return received_ns, chunks.unpack(body), bool(is_checked)


def coalesce(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return sorted numbers as ranges, both ends included: 1, 2, 3, 7 -> (1, 3), (7, 7)."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
