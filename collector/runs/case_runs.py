"""The runs of a case as columns.

There is an array for each fact and figure, so that a million runs need no object each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.figures import LATENCY, Group
from edgemeter.agent.contract.record_conditions import Verdict, Violation
from edgemeter.agent.contract.run_figures import VALUE_COLUMNS, RunFigures
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.ledger.run_row import RUN_TYPES
from edgemeter.agent.verdict.siblings import judged_apart

_TYPES = {**RUN_TYPES, "row": "INTEGER", "siblings": "INTEGER", "siblings_p50_ms": "REAL"}
# The facts for summaries; the median latency is among them, because a verdict among siblings names
# it.
FACTS = (
    "row", "id", "session", "seq", "subject", "verdict", "rules", "is_usable", "takes_a_minute",
    "started_at_ns", "session_started_at_ns", "repeat", "queries", "siblings_p50_ms", "siblings",
    LATENCY,
)  # fmt: skip
EVERY_COLUMN = tuple(
    dict.fromkeys((*FACTS, "at_ns", "temperature_before_c", "job", *VALUE_COLUMNS))
)
_FLAGS = dict.fromkeys(("is_usable", "takes_a_minute"), np.bool_)
_OLDEST_FIRST = ("row", "seq", "session", "started_at_ns")
_OK = Verdict(state="ok")
_decode_rules = msgspec.msgpack.Decoder(tuple[tuple[Violation, ...], tuple[Violation, ...]]).decode


def read_as(name: str) -> str:
    """Return how a column of the table `runs` is read.

    An absent number is read as 0, an absent figure as NaN.
    """
    return f"coalesce({name}, 0)" if _TYPES[name] == "INTEGER" else name


def columns_of_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, NDArray[Any]]:
    """Return the columns `names` of rows that were read as by `read_as`."""
    dtypes = [
        _FLAGS.get(name) or {"INTEGER": np.int64, "REAL": np.float64}.get(_TYPES[name], np.object_)
        for name in names
    ]
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    return {
        name: np.array(column, dtype)
        for name, dtype, column in zip(names, dtypes, values, strict=True)
    }


@dataclass(frozen=True, slots=True)
class CaseRuns:
    """Runs, oldest first, as arrays [runs] of facts and figures.

    `columns` are the arrays by name, of the facts and of the figures that were read.

    A figure is NaN if a run has none, or one that was not measured. `subjects` are by number, and
    may include those of other runs.
    """

    subjects: Mapping[int, RunSubject]
    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["row"])

    def values_of(self, name: str) -> list[Any]:
        values: list[Any] = self.columns[name].tolist()
        return values

    def highest(self, name: str) -> float | None:
        """Return the highest value of a figure, None if no run has one."""
        values = self.having(name).columns[name]
        return float(values.max()) if len(values) else None

    def part(self, places: slice | NDArray[Any]) -> "CaseRuns":
        """Return the runs at these indexes, or of this mask."""
        return CaseRuns(
            self.subjects, {name: values[places] for name, values in self.columns.items()}
        )

    def oldest_first(self) -> "CaseRuns":
        """Return them in the order of their start."""
        return self.part(np.lexsort([self.columns[name] for name in _OLDEST_FIRST]))

    def by_case(self, case_of: Mapping[int, int], cases: int) -> list["CaseRuns"]:
        """Return the runs of each case.

        `case_of` maps the number of a subject to the index of its case.
        """
        case = np.array([case_of[number] for number in self.columns["subject"].tolist()], np.intp)
        order = np.argsort(case, kind="stable")
        edges, runs = np.searchsorted(case[order], np.arange(cases + 1)).tolist(), self.part(order)
        return [runs.part(slice(begin, end)) for begin, end in pairwise(edges)]

    def usable(self) -> "CaseRuns":
        """Return the runs that can be compared, without duplicates."""
        usable = np.flatnonzero(self.columns["is_usable"])
        last = dict(zip(self.columns["id"][usable].tolist(), usable.tolist(), strict=True))
        return self if len(last) == len(self) else self.part(np.array(list(last.values()), np.intp))

    def having(self, name: str) -> "CaseRuns":
        are_absent = np.isnan(self.columns[name])
        return self.part(~are_absent) if are_absent.any() else self

    @property
    def is_ok(self) -> NDArray[np.bool_]:
        """Which of them are ok, also among their siblings."""
        are_ok: NDArray[np.bool_] = (self.columns["verdict"] == "ok") & (
            self.columns["siblings"] == 0
        )
        return are_ok

    def counted(self) -> "CaseRuns":
        """Return the usable runs that count for the figures of a case, as `judge.counted`."""
        are_ok = self.is_ok
        return self.part(are_ok) if FEWEST <= np.count_nonzero(are_ok) < len(self) else self

    def subject(self, index: int) -> RunSubject:
        return self.subjects[int(self.columns["subject"][index])]

    def own_subjects(self) -> list[RunSubject]:
        """Return the subjects of the runs, in the order of their first runs."""
        return [self.subjects[number] for number in dict.fromkeys(self.columns["subject"].tolist())]

    def of_newest_kind(self, group: Group) -> "CaseRuns":
        """Return the runs whose figures of a group are of the newest run's kind.

        All are returned for a group without kinds.

        A mean of two kinds (another meter, another metric) would be meaningless; the newest is the
        one that the user means.
        """
        if group not in ("energy", "accuracy"):
            return self
        kinds = {
            number: self.subjects[number].kind(group)
            for number in set(self.columns["subject"].tolist())
        }
        newest = next(
            (
                kind
                for number in self.columns["subject"][::-1].tolist()
                if (kind := kinds[number]) is not None
            ),
            None,
        )
        are_of_kind = [
            number for number, kind in kinds.items() if kind == newest and kind is not None
        ]
        return (
            self
            if len(are_of_kind) == len(kinds)
            else self.part(np.isin(self.columns["subject"], are_of_kind))
        )

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdict on each, among its siblings."""
        verdicts, names = (
            [_OK] * len(self),
            ("verdict", "rules", LATENCY, "siblings_p50_ms", "siblings"),
        )
        # The comparison with None is that of each element.
        for index in np.flatnonzero(
            ~self.is_ok | (self.columns["rules"] != None)  # noqa: E711
        ).tolist():
            state, rules, p50_ms, siblings_p50_ms, siblings = (
                self.columns[name][index] for name in names
            )
            violations, notes = _decode_rules(bytes(rules)) if rules is not None else ((), ())
            verdict = Verdict(state=state, violations=violations, notes=notes)
            verdicts[index] = (
                judged_apart(verdict, float(p50_ms), float(siblings_p50_ms), int(siblings))
                if siblings
                else verdict
            )
        return tuple(verdicts)

    def each(self) -> list[RunFigures]:
        """Return each run by itself; all figures must have been read."""
        numbers = np.array(
            [self.columns[name] for name in ("temperature_before_c", *VALUE_COLUMNS)], np.float64
        ).T
        absent = np.array(None, np.object_)
        figures = [tuple(row) for row in np.where(np.isnan(numbers), absent, numbers).tolist()]
        columns: dict[str, Sequence[Any]] = {
            name: self.values_of(name) for name in RunFigures._fields if name in self.columns
        }
        columns["subject"], columns["verdict"] = (
            [self.subjects[number] for number in columns["subject"]],
            self.verdicts(),
        )
        columns["temperature_before_c"], columns["values"] = (
            [row[0] for row in figures],
            [row[1:] for row in figures],
        )
        return list(map(RunFigures, *(columns[name] for name in RunFigures._fields)))


def joined(parts: Sequence[CaseRuns]) -> CaseRuns:
    """Return the runs of all parts, one part after the other."""
    return CaseRuns(
        parts[0].subjects,
        {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
    )
