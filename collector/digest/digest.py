"""Reading a store through its digest: the same cases, the same figures and the same that is left out as from its runs, much sooner."""

import contextlib
import gc
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import overload

from edgemeter.agent.delivery import sqlite_file
from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare import comparison as comparing
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.compare.judging import Matters
from edgemeter.collector.compare.store import LedgerFile, LeftOut, Store, left_out_of
from edgemeter.collector.compare.summary import Summary
from edgemeter.collector.digest import digest_file, slim_record
from edgemeter.collector.digest.refresh import Progress, Refresher, runs_of, summary_of
from edgemeter.collector.keep.ledger import Ledger

logger = logging.getLogger(__name__)

# Below this a ledger is read as fast as it takes to look at a digest.
WORTH_RUNS = 2000
_OLDEST_FIRST = "ORDER BY started_at_ns, device, coalesce(session, 0), coalesce(seq, 0)"


@dataclass(frozen=True, slots=True)
class Unusable:
    """A run that may not stand beside others, and why."""

    run: RunRecord
    reason: str


@dataclass(frozen=True, slots=True)
class Digested:
    """What a store holds, summed up: its cases in the order in which each first ran, and what is left out of them.

    `unreadable` is what lies there and is no run, `refused` the runs that may not stand beside others.
    `devices` and `roles` are those of all runs. The runs of a summary, and the unusable ones, are read when somebody looks at them.
    """

    path: Path
    summaries: Sequence[Summary]
    unreadable: Sequence[LeftOut]
    refused: Sequence[LeftOut]
    devices: frozenset[str]
    roles: frozenset[str]

    def unusable(self) -> list[Unusable]:
        """Return the runs that may not stand beside others, oldest first."""
        with digest_file.opened(self.path) as connection:
            found = connection.execute(f"SELECT body, reason FROM unusable {_OLDEST_FIRST}")  # noqa: S608 - our own names
            return [Unusable(slim_record.unpack(body, b""), reason) for body, reason in found]


@dataclass(slots=True)
class RunsOfCase(Sequence[RunRecord]):
    """The runs of one case, oldest first, of which only the number is known until one is looked at."""

    path: Path
    number: int
    length: int
    _runs: list[RunRecord] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunRecord]: ...
    def __getitem__(self, index: int | slice) -> RunRecord | Sequence[RunRecord]:
        return self._loaded()[index]

    def __iter__(self) -> Iterator[RunRecord]:
        return iter(self._loaded())

    def _loaded(self) -> list[RunRecord]:
        if self._runs is None:
            with digest_file.opened(self.path) as connection:
                self._runs = runs_of(connection, self.number)
        return self._runs


def digested(store: Store, progress: Progress = lambda *_: None, worth_runs: int = WORTH_RUNS) -> Digested | None:
    """Return what `store` holds by its digest, brought up to date; None where its runs have to be read.

    That is where it is no ledger, or a small one, or holds a run twice, or where no digest can be kept beside it.

    Raises:
        ConfigError: the ledger is damaged or not ours.
        TransientError: it is in use, try again.
    """
    if not isinstance(store, LedgerFile):
        return None
    path = digest_file.path_of(store.path)
    with Ledger(store.path, "read") as ledger:
        if ledger.last_row() < worth_runs:
            return None
        try:
            return _brought_up_to_date(path, ledger, progress)
        except sqlite3.DatabaseError as error:
            # Nothing is lost with it: a damaged one is made again.
            logger.info("the digest %s cannot be used (%s)", path, error)
            if isinstance(error, sqlite3.OperationalError | sqlite3.NotSupportedError):
                return None
        try:
            digest_file.remove(path)
            return _brought_up_to_date(path, ledger, progress)
        except (sqlite3.DatabaseError, OSError) as error:
            logger.info("the digest %s cannot be made (%s)", path, error)
            return None


def _brought_up_to_date(path: Path, ledger: Ledger, progress: Progress) -> Digested | None:
    with digest_file.opened(path) as connection:
        Refresher(connection, ledger, progress).refresh()
        return _read(connection, path, ledger)


def compare(found: Digested, reference: str, matters: Matters = Matters()) -> Comparison:  # noqa: B008 - frozen
    """Return the comparison of all that was found with `reference`, as `comparison.compare` does.

    Raises:
        ConfigError: there is no such device or role.
    """
    belongs = comparing.reference_cases(found.devices, found.roles, reference)
    return comparing.of_summaries(found.summaries, belongs, reference, [*found.unreadable, *found.refused], matters)


def _read(connection: sqlite3.Connection, path: Path, ledger: Ledger) -> Digested | None:
    with sqlite_file.transaction(connection), _without_garbage_collection():
        query = "SELECT case_number, summary, coalesce(first_session, 0), coalesce(first_seq, 0) FROM cases WHERE summary IS NOT NULL"
        found = [(summary_of(body), number, session, seq) for number, body, session, seq in connection.execute(query)]
        found.sort(key=lambda one: (one[0].around.first_started_at_ns, one[0].key.device, one[2], one[3]))
        summaries = [replace(summary, runs=RunsOfCase(path, number, len(summary.around.run_ids))) for summary, number, *_ in found]
        refused = connection.execute(f"SELECT device, role, id, reason FROM unusable {_OLDEST_FIRST}").fetchall()  # noqa: S608 - our own
        ids = _Ids(summaries, [run for _, _, run, _ in refused])
        if _has_repeats(connection, ids):
            return None
    quarantined = ledger.quarantined()
    return Digested(
        path,
        summaries,
        left_out_of(quarantined, ids.all()) if quarantined else [],
        [LeftOut(run, reason) for _, _, run, reason in refused],
        frozenset(summary.key.device for summary in summaries) | {row[0] for row in refused},
        frozenset(summary.key.role for summary in summaries) | {row[1] for row in refused},
    )


@dataclass(frozen=True, slots=True)
class _Ids:
    """The ids of all runs, of which a set is made only where somebody asks: that of a million takes a quarter of a second."""

    summaries: Sequence[Summary]
    refused: Sequence[str]

    def all(self) -> set[str]:
        return {run for summary in self.summaries for run in summary.around.run_ids}.union(self.refused)

    def count(self) -> int:
        return sum(len(summary.around.run_ids) for summary in self.summaries) + len(self.refused)


def _has_repeats(connection: sqlite3.Connection, ids: _Ids) -> bool:
    """Return whether a run is there twice; what was found is kept until something comes."""
    (known,) = connection.execute("SELECT has_repeats FROM place").fetchone()
    if known is None:
        known = len(ids.all()) != ids.count()
        connection.execute("UPDATE place SET has_repeats = ?", (known,))
    return bool(known)


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    # It would look through a million texts again and again, none of which is garbage.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
