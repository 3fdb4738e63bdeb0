"""Reading a store through its roll-up: the same cases and figures, and the same runs left out, as from the runs; only much sooner."""

import contextlib
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import overload

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import TaskID

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.progress import shows_progress
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.collector.compare import comparison as comparing
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.compare.judgement import SmallestDifferences
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.rollup.refresh import Progress, RollupRefresher, runs_of, summary_of
from edgemeter.collector.rollup.rollup_file import open_rollup, remove_rollup, rollup_path, unpack_record
from edgemeter.collector.runs.store import LedgerStore, LeftOut, RunStore, left_out_of
from edgemeter.collector.trend.history import without_garbage_collection

logger = logging.getLogger(__name__)

# A smaller ledger is read as fast as its roll-up.
WORTH_RUNS = 2000
_OLDEST_FIRST = "ORDER BY started_at_ns, device, coalesce(session, 0), coalesce(seq, 0)"


@dataclass(frozen=True, slots=True)
class UnusableRollup:
    """A run that cannot be compared, and why."""

    run: RunRecord
    reason: str


@dataclass(frozen=True, slots=True)
class RolledUp:
    """The content of a store, summed up: its cases in the order in which each first ran, and what is left out.

    `unreadable` are entries that are no runs, `rejected` runs that cannot be compared. `devices` and `roles` are those of all runs. The
    runs of a summary, and the unusable ones, are read on demand.
    """

    path: Path
    summaries: Sequence[CaseSummary]
    unreadable: Sequence[LeftOut]
    rejected: Sequence[LeftOut]
    devices: frozenset[str]
    roles: frozenset[str]

    def unusable(self) -> list[UnusableRollup]:
        """Return the runs that cannot be compared, oldest first."""
        with open_rollup(self.path) as connection:
            found = connection.execute(f"SELECT body, reason FROM unusable {_OLDEST_FIRST}")  # noqa: S608 - our own names
            return [UnusableRollup(unpack_record(body, b""), reason) for body, reason in found]


@dataclass(slots=True)
class RunsOfCase(Sequence[RunRecord]):
    """The runs of one case, oldest first, read on first access."""

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
            with open_rollup(self.path) as connection:
                self._runs = runs_of(connection, self.number)[-self.length :]
        return self._runs


def rolled_up(
    store: RunStore, progress: Progress = lambda *_: None, worth_runs: int = WORTH_RUNS, days: DaysCounted = "current"
) -> RolledUp | None:
    """Return the content of `store` from its roll-up, refreshed; None where its runs must be read.

    `days` is whether the current level of each case is summed up or all its days.

    That is so for a store that is no ledger, a small ledger, one that holds a run twice, and where no roll-up can be written beside it.

    Raises:
        ConfigError: the ledger is damaged or invalid.
        TransientError: it is in use; retry.
    """
    if not isinstance(store, LedgerStore):
        return None
    path = rollup_path(store.place)
    with open_ledger(store.place, "read") as ledger:
        if ledger.last_row() < worth_runs:
            return None
        try:
            return _refreshed(path, ledger, progress, days)
        except sqlite3.DatabaseError as error:
            # A damaged one is rebuilt.
            logger.info("the roll-up %s cannot be used (%s)", path, error)
            if isinstance(error, sqlite3.OperationalError | sqlite3.NotSupportedError):
                return None
        try:
            remove_rollup(path)
            return _refreshed(path, ledger, progress, days)
        except (sqlite3.DatabaseError, OSError) as error:
            logger.info("the roll-up %s cannot be written (%s)", path, error)
            return None


def keep_rolled_up(place: LedgerPlace, worth_runs: int = WORTH_RUNS) -> bool:
    """Bring the roll-up of a ledger up to date without reading it; return whether the ledger is large enough for one."""
    with open_ledger(place, "read") as ledger:
        if ledger.last_row() < worth_runs:
            return False
        # The next reader rebuilds one that is damaged.
        with contextlib.suppress(sqlite3.DatabaseError), open_rollup(rollup_path(place)) as connection:
            RollupRefresher(connection, ledger, lambda *_: None).refresh()
    return True


def _refreshed(path: Path, ledger: Ledger, progress: Progress, days: DaysCounted) -> RolledUp | None:
    with open_rollup(path) as connection:
        RollupRefresher(connection, ledger, progress).refresh()
        return _read(connection, path, ledger, days)


def compare_rolled_up(found: RolledUp, reference: str, matters: SmallestDifferences = SmallestDifferences()) -> Comparison:  # noqa: B008 - frozen
    """Return the comparison of all cases with `reference`, as `comparison.compare` does; raises as that."""
    belongs = comparing.reference_cases(found.devices, found.roles, reference)
    return comparing.of_summaries(found.summaries, belongs, reference, [*found.unreadable, *found.rejected], matters)


def _read(connection: sqlite3.Connection, path: Path, ledger: Ledger, days: DaysCounted) -> RolledUp | None:
    with sqlite_file.transaction(connection), without_garbage_collection():
        query = "SELECT case_number, summary, all_days, coalesce(first_session, 0), coalesce(first_seq, 0) FROM cases"
        rows = connection.execute(f"{query} WHERE summary IS NOT NULL").fetchall()
        whole = {number: summary_of(all_days or current) for number, current, all_days, *_ in rows}
        rows.sort(key=lambda row: (whole[row[0]].around.first_started_at_ns, whole[row[0]].key.device, row[3], row[4]))
        shown = [
            (number, summary_of(current) if all_days is not None and days == "current" else whole[number])
            for number, current, all_days, *_ in rows
        ]
        summaries = [replace(summary, runs=RunsOfCase(path, number, len(summary.around.run_ids))) for number, summary in shown]
        rejected = connection.execute(f"SELECT device, role, id, reason FROM unusable {_OLDEST_FIRST}").fetchall()  # noqa: S608 - our own
        ids = _Ids(list(whole.values()), [run for _, _, run, _ in rejected])
        if _has_repeats(connection, ids):
            return None
    quarantined = ledger.quarantined()
    return RolledUp(
        path,
        summaries,
        left_out_of(quarantined, ids.all()) if quarantined else [],
        [LeftOut(run, reason) for _, _, run, reason in rejected],
        frozenset(summary.key.device for summary in summaries) | {row[0] for row in rejected},
        frozenset(summary.key.role for summary in summaries) | {row[1] for row in rejected},
    )


@dataclass(frozen=True, slots=True)
class _Ids:
    """The ids of all runs; a set of them is built on demand only: that of a million takes a quarter of a second."""

    summaries: Sequence[CaseSummary]
    rejected: Sequence[str]

    def all(self) -> set[str]:
        return {run for summary in self.summaries for run in summary.around.run_ids}.union(self.rejected)

    def count(self) -> int:
        return sum(len(summary.around.run_ids) for summary in self.summaries) + len(self.rejected)


def _has_repeats(connection: sqlite3.Connection, ids: _Ids) -> bool:
    """Return whether any run is held twice; the result is kept until new runs arrive."""
    (known,) = connection.execute("SELECT has_repeats FROM place").fetchone()
    if known is None:
        known = len(ids.all()) != ids.count()
        connection.execute("UPDATE place SET has_repeats = ?", (known,))
    return bool(known)


@contextlib.contextmanager
def rollup_progress() -> Iterator[Progress]:
    """Show progress on standard error, if it is a terminal."""
    console = Console(stderr=True)
    with Bars(console=console, transient=True, disable=not shows_progress()) as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield report
