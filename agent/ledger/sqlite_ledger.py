"""The ledger in a SQLite file: of this machine's own runs, and of a collector that shares its ledger with no other.

One `SqliteLedger` is one connection: use one object per thread. Readers and the one writer do not block each other (WAL).
"""

import itertools
import operator
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import RunRecord, decode, encode
from edgemeter.agent.ledger import presence, quarantine
from edgemeter.agent.ledger.chunks import (
    IDENTITY_MARK,
    SUBJECT_COLUMNS,
    Arrival,
    ArrivedBatch,
    Committed,
    HeldChunk,
    chunk_text,
    coalesce,
    is_position_of,
    unpack_chunk,
)
from edgemeter.agent.ledger.ledger import EVERY_RECORD, HeldRecord, LedgerFilter, LedgerStats
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT, LedgerWriter
from edgemeter.agent.ledger.presence import SessionHeld, read_sessions
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.retention import Retention, RetentionRemoved
from edgemeter.agent.ledger.sqlite_retention import apply_retention, bound_own
from edgemeter.agent.ledger.sqlite_stats import ledger_stats


@dataclass(slots=True)
class SqliteLedger:
    """The ledger file at `path`; access `write` creates it if absent, `read` changes nothing.

    Raises:
        ConfigError: the file is no ledger, or of a newer version (or absent, with access `read`).
        UnavailableError: it cannot be opened, or the disk is full.
    """

    path: Path
    access: sqlite_file.Access = "write"
    defers_checks: bool = field(init=False, default=True, repr=False)
    _connection: sqlite3.Connection = field(init=False, repr=False)
    _writer: LedgerWriter = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._connection = sqlite_file.connect(self.path, LEDGER_FORMAT, self.access)
        self._writer = LedgerWriter(self._connection)

    def __enter__(self) -> "SqliteLedger":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._connection.close()

    def commit(
        self,
        arrivals: Sequence[Arrival],
        rejections: Sequence[Rejection] = (),
        changes: Sequence[presence.PresenceChange | presence.RetainedMessage] = (),
        batches: Sequence[ArrivedBatch] = (),
    ) -> Committed:
        """Commit what arrived in one transaction, durable when this returns; return the outcome.

        A record whose number belongs to another record goes to the quarantine, as do the `rejections`; `changes` is what devices
        reported about themselves.

        Raises:
            UnavailableError: the disk is full; nothing is committed.
            TransientError: another process has locked the file; nothing is committed.
        """
        with sqlite_file.mapped(self.path, LEDGER_FORMAT), sqlite_file.transaction(self._connection):
            committed, collisions = self._writer.keep(arrivals, batches)
            quarantine.add(self._connection, [*rejections, *collisions])
            presence.note_presence(self._connection, changes)
        return committed

    def keep_own(self, record: RunRecord, limit_bytes: int) -> None:
        """Commit a run of this machine (numbered), durable when this returns; of its own runs the oldest beyond `limit_bytes` are removed.

        A run that the ledger holds already, because a collector received it, is not stored twice.

        Raises:
            ConfigError: another record has its number, or the file is damaged.
            UnavailableError: the disk is full.
            TransientError: another process has locked the file.
        """
        arrival = Arrival(record, encode(record), "", time.time_ns())
        with sqlite_file.mapped(self.path, LEDGER_FORMAT), sqlite_file.transaction(self._connection):
            committed, collisions = self._writer.keep([arrival], ())
            if collisions:
                raise ConfigError(f"run {record.id} is not stored in {str(self.path)!r}: {collisions[0].reason}")
            if committed.inserted:
                self._writer.mark_own(record)
                bound_own(self._connection, limit_bytes)

    def check(self, limit_chunks: int) -> list[Rejection] | None:
        """Validate records of which only the envelope was; return those that are invalid, now quarantined; None if none was left."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            if not self._connection.execute("SELECT 1 FROM unchecked LIMIT 1").fetchone():
                return None
            with sqlite_file.transaction(self._connection):
                rejections = self._writer.check(limit_chunks)
                quarantine.add(self._connection, rejections)
        return rejections

    def forget(self, retention: Retention, now_ns: int) -> RetentionRemoved:
        """Remove one slice of what `retention` does not keep; call again until all is removed; raises as `commit`."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT), sqlite_file.transaction(self._connection):
            return apply_retention(self._connection, retention, now_ns)

    def records(
        self, *, with_samples: bool = False, after_row: int = 0, limit: int | None = None, where: LedgerFilter = EVERY_RECORD
    ) -> Iterator[HeldRecord]:
        """Yield the records after `after_row` in the order of commits; without samples unless asked for.

        Raises:
            ConfigError: the file is damaged, or a record in it is of a newer schema.
        """
        for row, received_ns, payload, is_checked in self._texts(after_row, limit, where):
            try:
                record = decode(payload)
            except ConfigError:
                if is_checked:
                    raise
                # It will be quarantined.
                continue
            yield HeldRecord(
                row, received_ns, record if with_samples or not record.samples else msgspec.structs.replace(record, samples=())
            )

    def texts(self, *, after_row: int = 0, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Yield row, time of receipt in ns and JSON text of the records after `after_row`, in the order of commits; raises as `records`."""
        for row, received_ns, payload, _ in self._texts(after_row, limit, EVERY_RECORD):
            yield row, received_ns, payload

    def chunks(self, *, after_row: int = 0) -> Iterator[HeldChunk]:
        """Yield the records after `after_row`, as many together as are stored together; raises as `records`."""
        yield from self._chunks(after_row, None, EVERY_RECORD)

    def text(self, record: RunRecord | quarantine.RecordReference) -> bytes | None:
        """Return the stored JSON text of a record with its samples; None if it is not stored."""
        query = "SELECT place, body FROM runs JOIN chunks USING (chunk) WHERE device = ? AND session = ? AND seq = ? AND id = ?"
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            found = self._connection.execute(query, (record.device, record.session, record.seq, record.id)).fetchone()
            return unpack_chunk(found[1])[found[0]] if found else None

    def ranges(self, device: str, session: int) -> list[tuple[int, int]]:
        """Return the ranges of sequence numbers (inclusive) that the ledger holds of one session, in order."""
        query = "SELECT seq FROM runs WHERE device = ? AND session = ? ORDER BY seq"
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return coalesce(seq for (seq,) in self._connection.execute(query, (device, session)))

    def count(self) -> int:
        """Return how many records the ledger holds."""
        return int(self._value("SELECT count(*) FROM runs"))

    def last_row(self) -> int:
        """Return the row of the newest record, 0 if there is none."""
        return int(self._value("SELECT coalesce(max(row), 0) FROM runs"))

    def rows(self) -> Iterator[int]:
        """Yield the row of every record."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            for (row,) in self._connection.execute("SELECT row FROM runs"):
                yield row

    def identity(self) -> str:
        """Return the id of this ledger: random, created with the file, 16 hexadecimal digits."""
        return str(self._value("SELECT collector FROM identity"))

    def epoch(self) -> str:
        """Return the identity: rows of one file are never numbered differently."""
        return self.identity()

    def safety(self) -> str:
        """Return that the file is on one disk."""
        return "one disk"

    def stall(self) -> str | None:
        """Return nothing: a file waits for its disk."""
        return None

    def lease(self, work: str) -> bool:  # noqa: ARG002 - the protocol's
        """Return that this process has it: one collector at a time uses the file."""
        return True

    def position(self, sink: str) -> int:
        """Return the row up to which `sink` has every record, 0 at first."""
        return max((position for name, position in self.positions().items() if is_position_of(sink, name)), default=0)

    def advance(self, sink: str, position: int, rejections: Sequence[Rejection] = (), *, after: int | None = None) -> bool:
        """Record that `sink` has every record up to row `position`, except the `rejections`, which are quarantined.

        If `after` is given and is not the position now, somebody has set it back meanwhile: it stays, and False is returned.
        """
        statement = "INSERT INTO sinks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET position = excluded.position"
        with sqlite_file.mapped(self.path, LEDGER_FORMAT), sqlite_file.transaction(self._connection):
            quarantine.add(self._connection, rejections)
            held = dict(self._connection.execute("SELECT name, position FROM sinks"))
            name = next((name for name in held if is_position_of(sink, name)), sink)
            is_expected = after is None or held.get(name, 0) == after
            if is_expected:
                self._connection.execute(statement, (name, position))
        return is_expected

    def claim_position(self, sink: str, identity: str) -> None:
        """Bind the position of `sink`, an address, to the bucket that is there now: another one there begins at row 0.

        A bucket that moved from another address keeps its position; a position from before identities were known is this bucket's.
        """
        wanted = f"{sink}{IDENTITY_MARK}{identity}"
        with sqlite_file.mapped(self.path, LEDGER_FORMAT), sqlite_file.transaction(self._connection):
            held = dict(self._connection.execute("SELECT name, position FROM sinks"))
            if wanted in held:
                return
            moved = next((name for name in held if name.endswith(f"{IDENTITY_MARK}{identity}")), sink)
            self._connection.executemany("DELETE FROM sinks WHERE name = ?", [(name,) for name in held if is_position_of(sink, name)])
            self._connection.execute("DELETE FROM sinks WHERE name = ?", (moved,))
            self._connection.execute("INSERT INTO sinks VALUES (?, ?)", (wanted, held.get(moved, 0)))

    def set_back(self, name: str, since_ns: int | None) -> int:
        """Set the position `name` back to before what was received since then (None: to the beginning); return how many records follow."""
        query = "SELECT coalesce(min(row) - 1, (SELECT max(row) FROM runs), 0) FROM runs JOIN chunks USING (chunk) WHERE received_ns >= ?"
        with sqlite_file.mapped(self.path, LEDGER_FORMAT), sqlite_file.transaction(self._connection):
            row = 0 if since_ns is None else int(self._connection.execute(query, (since_ns,)).fetchone()[0])
            self._connection.execute("UPDATE sinks SET position = min(position, ?) WHERE name = ?", (row, name))
        return self.behind(name)

    def behind(self, name: str) -> int:
        """Return how many records lie behind the position `name`."""
        return int(self._value("SELECT count(*) FROM runs WHERE row > (SELECT position FROM sinks WHERE name = ?)", name))

    def waiting_since_ns(self, position: int) -> int | None:
        """Return when the oldest record after row `position` was received, UTC in ns; None if there is none."""
        query = "SELECT received_ns FROM runs JOIN chunks USING (chunk) WHERE row > ? ORDER BY row LIMIT 1"
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            found = self._connection.execute(query, (position,)).fetchone()
        return int(found[0]) if found else None

    def quarantined(self) -> list[quarantine.QuarantinedMessage]:
        """Return the quarantined messages, oldest first."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return quarantine.read(self._connection)

    def quarantined_count(self) -> int:
        """Return how many messages are quarantined."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return quarantine.count(self._connection)

    def release(self, row: int, arrivals: Sequence[Arrival], batches: Sequence[ArrivedBatch], *, drain_again: bool) -> Committed:
        """Commit the records of a quarantined entry and remove it, unless a number belongs to another record.

        With `drain_again` a record that is stored already gets a new row, so that every sink receives it again.
        """
        with sqlite_file.mapped(self.path, LEDGER_FORMAT), sqlite_file.transaction(self._connection):
            if drain_again:
                self._writer.drop([one.record for one in arrivals])
            committed, _ = self._writer.keep(arrivals, batches)
            if not committed.collisions:
                quarantine.remove(self._connection, row)
        return committed

    def sessions(self) -> list[SessionHeld]:
        """Return what is stored of every session of every device, and how many of its numbers are missing."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return read_sessions(self._connection)

    def positions(self) -> dict[str, int]:
        """Return the row that each sink has reached, by its name."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return dict(self._connection.execute("SELECT name, position FROM sinks"))

    def devices(self) -> list[presence.DevicePresence]:
        """Return every device that reported its presence, by fleet and name."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return presence.read_devices(self._connection)

    def retained(self) -> list[presence.RetainedMessage]:
        """Return what is measured now: the latest message of each topic, by topic."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return presence.read_retained(self._connection)

    def stats(self) -> LedgerStats:
        """Return the ledger in numbers, without reading records."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return ledger_stats(self._connection, self.path)

    def size_bytes(self) -> int:
        """Return the size of the file."""
        return self.path.stat().st_size

    def _value(self, query: str, *parameters: object) -> Any:
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            return self._connection.execute(query, parameters).fetchone()[0]

    def _texts(self, after_row: int, limit: int | None, where: LedgerFilter) -> Iterator[tuple[int, int, bytes, bool]]:
        for held in self._chunks(after_row, limit, where):
            for row, payload in held.payloads():
                yield row, held.received_ns, payload, held.is_checked

    def _chunks(self, after_row: int, limit: int | None, where: LedgerFilter) -> Iterator[HeldChunk]:
        wanted = where.wanted()
        conditions = "".join(f" AND {name} = ?" for name in wanted)
        joined = " JOIN subjects USING (subject)" if wanted.keys() & set(SUBJECT_COLUMNS) else ""
        query = f"SELECT row, place, chunk FROM runs{joined} WHERE row > ?{conditions} ORDER BY row LIMIT ?"  # noqa: S608 - our own names
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            found = self._connection.execute(query, (after_row, *wanted.values(), -1 if limit is None else limit))
            for chunk, rows in itertools.groupby(found, operator.itemgetter(2)):
                received_ns, text, is_checked = self._chunk(chunk)
                yield HeldChunk([(row, place) for row, place, _ in rows], received_ns, text, is_checked)

    def _chunk(self, chunk: int) -> tuple[int, bytes, bool]:
        query = "SELECT received_ns, body, NOT EXISTS (SELECT 1 FROM unchecked WHERE chunk = ?) FROM chunks WHERE chunk = ?"
        received_ns, body, is_checked = self._connection.execute(query, (chunk, chunk)).fetchone()
        return received_ns, chunk_text(body), bool(is_checked)
