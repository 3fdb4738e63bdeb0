"""The ledger in a SQLite file.

It is of this machine's own runs, or of a collector that does not share its ledger.

One `SqliteLedger` is one connection: use one object per thread. Readers and the one writer do not
block each other (WAL).
"""

import itertools
import operator
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import RunRecord, encode
from edgemeter.agent.ledger.chunks import (
    Arrival,
    ArrivedBatch,
    Committed,
    HeldChunk,
    arrived,
    chunk_text,
)
from edgemeter.agent.ledger.ledger import Ledger, LedgerPart
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT, LedgerWriter
from edgemeter.agent.ledger.run_row import ROWS_VERSION, RUNS_SCHEMA, SUBJECTS_SCHEMA

if TYPE_CHECKING:
    from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage
    from edgemeter.agent.ledger.quarantine import Rejection
    from edgemeter.agent.ledger.retention import Retention, RetentionRemoved


class SqliteLedger(sqlite_file.Database, Ledger):
    """The ledger file at `path`; access `write` creates it if absent, `read` changes nothing.

    For its methods see `Ledger`.

    Raises:
        ConfigError: the file is not a ledger, or of another version (or absent, with access
            `read`).
        UnavailableError: it cannot be opened, or the disk is full.
    """

    def __init__(self, path: Path, access: sqlite_file.Access = "write") -> None:
        super().__init__(path, LEDGER_FORMAT, access)
        self.where = str(path)
        # Tuples are faster than named rows, and a ledger has many.
        self.connection.row_factory = None
        self._writer = LedgerWriter(self.connection)
        try:
            self._check_rows(access)
        except BaseException:
            self.close()
            raise

    def _check_rows(self, access: sqlite_file.Access) -> None:
        """Rebuild the rows if another version of Edgemeter made them.

        Raises:
            ConfigError: nothing may be written.
        """
        query = "SELECT rows FROM identity"
        if self.query(query)[0][0] == ROWS_VERSION:
            return
        if access == "read":
            raise ConfigError(
                f"the figures in the ledger {str(self.path)!r} are of another version of "
                "edgemeter: `edgemeter collector up`, or a run that is stored here, rebuilds them "
                "from the records"
            )
        import logging  # noqa: PLC0415 - after an update only

        # It is needed after an update only.
        from edgemeter.agent.ledger.rows_anew import make_rows_anew  # noqa: PLC0415

        with self.transaction() as connection:
            # Another process may have rebuilt them meanwhile.
            if connection.execute(query).fetchone()[0] != ROWS_VERSION:
                logging.getLogger(__name__).warning(
                    "the figures in %s are of another version of edgemeter, and are "
                    "rebuilt from the records",
                    self.path,
                )
                (highest,) = connection.execute(
                    "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'runs'"
                ).fetchone()
                make_rows_anew(connection, SUBJECTS_SCHEMA + RUNS_SCHEMA)
                # The number of a removed row is not used again.
                connection.execute("DELETE FROM sqlite_sequence WHERE name = 'runs'")
                connection.execute("INSERT INTO sqlite_sequence VALUES ('runs', ?)", (highest,))
                connection.execute("UPDATE identity SET rows = ?", (ROWS_VERSION,))

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        return self.transaction()

    def commit(
        self,
        arrivals: Sequence[Arrival],
        rejections: "Sequence[Rejection]" = (),
        changes: "Sequence[PresenceChange | RetainedMessage]" = (),
        batches: Sequence[ArrivedBatch] = (),
    ) -> Committed:
        # Reading needs neither.
        from edgemeter.agent.ledger import presence, quarantine  # noqa: PLC0415

        with self.transaction() as connection:
            committed, collisions = self._writer.keep(arrivals, batches)
            quarantine.add(connection, [*rejections, *collisions])
            presence.note_presence(connection, changes)
        return committed

    def keep_own(self, record: RunRecord, limit_bytes: int) -> None:
        """Commit a run of this machine (numbered), durable when this returns.

        The oldest of its own runs beyond `limit_bytes` are removed.

        A run that the ledger already received as a collector is not stored twice.

        Raises:
            ConfigError: another record has its number, or the file is damaged.
            UnavailableError: the disk is full.
            TransientError: another process has locked the file.
        """
        from edgemeter.agent.ledger.retention import bound_own  # noqa: PLC0415 - as above

        with self.transaction() as connection:
            committed, collisions = self._writer.keep(
                [arrived(record, encode(record), "", time.time_ns())], ()
            )
            if collisions:
                raise ConfigError(
                    f"run {record.id} is not stored in {str(self.path)!r}: {collisions[0].reason}"
                )
            if committed.inserted:
                # Its chunk contains nothing else.
                connection.execute(
                    "UPDATE chunks SET is_own = 1 WHERE chunk = "
                    "(SELECT chunk FROM runs WHERE device = ? AND session = ? AND seq = ?)",
                    (record.device, record.session, record.seq),
                )
                bound_own(connection, limit_bytes)

    def forget(self, retention: "Retention", now_ns: int) -> "RetentionRemoved":
        from edgemeter.agent.ledger.retention import apply_retention  # noqa: PLC0415 - as above

        with self.transaction() as connection:
            return apply_retention(connection, retention, now_ns)

    def identity(self) -> str:
        return str(self.query("SELECT collector FROM identity")[0][0])

    def parts(self) -> tuple[LedgerPart, ...]:
        used_bytes, free_bytes = sqlite_file.space_bytes(self.connection)
        sizes: dict[int, int] = {  # noqa: C416 - typed as rows
            has_samples: size_bytes
            for has_samples, size_bytes in self.query(
                "SELECT has_samples, sum(length(body)) FROM chunks GROUP BY has_samples"
            )
        }
        wal = self.path.with_name(f"{self.path.name}-wal")
        return (
            LedgerPart("records with raw samples", sizes.get(1, 0)),
            LedgerPart("records without raw samples", sizes.get(0, 0)),
            LedgerPart(
                "rows, indexes, quarantine and the rest", max(0, used_bytes - sum(sizes.values()))
            ),
            LedgerPart("free, to be reused", free_bytes),
            LedgerPart("not written back yet (WAL)", wal.stat().st_size if wal.exists() else 0),
        )

    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def chunks(self, *, after_row: int = 0) -> Iterator[HeldChunk]:
        return self._chunks("row > ?", after_row)

    def chunks_at(self, rows: Sequence[int]) -> Iterator[HeldChunk]:
        return self._chunks(
            "row IN (SELECT value FROM json_each(?))", msgspec.json.encode(rows).decode()
        )

    def _chunks(self, condition: str, *values: object) -> Iterator[HeldChunk]:
        # Not `self.mapped`: a caller that stops iterating must not hold the file.
        with sqlite_file.mapped(self.path, LEDGER_FORMAT):
            matches = self.connection.execute(
                # The SQL contains only our own words.
                f"SELECT row, place, chunk FROM runs WHERE {condition} ORDER BY row",  # noqa: S608
                values,
            )
            for chunk, rows in itertools.groupby(matches, operator.itemgetter(2)):
                query = "SELECT received_ns, body FROM chunks WHERE chunk = ?"
                received_ns, body = self.connection.execute(query, (chunk,)).fetchone()
                yield HeldChunk(
                    [(row, index) for row, index, _ in rows], received_ns, chunk_text(body)
                )
