"""History: the figures of the runs of a store by series, from the columns of their rows."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.store import CaseVersion, RunStore, SubjectRuns, version_of
from edgemeter.collector.trend.run_columns import RunColumns, run_columns

# Subjects in one query.
_SUBJECTS = 500
_RECEIVED = """SELECT subjects.fleet, subjects.device, max(received_ns)
FROM (SELECT subject, max(row) AS newest FROM runs GROUP BY subject) AS held
JOIN runs ON runs.row = held.newest JOIN chunks USING (chunk) \
JOIN subjects ON subjects.subject = held.subject
GROUP BY subjects.fleet, subjects.device"""
# Looking a run up takes this many times as long as reading it among all; the number read at once.
_LOOKED_UP, _PAGE = 3, 100_000
# Values in one statement: SQLite takes 32,766.
_MOST_VALUES = 30_000
# Times are read in this unit: a float represents such a number, and a day is a whole number of
# them.
_TICK_NS = 1024


class History:
    """The history of a store as it is now, of one device if given."""

    def __init__(self, store: RunStore, device: str | None = None) -> None:
        self.store = store
        members = grouped((member.subject.series, member) for member in store.subject_runs(device))
        self._members = {key: members[key] for key in sorted(members, key=series_order)}

    def series(self) -> Sequence[SeriesKey]:
        return list(self._members)

    def points(self, key: SeriesKey, since_day: int = 0) -> list[RunFigures]:
        """Return the runs of a series since a day (counted from 1970), oldest first."""
        numbers = [member.number for member in self._members.get(key, ())]
        return sorted(
            self.store.select(
                f"subject IN ({', '.join('?' * len(numbers))}) AND at_ns >= ?",
                *numbers,
                since_day * NS_PER_DAY,
            ),
            key=lambda run: (run.at_ns, run.row),
        )

    def columns(
        self, keys: Sequence[SeriesKey], names: Sequence[str], since_day: int = 0
    ) -> RunColumns:
        """Return the runs of each series since a day, with the figures of these names."""
        members_of_keys = [
            (number, member)
            for number, key in enumerate(keys)
            for member in self._members.get(key, ())
        ]
        members = [member for _, member in members_of_keys]
        member, ticks, signed_row, *figures = self._rows(members, names, since_day)
        member_of_row, at_ns = member.astype(np.intp), ticks.astype(np.int64) * _TICK_NS
        series = np.array([number for number, _ in members_of_keys], np.intp)[member_of_row]
        order = np.lexsort((np.abs(signed_row), at_ns, series))
        return run_columns(
            np.searchsorted(series[order], np.arange(len(keys) + 1)),
            at_ns[order],
            signed_row[order] > 0,
            member_of_row[order],
            [member.subject for member in members],
            {name: values[order] for name, values in zip(names, figures, strict=True)},
        )

    def _rows(
        self, members: Sequence[SubjectRuns], names: Sequence[str], since_day: int
    ) -> NDArray[np.float64]:
        """Return the columns of the runs of these subjects.

        They are the index of the subject, the time, the row, and these figures.

        The row of a run that is not ok is negative: every column that is read takes a tenth of the
        time.
        """
        signed_row = "CASE WHEN verdict = 'ok' AND siblings IS NULL THEN row ELSE -row END"
        selected = ("subject", f"at_ns / {_TICK_NS}", signed_row, *names)
        numbers, last_row = (
            [member.number for member in members],
            max((member.newest_row for member in members), default=0),
        )
        runs = sum(member.runs for member in members)
        if _LOOKED_UP * runs > last_row:
            # The plus keeps SQLite from looking each subject up; few runs of others are dropped
            # here in less time.
            are_few = 4 * runs < 3 * last_row and len(numbers) <= _MOST_VALUES
            condition, values = (
                (f"+subject IN ({', '.join('?' * len(numbers))}) AND ", numbers)
                if are_few
                else ("", [])
            )
            parts = [
                (f"{condition}row > ? AND row <= ?", [*values, first, first + _PAGE])
                for first in range(0, last_row, _PAGE)
            ]
        else:
            batches = [
                numbers[first : first + _SUBJECTS] for first in range(0, len(numbers), _SUBJECTS)
            ]
            parts = [(f"subject IN ({', '.join('?' * len(part))})", part) for part in batches]
        by_number = np.argsort(numbers)
        ordered, pages = np.array(numbers, np.float64)[by_number], [np.zeros((len(selected), 0))]
        for condition, values in parts:
            rows = self.store.query(
                f"SELECT {', '.join(selected)} FROM runs "  # noqa: S608 - our own names
                f"WHERE {condition} AND at_ns >= ?",
                *values,
                since_day * NS_PER_DAY,
            )
            # Columns that are contiguous are sorted in a third of the time.
            page = np.ascontiguousarray(np.array(rows, np.float64).reshape(-1, len(selected)).T)
            index = np.minimum(np.searchsorted(ordered, page[0]), len(ordered) - 1)
            is_member = ordered[index] == page[0]
            page[0] = by_number[index]
            pages.append(page if is_member.all() else page[:, is_member])
        return np.concatenate(pages, axis=1)

    def last_day(self, key: SeriesKey) -> int:
        return (
            max((member.newest_ns for member in self._members.get(key, ())), default=0)
            // NS_PER_DAY
        )

    def newest_day(self) -> int:
        """Return the day of the newest run of all, 0 if there is none.

        This holds even if only one device's runs are read.
        """
        return int(self.store.query("SELECT coalesce(max(at_ns), 0) FROM runs")[0][0]) // NS_PER_DAY

    def received_ns(self) -> dict[tuple[str, str], int]:
        """Return when the last run of each device was received, by fleet and device."""
        return {
            (fleet, device): received_ns
            for fleet, device, received_ns in self.store.query(_RECEIVED)
        }

    def runs(self, key: SeriesKey) -> int:
        return sum(member.runs for member in self._members.get(key, ()))

    def version(self, key: SeriesKey) -> CaseVersion:
        """Return a value that changes with the runs of a series."""
        return version_of(self._members.get(key, ()))


def series_order(key: SeriesKey) -> tuple[str, ...]:
    return (
        key.fleet,
        key.board,
        key.model,
        key.device,
        *(str(value) for value in msgspec.structs.astuple(key)),
    )
