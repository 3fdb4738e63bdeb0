"""The ledger in a SQLite file: of this machine's own runs, and of a collector that shares its ledger with no other.

One `SqliteLedger` is one connection: use one object per thread. Readers and the one writer do not block each other (WAL).
"""

import itertools
import operator
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
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
from edgemeter.agent.ledger.ledger import EVERY_RECORD, GROWTH_DAYS, HeldRecord, LedgerFilter, LedgerPart, LedgerStats
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT, LedgerWriter
from edgemeter.agent.ledger.presence import SessionHeld, read_sessions
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.retention import Retention, RetentionRemoved, apply_retention, bound_own

_CHUNK = "SELECT received_ns, body, NOT EXISTS (SELECT 1 FROM unchecked WHERE chunk = ?) FROM chunks WHERE chunk = ?"


class SqliteLedger(sqlite_file.Database):
    """The ledger file at `path`; access `write` creates it if absent, `read` changes nothing. For its methods see `Ledger`.

    Raises:
        ConfigError: the file is no ledger, or of a newer version (or absent, with access `read`).
        UnavailableError: it cannot be opened, or the disk is full.
    """

    defers_checks = True

    def __init__(self, path: Path, access: sqlite_file.Access = "write") -> None:
        super().__init__(path, LEDGER_FORMAT, access)
        # Tuples take less time than named rows, and a ledger has many.
        self.connection.row_factory = None
        self._writer = LedgerWriter(self.connection)

    def commit(
        self,
        arrivals: Sequence[Arrival],
        rejections: Sequence[Rejection] = (),
        changes: Sequence[presence.PresenceChange | presence.RetainedMessage] = (),
        batches: Sequence[ArrivedBatch] = (),
    ) -> Committed:
        """See `Ledger`; `TransientError`: another process has locked the file."""
        with self.transaction() as connection:
            committed, collisions = self._writer.keep(arrivals, batches)
            quarantine.add(connection, [*rejections, *collisions])
            presence.note_presence(connection, changes)
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
        with self.transaction() as connection:
            committed, collisions = self._writer.keep([arrival], ())
            if collisions:
                raise ConfigError(f"run {record.id} is not stored in {str(self.path)!r}: {collisions[0].reason}")
            if committed.inserted:
                # Its chunk holds nothing else.
                chunk = "(SELECT chunk FROM runs WHERE device = ? AND session = ? AND seq = ?)"
                key = (record.device, record.session, record.seq)
                connection.execute(f"UPDATE chunks SET is_own = 1 WHERE chunk = {chunk}", key)  # noqa: S608 - our own words
                bound_own(connection, limit_bytes)

    def check(self, limit_chunks: int) -> list[Rejection] | None:
        """Validate records of which only the envelope was; return those that are invalid, now quarantined; None if none was left."""
        with self.mapped() as connection:
            if not connection.execute("SELECT 1 FROM unchecked LIMIT 1").fetchone():
                return None
            with sqlite_file.transaction(connection):
                rejections = self._writer.check(limit_chunks)
                quarantine.add(connection, rejections)
        return rejections

    def forget(self, retention: Retention, now_ns: int) -> RetentionRemoved:
        """Remove one slice of what `retention` does not keep; call again until all is removed; raises as `commit`."""
        with self.transaction() as connection:
            return apply_retention(connection, retention, now_ns)

    def records(
        self, *, with_samples: bool = False, after_row: int = 0, limit: int | None = None, where: LedgerFilter = EVERY_RECORD
    ) -> Iterator[HeldRecord]:
        """See `Ledger`; a record that is not checked yet and turns out to be invalid is left out: it will be quarantined."""
        for row, received_ns, payload, is_checked in self._texts(after_row, limit, where):
            try:
                record = decode(payload)
            except ConfigError:
                if is_checked:
                    raise
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
        rows = self.query(query, record.device, record.session, record.seq, record.id)
        return next((unpack_chunk(body)[index] for index, body in rows), None)

    def ranges(self, device: str, session: int) -> list[tuple[int, int]]:
        """Return the ranges of sequence numbers (inclusive) that the ledger holds of one session, in order."""
        query = "SELECT seq FROM runs WHERE device = ? AND session = ? ORDER BY seq"
        return coalesce(seq for (seq,) in self.query(query, device, session))

    def count(self) -> int:
        """Return how many records the ledger holds."""
        return self._count("runs")

    def last_row(self) -> int:
        """Return the row of the newest record, 0 if there is none."""
        return int(self._value("SELECT coalesce(max(row), 0) FROM runs"))

    def rows(self) -> Iterator[int]:
        """Yield the row of every record."""
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            for (row,) in self.connection.execute("SELECT row FROM runs"):
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
        """See `Ledger`."""
        statement = "INSERT INTO sinks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET position = excluded.position"
        with self.transaction() as connection:
            quarantine.add(connection, rejections)
            positions = dict(connection.execute("SELECT name, position FROM sinks"))
            name = next((name for name in positions if is_position_of(sink, name)), sink)
            is_expected = after is None or positions.get(name, 0) == after
            if is_expected:
                connection.execute(statement, (name, position))
        return is_expected

    def claim_position(self, sink: str, identity: str) -> None:
        """See `Ledger`."""
        claimed = f"{sink}{IDENTITY_MARK}{identity}"
        with self.transaction() as connection:
            positions = dict(connection.execute("SELECT name, position FROM sinks"))
            if claimed in positions:
                return
            moved = next((name for name in positions if name.endswith(f"{IDENTITY_MARK}{identity}")), sink)
            connection.executemany("DELETE FROM sinks WHERE name = ?", [(name,) for name in positions if is_position_of(sink, name)])
            connection.execute("DELETE FROM sinks WHERE name = ?", (moved,))
            connection.execute("INSERT INTO sinks VALUES (?, ?)", (claimed, positions.get(moved, 0)))

    def set_back(self, name: str, since_ns: int | None) -> int:
        """Set the position `name` back to before what was received since then (None: to the beginning); return how many records follow."""
        query = "SELECT coalesce(min(row) - 1, (SELECT max(row) FROM runs), 0) FROM runs JOIN chunks USING (chunk) WHERE received_ns >= ?"
        with self.transaction() as connection:
            row = 0 if since_ns is None else int(connection.execute(query, (since_ns,)).fetchone()[0])
            connection.execute("UPDATE sinks SET position = min(position, ?) WHERE name = ?", (row, name))
        return self.behind(name)

    def behind(self, name: str) -> int:
        """Return how many records lie behind the position `name`."""
        return int(self._value("SELECT count(*) FROM runs WHERE row > (SELECT position FROM sinks WHERE name = ?)", name))

    def waiting_since_ns(self, position: int) -> int | None:
        """Return when the oldest record after row `position` was received, UTC in ns; None if there is none."""
        query = "SELECT received_ns FROM runs JOIN chunks USING (chunk) WHERE row > ? ORDER BY row LIMIT 1"
        rows = self.query(query, position)
        return int(rows[0][0]) if rows else None

    def quarantined(self) -> list[quarantine.QuarantinedMessage]:
        """Return the quarantined messages, oldest first."""
        query = "SELECT row, topic, payload, size_bytes, reason, received_ns, last_ns, times FROM quarantine ORDER BY row"
        return [quarantine.QuarantinedMessage(*row) for row in self.query(query)]

    def quarantined_count(self) -> int:
        """Return how many messages are quarantined."""
        return self._count("quarantine")

    def release(self, row: int, arrivals: Sequence[Arrival], batches: Sequence[ArrivedBatch], *, drain_again: bool) -> Committed:
        """See `Ledger`."""
        with self.transaction() as connection:
            if drain_again:
                self._writer.drop([arrival.record for arrival in arrivals])
            committed, _ = self._writer.keep(arrivals, batches)
            if not committed.collisions:
                connection.execute("DELETE FROM quarantine WHERE row = ?", (row,))
        return committed

    def sessions(self) -> list[SessionHeld]:
        """Return what is stored of every session of every device, and how many of its numbers are missing."""
        with self.mapped() as connection:
            return read_sessions(connection)

    def positions(self) -> dict[str, int]:
        """Return the row that each sink has reached, by its name."""
        return {name: position for name, position in self.query("SELECT name, position FROM sinks ORDER BY name")}  # noqa: C416 - typed as rows

    def devices(self) -> list[presence.DevicePresence]:
        """Return every device that reported its presence, by fleet and name."""
        query = "SELECT fleet, device, state, session, birth, changed_ns, health FROM presence ORDER BY fleet, device"
        return [presence.present_device(*row) for row in self.query(query)]

    def retained(self) -> list[presence.RetainedMessage]:
        """Return what is measured now: the latest message of each topic, by topic."""
        return [presence.RetainedMessage(*row) for row in self.query("SELECT topic, payload, received_ns FROM retained ORDER BY topic")]

    def stats(self) -> LedgerStats:
        """See `Ledger`."""
        first_ns, last_ns, chunks = self.query("SELECT min(received_ns), max(received_ns), count(*) FROM chunks")[0]
        kinds = self.query("SELECT device, subject, verdict, count(*) FROM runs GROUP BY device, subject, verdict")
        verdicts: Counter[str] = Counter()
        for _, _, verdict, count in sorted(kinds, key=operator.itemgetter(2)):
            verdicts[verdict] += count
        return LedgerStats(
            path=str(self.path),
            runs=verdicts.total(),
            devices=len({device for device, *_ in kinds}),
            cases=len({(device, subject) for device, subject, *_ in kinds}),
            verdicts=dict(verdicts),
            first_received_ns=first_ns,
            last_received_ns=last_ns,
            chunks=chunks,
            chunks_with_samples=self._count("chunks WHERE has_samples"),
            quarantined=self.quarantined_count(),
            sinks=self.positions(),
            last_row=self.last_row(),
            growth_bytes_per_day=self._growth(last_ns),
            parts=self._parts(),
        )

    def _growth(self, last_ns: int | None) -> float | None:
        if last_ns is None:
            return None
        query = "SELECT coalesce(sum(length(body)), 0), min(received_ns) FROM chunks WHERE received_ns > ?"
        size_bytes, first_ns = self.query(query, last_ns - GROWTH_DAYS * NS_PER_DAY)[0]
        days = (last_ns - first_ns) / NS_PER_DAY
        return float(size_bytes / days) if days >= 1 else None

    def _parts(self) -> tuple[LedgerPart, ...]:
        used_bytes, free_bytes = sqlite_file.space_bytes(self.connection)
        query = "SELECT has_samples, sum(length(body)) FROM chunks GROUP BY has_samples"
        sizes: dict[int, int] = {has_samples: size_bytes for has_samples, size_bytes in self.query(query)}  # noqa: C416 - as above
        wal = self.path.with_name(f"{self.path.name}-wal")
        return (
            LedgerPart("records with raw samples", sizes.get(1, 0)),
            LedgerPart("records without raw samples", sizes.get(0, 0)),
            LedgerPart("rows, indexes, quarantine and the rest", max(0, used_bytes - sum(sizes.values()))),
            LedgerPart("free, to be reused", free_bytes),
            LedgerPart("not written back yet (WAL)", wal.stat().st_size if wal.exists() else 0),
        )

    def size_bytes(self) -> int:
        """Return the size of the file."""
        return self.path.stat().st_size

    def _value(self, query: str, *parameters: object) -> Any:
        return self.query(query, *parameters)[0][0]

    def _count(self, rows: str) -> int:
        return int(self._value(f"SELECT count(*) FROM {rows}"))  # noqa: S608 - our own names

    def _texts(self, after_row: int, limit: int | None, where: LedgerFilter) -> Iterator[tuple[int, int, bytes, bool]]:
        for chunk in self._chunks(after_row, limit, where):
            for row, payload in chunk.payloads():
                yield row, chunk.received_ns, payload, chunk.is_checked

    def _chunks(self, after_row: int, limit: int | None, where: LedgerFilter) -> Iterator[HeldChunk]:
        values = where.wanted()
        conditions = "".join(f" AND {name} = ?" for name in values)
        joined = " JOIN subjects USING (subject)" if values.keys() & set(SUBJECT_COLUMNS) else ""
        query = f"SELECT row, place, chunk FROM runs{joined} WHERE row > ?{conditions} ORDER BY row LIMIT ?"  # noqa: S608 - our own names
        # Not `self.mapped`: whoever goes on with the iteration must not hold the file.
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            matches = self.connection.execute(query, (after_row, *values.values(), -1 if limit is None else limit))
            for chunk, rows in itertools.groupby(matches, operator.itemgetter(2)):
                received_ns, body, is_checked = self.connection.execute(_CHUNK, (chunk, chunk)).fetchone()
                yield HeldChunk([(row, index) for row, index, _ in rows], received_ns, chunk_text(body), bool(is_checked))
