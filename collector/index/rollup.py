"""Comparing a store by its index: the same cases and figures, and the same runs left out, as from the runs; only much sooner."""

import contextlib
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.base.sqlite_file import transaction
from edgemeter.agent.ledger.quarantine import QuarantinedMessage
from edgemeter.collector.compare import comparison as comparing
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted
from edgemeter.collector.index.index_file import WITH_ID, connect_index, index_path, remove_index
from edgemeter.collector.index.refresh import IndexRefresher, Progress
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.index.stored_summaries import read_summaries
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.runs.store import UNREAD, LedgerStore, LeftOut, RunStore, left_out_of
from edgemeter.collector.trend.history import without_garbage_collection

logger = logging.getLogger(__name__)

# A smaller ledger is read as fast as its index.
WORTH_RUNS = 2000
_UNUSABLE = (
    "SELECT id, reason FROM measured JOIN cases USING (case_number) WHERE NOT is_usable"
    " ORDER BY started_at_ns, cases.device, coalesce(session, 0), coalesce(seq, 0), row"
)


@dataclass(frozen=True, slots=True)
class RolledUp:
    """The content of a store, summed up: its cases in the order in which each first ran, and what is left out.

    `unreadable` are entries that are no runs, `rejected` runs that cannot be compared. `devices` and `roles` are those of all runs. The
    runs of a summary are read on demand.
    """

    summaries: Sequence[CaseSummary]
    unreadable: Sequence[LeftOut]
    rejected: Sequence[LeftOut]
    devices: frozenset[str]
    roles: frozenset[str]


def rolled_up(
    store: RunStore,
    progress: Progress = lambda *_: None,
    worth_runs: int = WORTH_RUNS,
    days: DaysCounted = "current",
    *,
    in_full: bool = True,
) -> RolledUp | None:
    """Return the content of `store` from its index, refreshed; None where its runs must be read.

    `days` is whether the current level of each case is summed up or all its days. Unless `in_full`, what is not asked for of a summary is
    not read: for who shows a few of them.

    That is so for a store that is no ledger, a small ledger, one that holds a run twice, and where no index can be written beside it.

    Raises:
        ConfigError: the ledger is damaged or invalid.
        TransientError: it is in use; retry.
    """
    if not isinstance(store, LedgerStore):
        return None
    source, path = LedgerSource(store.place), index_path(store.place)
    if source.last_row() < worth_runs:
        return None
    with open_ledger(store.place, "read") as ledger:
        quarantined = ledger.quarantined()

    def read_index() -> RolledUp | None:
        with contextlib.closing(connect_index(path)) as connection:
            IndexRefresher(connection, source, progress).refresh()
            return _read(connection, path, quarantined, days, in_full=in_full)

    try:
        try:
            return read_index()
        except (sqlite3.OperationalError, sqlite3.NotSupportedError):
            raise
        except sqlite3.DatabaseError:
            # Damaged where opening it does not read; it holds nothing that the ledger does not.
            remove_index(path)
            return read_index()
    except (sqlite3.DatabaseError, OSError) as error:
        logger.info("the index %s cannot be used (%s)", path, error)
        return None


def compare_rolled_up(rolled_up: RolledUp, reference: str, matters_ratio: float = MATTERS_RATIO) -> Comparison:
    """Return the comparison of all cases with `reference`, as `comparison.compare` does; raises as that."""
    belongs = comparing.reference_cases(rolled_up.devices, rolled_up.roles, reference)
    return comparing.of_summaries(rolled_up.summaries, belongs, reference, [*rolled_up.unreadable, *rolled_up.rejected], matters_ratio)


def _read(
    connection: sqlite3.Connection, path: Path, quarantined: Sequence[QuarantinedMessage], days: DaysCounted, *, in_full: bool
) -> RolledUp | None:
    with transaction(connection), without_garbage_collection():
        if connection.execute("SELECT has_repeats FROM place").fetchone()[0]:
            return None
        summaries = list(read_summaries(connection, lambda: contextlib.closing(connect_index(path)), days, in_full=in_full))
        rejected = connection.execute(_UNUSABLE).fetchall()
        names = connection.execute("SELECT DISTINCT device, json_extract(key, '$.role') FROM cases").fetchall()
        unreadable = left_out_of(quarantined, _HeldRuns(connection)) if quarantined else []
        unreadable += [
            LeftOut(run, f"{UNREAD}: {reason}") for run, reason in connection.execute("SELECT id, reason FROM skipped ORDER BY row")
        ]
    devices, roles = (frozenset(part) for part in zip(*names, strict=True)) if names else (frozenset[str](), frozenset[str]())
    return RolledUp(summaries, unreadable, [LeftOut(run, reason) for run, reason in rejected], devices, roles)


@dataclass(frozen=True, slots=True)
class _HeldRuns:
    """The ids of all runs: each is looked up, because a set of a million takes a quarter of a second."""

    connection: sqlite3.Connection

    def __contains__(self, run: object) -> bool:
        query = f"SELECT 1 FROM measured WHERE {WITH_ID} UNION ALL SELECT 1 FROM skipped WHERE id = ?1 LIMIT 1"  # noqa: S608 - our own
        return self.connection.execute(query, (run,)).fetchone() is not None
