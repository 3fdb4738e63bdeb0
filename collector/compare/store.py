"""Stores: where runs are read from to be compared. The protocol, and what opens one.

A store is the collector's ledger (SQLite), the JSON document that `edgemeter run --json` printed on a board without a network, or an
InfluxDB that a collector drained to.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from edgemeter.agent import records
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import influx_config
from edgemeter.collector.keep.ledger import Ledger
from edgemeter.collector.keep.quarantine import Quarantined

SQLITE_MAGIC = b"SQLite format 3\0"


class LeftOut(msgspec.Struct, frozen=True):
    """A run, or a part of one, that does not take part, and why; `run` is None where not even its id could be read."""

    run: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What was read from a store: the runs, and what lies there that could not be read as one."""

    runs: Sequence[RunRecord]
    left_out: Sequence[LeftOut] = ()


class Store(Protocol):
    """Where runs are kept. Read from one thread; each call reads what is there now."""

    def runs(self, *, with_samples: bool = False) -> Sequence[RunRecord]:
        """Return every run that can be read, oldest first; raw samples are left empty unless asked for.

        Raises:
            ConfigError: the store is not ours, or nothing in it can be read.
            TransientError: it is in use, try again.
        """
        ...

    def contents(self, *, with_samples: bool = False) -> Contents:
        """Return the runs as `runs` does, and what could not be read with its reason."""
        ...


def oldest_first(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Return `runs` in the order in which they started; of one start in the order of their numbers, wherever they were read from."""
    return sorted(runs, key=lambda run: (run.started_at_ns, run.device, run.session or 0, run.seq or 0))


class _Document(msgspec.Struct):
    runs: list[msgspec.Raw]


class _Identity(msgspec.Struct):
    id: str


@dataclass(frozen=True, slots=True)
class RunDocument:
    """A file that holds what `edgemeter run --json` printed: `{"runs": [record, ...]}`."""

    path: Path

    def contents(self, *, with_samples: bool = False) -> Contents:
        """Return the runs in the document, and those of a newer schema or damaged as left out."""
        runs: list[RunRecord] = []
        left_out: list[LeftOut] = []
        for raw in self._raw_runs():
            try:
                run = records.decode(bytes(raw))
            except ConfigError as error:
                left_out.append(LeftOut(_identity(bytes(raw)), str(error)))
            else:
                runs.append(run if with_samples else msgspec.structs.replace(run, samples=()))
        if left_out and not runs:
            message = f"no run in {str(self.path)!r} can be read: {left_out[0].reason}"
            raise ConfigError(message)
        return Contents(oldest_first(runs), left_out)

    def runs(self, *, with_samples: bool = False) -> Sequence[RunRecord]:
        """Return the runs in the document, oldest first."""
        return self.contents(with_samples=with_samples).runs

    def _raw_runs(self) -> list[msgspec.Raw]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Document).runs
        except OSError as error:
            message = f"cannot read the store {str(self.path)!r}: {error.strerror}"
            raise ConfigError(message) from error
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            message = (
                f'{str(self.path)!r} is neither a ledger nor a document {{"runs": [...]}} as `edgemeter run --json` prints it: {error}'
            )
            raise ConfigError(message) from error


def _identity(raw: bytes) -> str | None:
    try:
        return msgspec.json.decode(raw, type=_Identity).id
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class Joined:
    """Several stores read as one."""

    stores: Sequence[Store]

    def contents(self, *, with_samples: bool = False) -> Contents:
        """Return the runs of all stores, oldest first, and all that is left out."""
        parts = [store.contents(with_samples=with_samples) for store in self.stores]
        runs = oldest_first(run for part in parts for run in part.runs)
        return Contents(runs, [entry for part in parts for entry in part.left_out])

    def runs(self, *, with_samples: bool = False) -> Sequence[RunRecord]:
        """Return the runs of all stores, oldest first."""
        return self.contents(with_samples=with_samples).runs


def open_store(*where: str, influx_token_file: Path | None = None) -> Store:
    """Return the store at `where`, a file or the URL of an InfluxDB; several are read as one. What a file is, its first bytes say.

    Raises:
        ConfigError: there is none, or it is not ours.
    """
    stores = [_open_influx(one, influx_token_file) if "://" in one else _open_file(one) for one in where]
    return stores[0] if len(stores) == 1 else Joined(stores)


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """The collector's ledger at `path`, opened to read for each call: a running collector is not disturbed."""

    path: Path

    def contents(self, *, with_samples: bool = False) -> Contents:
        """Return the runs in the ledger; what lies in its quarantine is left out."""
        with Ledger(self.path, "read") as ledger:
            runs = [entry.record for entry in ledger.records(with_samples=with_samples)]
            quarantined = ledger.quarantined()
        return Contents(oldest_first(runs), left_out_of(quarantined, {run.id for run in runs}))

    def runs(self, *, with_samples: bool = False) -> Sequence[RunRecord]:
        """Return the runs in the ledger, oldest first."""
        return self.contents(with_samples=with_samples).runs


def left_out_of(quarantined: Sequence[Quarantined], held: Container[str]) -> list[LeftOut]:
    """Return what lies in a ledger's quarantine; `held` are the ids of its runs."""
    left_out: list[LeftOut] = []
    unnamed = 0
    for entry in quarantined:
        run = _identity(entry.payload)
        if run is None:
            unnamed += 1
        elif run not in held:
            # What InfluxDB refused lies in quarantine too, although the ledger holds the run.
            left_out.append(LeftOut(run, f"in the ledger's quarantine: {entry.reason}"))
    if unnamed:
        left_out.append(LeftOut(None, f"in the ledger's quarantine: {unnamed} messages that are no single record"))
    return left_out


def _open_influx(where: str, token_file: Path | None) -> Store:
    from edgemeter.collector.compare.influx_store import InfluxStore  # noqa: PLC0415 - it imports this module

    if not where.startswith(("http://", "https://")):
        kinds = "the collector's ledger, what `edgemeter run --json` printed, or an InfluxDB (http://HOST:8086?bucket=BUCKET)"
        message = f"{where!r} is no store: a store is {kinds}"
        raise ConfigError(message)
    return InfluxStore(influx_config.parse(where, token_file=token_file))


def _open_file(where: str) -> Store:
    path = Path(where).expanduser()
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE_MAGIC))
    except FileNotFoundError as error:
        message = f"there is no store at {where!r}: start `edgemeter collector up`, run `edgemeter demo`, or name another file with --store"
        raise ConfigError(message) from error
    except OSError as error:
        message = f"cannot read the store {where!r}: {error.strerror}"
        raise ConfigError(message) from error
    if start == SQLITE_MAGIC:
        return LedgerFile(path)
    return RunDocument(path)
