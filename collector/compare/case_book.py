"""The case book, which has every case of a store, summarised.

When a ledger grows, only the changed cases are read again.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.figures import FIGURES, MEMORY, FigureView, in_view
from edgemeter.collector.compare.summary import (
    OF_CALLS,
    OF_TEXT,
    CaseSummary,
    DaysCounted,
    RunPlace,
    place_of,
)
from edgemeter.collector.runs.case_runs import FACTS, CaseRuns
from edgemeter.collector.runs.cases import CurrentSegment, grouped, unusable
from edgemeter.collector.runs.contents import LeftOut
from edgemeter.collector.runs.store import RunStore, SubjectRuns, version_of
from edgemeter.collector.trend.current import LEVEL_COLUMNS, current_segments

Progress = Callable[[str, int, int], None]
CASES_AT_ONCE = 100
# The figures that the terminal shows, or decides, for every case.
OF_TERMINAL = tuple(
    dict.fromkeys(
        (
            *OF_CALLS,
            *OF_TEXT,
            MEMORY,
            *(entry.name for entry in in_view(FigureView.TABLE) if entry.is_main),
        )
    )
)


def book_of(store: RunStore, progress: Progress = lambda *_: None) -> "CaseBook":
    book = CaseBook(store)
    book.refresh(progress)
    return book


@dataclass(frozen=True, slots=True)
class BookedCase:
    """One case: its identity, the board that it last ran on, and the counts of its runs.

    `throttled` counts among those that report it (`throttling_known`). Invalid runs do not enter
    the figures. `refused` are the runs that cannot be compared, each with its index among all.
    `level` is the summary of the runs at the current level, `all_days` of all usable ones; None
    without a usable run.
    """

    key: CaseKey
    board: str
    runs: int
    usable: int
    disturbed: int
    throttled: int
    throttling_known: int
    first_ns: int
    newest_ns: int
    temperature_max_c: float | None
    refused: Sequence[tuple[RunPlace, LeftOut]]
    members: Sequence[SubjectRuns]
    level: CaseSummary | None
    all_days: CaseSummary | None

    def summary(self, days: DaysCounted) -> CaseSummary | None:
        return self.level if days == "current" else self.all_days


class CaseBook:
    """The cases of `store`. One thread refreshes it; any may read."""

    def __init__(self, store: RunStore, ahead: Sequence[str] = OF_TERMINAL) -> None:
        """Create an empty book.

        The figures `ahead` are computed while the runs are read anyway, others on demand.
        """
        self.store, self._ahead = store, ahead
        of_figures = [
            column
            for entry in FIGURES
            if entry.name in ahead
            for column in (entry.name, *entry.bound_names)
        ]
        self._columns = (
            *FACTS,
            *of_figures,
            *LEVEL_COLUMNS,
            *(entry.name for entry in FIGURES if entry.group == "conditions"),
        )
        # The version of the store at the last read.
        self.version: str | None = None
        self._booked: dict[CaseKey, BookedCase] = {}
        self._refreshing = threading.Lock()

    def refresh(self, progress: Progress = lambda *_: None) -> None:
        """Read changes of the store.

        `progress` receives the number of summarised cases among the changed ones.
        """
        with self._refreshing:
            version = self.store.version()
            if version and version == self.version:
                return
            members_of = grouped(
                (member.subject.key, member) for member in self.store.subject_runs()
            )
            booked = {key: case for key, case in self._booked.items() if key in members_of}
            versions = {key: version_of(case.members) for key, case in booked.items()}
            changed = [
                key
                for key, members in members_of.items()
                if versions.get(key) != version_of(members)
            ]
            for first in range(0, len(changed), CASES_AT_ONCE):
                part = changed[first : first + CASES_AT_ONCE]
                cases = [members_of[key] for key in part]
                runs = self.store.runs_of_cases(cases, self._columns)
                usable = [of_case.usable() for of_case in runs]
                booked.update(
                    zip(
                        part,
                        map(self._summed_up, cases, runs, usable, current_segments(usable)),
                        strict=True,
                    )
                )
                # While a large ledger is read for the first time, there is something to show.
                self._booked, self.version = dict(booked), f"{len(booked)} of {version}"
                progress("summing up cases", first + len(part), len(changed))
            self._booked, self.version = booked, version

    @property
    def cases(self) -> Sequence[BookedCase]:
        return list(self._booked.values())

    def summaries(self, days: DaysCounted = "current") -> list[CaseSummary]:
        """Return the summary of each case with a usable run, in the order of their first runs.

        Raises:
            UnavailableError: there is no run.
        """
        if not self._booked:
            raise UnavailableError(
                "the store has no run yet: measure one with `edgemeter run FILE --broker "
                "ADDRESS`, or see `edgemeter collector demo`"
            )
        return sorted(
            (summary for case in self.cases if (summary := case.summary(days))),
            key=lambda summary: summary.first,
        )

    def left_out(self) -> list[LeftOut]:
        """Return entries that are not runs, and the runs that cannot be compared, oldest first."""
        refused = sorted(
            (entry for case in self.cases for entry in case.refused), key=itemgetter(0)
        )
        return [*self.store.left_out(), *(entry for _, entry in refused)]

    def within(self, since_ns: int, picked: Sequence[BookedCase]) -> list[BookedCase]:
        """Return the cases among `picked` that ran since then.

        They are counted and summarised over those runs.
        """
        case_of = {
            member.number: index for index, case in enumerate(picked) for member in case.members
        }
        read = self.store.columns("started_at_ns >= ?", since_ns).oldest_first()
        runs_of_cases = read.part(np.isin(read.columns["subject"], list(case_of))).by_case(
            case_of, len(picked)
        )
        return [
            _counted(case.members, runs, *self._of_runs(case, runs.usable()))
            for case, runs in zip(picked, runs_of_cases, strict=True)
            if len(runs)
        ]

    def _of_runs(
        self, case: BookedCase, usable: CaseRuns
    ) -> tuple[CaseSummary | None, CaseSummary | None]:
        """Return the summaries of some newest runs of a case: at its current level, and of all."""
        if not len(usable) or case.level is None:
            return None, None
        all_days, segment = CaseSummary(self.store, case.key, lambda: usable), case.level.segment
        if segment is None:
            return all_days, all_days
        of_level = usable.part(usable.columns["started_at_ns"] >= segment.since_ns)
        return CaseSummary(self.store, case.key, lambda: of_level, segment=segment), all_days

    def _summed_up(
        self,
        members: Sequence[SubjectRuns],
        runs: CaseRuns,
        usable: CaseRuns,
        segment: CurrentSegment | None,
    ) -> BookedCase:
        if not len(usable):
            return _counted(members, runs, None, None)

        def read() -> CaseRuns:
            return self.store.runs_of(members).usable()

        key = members[0].subject.key
        level = all_days = CaseSummary(self.store, key, read)
        if segment:
            level = CaseSummary(self.store, key, read, segment.earlier, segment)
            all_days.prepare(usable, self._ahead)
        level.prepare(usable, self._ahead)
        return _counted(members, runs, level, all_days)


def _counted(
    members: Sequence[SubjectRuns],
    runs: CaseRuns,
    level: CaseSummary | None,
    all_days: CaseSummary | None,
) -> BookedCase:
    is_usable, is_throttled = (
        runs.columns["is_usable"],
        runs.having("is_throttled").columns["is_throttled"],
    )
    usable, refused = runs.part(is_usable), runs.part(~is_usable)
    reasons = [
        unusable(refused.subject(index), verdict)
        for index, verdict in enumerate(refused.verdicts())
    ]
    return BookedCase(
        key=runs.subject(-1).key,
        board=runs.subject(-1).board,
        runs=len(runs),
        usable=len(usable),
        disturbed=int(np.count_nonzero(~usable.is_ok)),
        throttled=int(np.count_nonzero(is_throttled)),
        throttling_known=len(is_throttled),
        first_ns=int(runs.columns["started_at_ns"][0]),
        newest_ns=int(runs.columns["started_at_ns"][-1]),
        temperature_max_c=usable.highest("temperature_max_c"),
        refused=[
            (place_of(refused, index), LeftOut(run_id, reason))
            for index, (run_id, reason) in enumerate(
                zip(refused.values_of("id"), reasons, strict=True)
            )
            if reason
        ],
        members=members,
        level=level,
        all_days=all_days,
    )
