"""The ledger: the collector's own store. What it has committed it holds, and may say so in a receipt.

One `Ledger` is one SQLite connection: use one object per thread. Readers and the one writer do not wait for each other (WAL).
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType

import msgspec

from edgemeter.agent import record_parts, records
from edgemeter.agent.delivery import sqlite_file
from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import presence, quarantine
from edgemeter.collector.keep.quarantine import Rejection

COLLISION = "another record already holds this number: cloned card or copied outbox?"

Key = tuple[str, str, int, int]

_COLUMNS = ("device", "fleet", "role", "model", "runtime", "precision", "task", "dataset_sha256", "scenario", "verdict")
_SCHEMA = """CREATE TABLE runs (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    started_at_ns INTEGER NOT NULL,
    received_ns INTEGER NOT NULL,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    role TEXT NOT NULL,
    model TEXT NOT NULL,
    runtime TEXT NOT NULL,
    precision TEXT NOT NULL,
    task TEXT NOT NULL,
    dataset_sha256 TEXT NOT NULL,
    scenario TEXT NOT NULL,
    verdict TEXT NOT NULL,
    record BLOB NOT NULL,
    UNIQUE (device, session, seq)
);
CREATE TABLE samples (row INTEGER PRIMARY KEY REFERENCES runs (row), series BLOB NOT NULL);
CREATE TABLE sinks (name TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE identity (collector TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(8))));
"""

FORMAT = sqlite_file.Format(
    what="ledger",
    application_id=0x45644C67,  # "EdLg"
    version=1,
    schema=_SCHEMA + quarantine.SCHEMA + presence.SCHEMA,
    elsewhere="give the path of a ledger that `edgemeter collector up` or `edgemeter demo` wrote (--ledger PATH)",
)

_INSERT = (
    f"INSERT INTO runs (session, seq, id, started_at_ns, received_ns, {', '.join(_COLUMNS)}, record)"  # noqa: S608 - our own column names
    f" VALUES (?, ?, ?, ?, ?, {', '.join('?' * len(_COLUMNS))}, ?) ON CONFLICT (device, session, seq) DO NOTHING"
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record that came in, valid and numbered (`session` and `seq` are set): as decoded, and its own JSON text in two parts.

    Raises:
        ConfigError: `payload` cannot be taken apart (a key that this version skips may still be broken text).
    """

    record: RunRecord
    payload: bytes
    topic: str
    received_ns: int
    head: bytes = field(init=False, repr=False)
    samples: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        head, samples = record_parts.part(self.payload)
        object.__setattr__(self, "head", head)
        object.__setattr__(self, "samples", samples)


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a batch. `held` are the keys (fleet, device, session, seq) that the ledger now holds, new or not."""

    inserted: int = 0
    duplicates: int = 0
    collisions: int = 0
    held: tuple[Key, ...] = ()


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

    def __post_init__(self) -> None:
        self._connection = sqlite_file.connect(self.path, FORMAT, self.access)

    def __enter__(self) -> "Ledger":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; may be called twice."""
        self._connection.close()

    def commit(self, batch: Sequence[Arrival], rejections: Sequence[Rejection] = (), changes: Sequence[presence.Change] = ()) -> Committed:
        """Keep a batch in one transaction, on the disk when this returns; return what became of it.

        A record whose number another record holds goes to the quarantine, as do the `rejections`; `changes` is what devices said
        of themselves.

        Raises:
            UnavailableError: the disk is full; nothing of the batch is kept.
            TransientError: another process holds the file; nothing of the batch is kept.
        """
        inserted = 0
        duplicates = 0
        held: list[Key] = []
        collisions: list[Rejection] = []
        with sqlite_file.mapped(self.path, FORMAT), sqlite_file.transaction(self._connection):
            for arrival in batch:
                if self._insert(arrival):
                    inserted += 1
                elif self._id_of(arrival.record) == arrival.record.id:
                    duplicates += 1
                else:
                    collisions.append(Rejection(arrival.topic, arrival.payload, COLLISION, arrival.received_ns))
                    continue
                held.append(_key(arrival.record))
            quarantine.add(self._connection, [*rejections, *collisions])
            presence.note(self._connection, changes)
        return Committed(inserted, duplicates, len(collisions), tuple(held))

    def records(
        self, *, with_samples: bool = False, after_row: int = 0, limit: int | None = None, where: Filter = EVERYTHING
    ) -> Iterator[Held]:
        """Yield the records after `after_row` in the order of commits; without samples unless asked for.

        Raises:
            ConfigError: the file is damaged, or a record in it is of a newer schema.
        """
        wanted = {f.name: value for f in fields(where) if (value := getattr(where, f.name)) is not None}
        conditions = "".join(f" AND {name} = ?" for name in wanted)
        series = ", (SELECT series FROM samples WHERE samples.row = runs.row)" if with_samples else ", NULL"
        query = f"SELECT row, received_ns, record{series} FROM runs WHERE row > ?{conditions} ORDER BY row LIMIT ?"  # noqa: S608 - our own names
        with sqlite_file.mapped(self.path, FORMAT):
            for row, received_ns, head, samples in self._connection.execute(
                query, (after_row, *wanted.values(), -1 if limit is None else limit)
            ):
                yield Held(row, received_ns, records.decode(head if samples is None else record_parts.whole(head, samples)))

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

    def devices(self) -> list[presence.Device]:
        """Return every device that said something of itself, by fleet and name."""
        with sqlite_file.mapped(self.path, FORMAT):
            return presence.read(self._connection)

    def _insert(self, arrival: Arrival) -> bool:
        record = arrival.record
        named = (
            record.device,
            record.fleet,
            record.role,
            record.model.name,
            record.runtime.name,
            record.precision,
            record.model.task,
            record.dataset.sha256,
            record.scenario,
            record.verdict.state,
        )
        numbers = (record.session, record.seq, record.id, record.started_at_ns, arrival.received_ns)
        cursor = self._connection.execute(_INSERT, (*numbers, *named, arrival.head))
        if cursor.rowcount != 1:
            return False
        if arrival.samples != record_parts.NO_SAMPLES:
            self._connection.execute("INSERT INTO samples VALUES (?, ?)", (cursor.lastrowid, arrival.samples))
        return True

    def _id_of(self, record: RunRecord) -> str:
        query = "SELECT id FROM runs WHERE device = ? AND session = ? AND seq = ?"
        return str(self._connection.execute(query, (record.device, record.session, record.seq)).fetchone()[0])


def coalesce(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return sorted numbers as ranges, both ends included: 1, 2, 3, 7 -> (1, 3), (7, 7)."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _key(record: RunRecord) -> Key:
    if record.session is None or record.seq is None:
        message = f"record {record.id!r} has no number: only numbered records enter the ledger"
        raise msgspec.ValidationError(message)
    return record.fleet, record.device, record.session, record.seq
