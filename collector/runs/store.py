"""Stores: where runs are read from. The protocol; documents and ledgers behind it; and what opens one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count, short_id
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.postgres_address import is_postgres
from edgemeter.agent.contract.record import RunRecord, decode
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.ledger.chunks import SkippedRecord
from edgemeter.agent.ledger.ledger import Ledger, default_path
from edgemeter.agent.ledger.run_history import ID, LedgerRuns, nothing_called
from edgemeter.collector.ledgers.place import LedgerPlace, ledger_place, open_ledger

SQLITE_MAGIC = b"SQLite format 3\0"
UNREAD = "in the ledger, but it cannot be read"  # Begins the reason of a `LeftOut`.
_AT_ONCE = 500  # So many values stand in one statement.


class LeftOut(msgspec.Struct, frozen=True):
    """A run, or a part of one, that is left out, and why; `run` is None if not even its id could be read."""

    run: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class StoreContents:
    """The content of a store: the runs, and entries that could not be read as runs."""

    runs: Sequence[RunRecord]
    left_out: Sequence[LeftOut] = ()


class RunStore(Protocol):
    """Where runs are stored. Read from one thread; each call reads the present content."""

    def contents(self, *, with_samples: bool = False) -> StoreContents:
        """Return every run that can be read, oldest first, and what could not; raw samples are left empty unless asked for.

        Raises:
            ConfigError: the store is invalid, or nothing in it can be read.
            TransientError: it is in use; retry.
        """


def oldest_first(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Return `runs` in the order of their start, then of device and numbers, from whatever store they came."""
    return sorted(runs, key=lambda run: (run.started_at_ns, run.device, run.session or 0, run.seq or 0))


class _RunsDocument(msgspec.Struct):
    runs: list[msgspec.Raw]


class _Identity(msgspec.Struct):
    id: str


@dataclass(frozen=True, slots=True)
class RunDocument:
    """A file that holds what `edgemeter run --format json` printed: `{"runs": [record, ...]}`."""

    path: Path

    def contents(self, *, with_samples: bool = False) -> StoreContents:
        """Return the runs in the document, and those of a newer schema or damaged as left out."""
        runs: list[RunRecord] = []
        left_out: list[LeftOut] = []
        for raw in self._raw_runs():
            try:
                run = decode(bytes(raw))
            except ConfigError as error:
                left_out.append(LeftOut(_identity(bytes(raw)), str(error)))
            else:
                runs.append(run if with_samples else msgspec.structs.replace(run, samples=()))
        if left_out and not runs:
            raise ConfigError(f"no run in {str(self.path)!r} can be read: {left_out[0].reason}")
        return StoreContents(oldest_first(runs), left_out)

    def _raw_runs(self) -> list[msgspec.Raw]:
        try:
            return decode_json(self.path.read_bytes(), _RunsDocument).runs
        except OSError as error:
            raise ConfigError(f"cannot read the store {str(self.path)!r}: {error.strerror}") from error
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f'{str(self.path)!r} is neither a ledger nor what `edgemeter run --format json` prints ({{"runs": [...]}}): {error}'
            ) from error


def _identity(raw: bytes) -> str | None:
    try:
        return decode_json(raw, _Identity).id
    except msgspec.MsgspecError:
        return None


@dataclass(frozen=True, slots=True)
class JoinedStore:
    """Several stores read as one."""

    stores: Sequence[RunStore]

    def contents(self, *, with_samples: bool = False) -> StoreContents:
        """Return the runs of all stores, oldest first, and all that is left out."""
        parts = [store.contents(with_samples=with_samples) for store in self.stores]
        runs = oldest_first(run for part in parts for run in part.runs)
        return StoreContents(runs, [entry for part in parts for entry in part.left_out])


def open_store(*where: str) -> RunStore:
    """Return the store at each `where` (file or PostgreSQL ledger), several read as one; raises ConfigError if there is none."""
    stores = [_open_one(address) for address in where]
    return stores[0] if len(stores) == 1 else JoinedStore(stores)


@dataclass(frozen=True, slots=True)
class LedgerStore:
    """The collector's ledger at `place`, opened to read for each call: a running collector is not disturbed."""

    place: LedgerPlace

    def contents(self, *, with_samples: bool = False) -> StoreContents:
        """Return the runs in the ledger; records that cannot be read, and quarantined messages, are left out."""
        unread: list[LeftOut] = []
        with open_ledger(self.place, "read") as ledger:
            entries = ledger.records(with_samples=with_samples, skipped=lambda skipped: unread.append(unread_run(skipped)))
            runs = [placed(entry.record, entry.received_ns) for entry in entries]
            return StoreContents(oldest_first(runs), [*left_out_of(ledger), *unread])


def unread_run(skipped: SkippedRecord) -> LeftOut:
    """Return a record that a ledger holds and nobody can read."""
    return LeftOut(skipped.run, f"{UNREAD}: {skipped.reason}")


def left_out_of(ledger: Ledger) -> list[LeftOut]:
    """Return the entries of a ledger's quarantine, but for runs that the ledger holds: what InfluxDB rejected is quarantined too."""
    messages = [(_identity(entry.payload), entry.reason) for entry in ledger.quarantined()]
    ids = sorted({run for run, _ in messages if run is not None})
    stored: set[str] = set()
    for first in range(0, len(ids), _AT_ONCE):
        part = ids[first : first + _AT_ONCE]
        query = f"SELECT id FROM runs WHERE id IN ({', '.join('?' * len(part))})"  # noqa: S608 - question marks
        stored.update(run for (run,) in ledger.query(query, *part))
    reasons: list[tuple[str | None, str]] = [(run, reason) for run, reason in messages if run is not None and run not in stored]
    if unnamed := sum(run is None for run, _ in messages):
        reasons.append((None, f"{count(unnamed, 'message')} without a run id"))
    return [LeftOut(run, f"in the ledger's quarantine: {reason}") for run, reason in reasons]


def _open_one(where: str) -> RunStore:
    if is_postgres(where):
        return LedgerStore(ledger_place(where))
    if "://" not in where:
        return _open_file(where)
    kinds = "the collector's ledger, what `edgemeter run --format json` printed, or postgresql://USER@HOST/DATABASE"
    raise ConfigError(f"{where!r} is not a store: give {kinds}")


def _open_file(where: str) -> RunStore:
    path = Path(where).expanduser()
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE_MAGIC))
    except FileNotFoundError as error:
        if ID.fullmatch(where) and default_path().exists():
            with open_ledger(default_path(), "read") as ledger:
                run_id = LedgerRuns(ledger).lookup(where)
            if run_id is not None:
                return OneRun(default_path(), run_id)
        raise ConfigError(nothing_called(where)) from error
    except IsADirectoryError as error:
        raise ConfigError(f"{where!r} is a folder: name the ledgers and documents in it; `compare` takes bundles") from error
    except OSError as error:
        raise ConfigError(f"cannot read the store {where!r}: {error.strerror}") from error
    if start == SQLITE_MAGIC:
        return LedgerStore(path)
    return RunDocument(path)


@dataclass(frozen=True, slots=True)
class OneRun:
    """One run of the ledger in the file at `path`."""

    path: Path
    run_id: str

    def contents(self, *, with_samples: bool = False) -> StoreContents:
        """Return the run; raises ConfigError if it is excluded."""
        with open_ledger(self.path, "read") as ledger:
            history = LedgerRuns(ledger)
            if not history.is_counted(self.run_id):
                raise ConfigError(f"run {self.run_id} is excluded: count it again with `edgemeter runs include {short_id(self.run_id)}`")
            entry = history.entry(self.run_id, with_samples=with_samples)
            return StoreContents([placed(entry.record, entry.received_ns)])
