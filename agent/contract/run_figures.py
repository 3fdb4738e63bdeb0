"""The figures of a run as columns of a ledger, so that comparisons and trends read no records."""

import math
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.energy_provenance import not_measured
from edgemeter.agent.contract.figures import FIGURES, Figure, field_name, reader
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.run_subject import RunSubject

# An absent figure: SQLite stores NaN as NULL, and binds it in a tenth of the time of None.
ABSENT = math.nan


_FUNCTIONS = {entry.name: entry.of for entry in FIGURES if entry.of}
_PATHS = tuple(
    dict.fromkeys(
        path
        for entry in FIGURES
        for path in ("" if entry.of else entry.path, entry.low, entry.high, entry.u)
        if path
    )
)
_PARTS = tuple(dict.fromkeys(path.partition(".")[0] for path in _PATHS))
_read_parts = attrgetter(*_PARTS)
_read_each = tuple(map(reader, _PATHS))
# The columns of a run: every figure, its bounds and its uncertainty.
VALUE_COLUMNS = (*map(field_name, _PATHS), *_FUNCTIONS)
_PLACES = {name: index for index, name in enumerate(VALUE_COLUMNS)}
# By group of the record, the columns of the figures that are read from it.
_OF_GROUP = {
    name: tuple(
        _PLACES[column]
        for entry in FIGURES
        if name in entry.provenance_groups
        for column in (entry.name, *entry.bound_names)
    )
    for name in {group for entry in FIGURES for group in entry.provenance_groups}
}


def values_of(run: RunRecord) -> list[float]:
    """Return the figures of a run by `VALUE_COLUMNS`, `ABSENT` if it has none.

    See `places_not_measured`.
    """
    try:
        values = _reader_of(tuple(map(type, _read_parts(run))))(run)
    except AttributeError:
        # A part within a part is absent.
        values = tuple(read(run) for read in _read_each)
    figures = [ABSENT if value is None else value for value in values]
    for work_out in _FUNCTIONS.values():
        value = work_out(run)
        figures.append(ABSENT if value is None else float(value))
    return figures


@cache
def _reader_of(kinds: tuple[type, ...]) -> Callable[[RunRecord], tuple[float | None, ...]]:
    """Return a function that reads all figures of a run whose parts have these types.

    Figures of a part that is None are None.
    """
    absent = {part for part, kind in zip(_PARTS, kinds, strict=True) if kind is type(None)}
    return attrgetter(
        *(part if (part := path.partition(".")[0]) in absent else path for path in _PATHS)
    )


def places_not_measured(run: RunRecord) -> list[int]:
    """Return the indices in `VALUE_COLUMNS` of figures that were not measured.

    They were estimated or published.
    """
    return [
        index for group, places in _OF_GROUP.items() if not_measured(run, group) for index in places
    ]


class RunFigures(NamedTuple):
    """The figures of a run; None: absent, or not measured (but estimated or published).

    `started_at_ns` is the reported start, if plausible; `at_ns` is the same by a synchronised
    clock, else the receipt. `verdict` takes siblings into account; `is_usable`: the run may be
    compared; `takes_a_minute`: it is long enough to show rare events. `session_started_at_ns` is 0
    without a session. `temperature_before_c` is the regressor of the trend. `values` are by
    `VALUE_COLUMNS`.
    """

    row: int
    id: str
    session: int
    seq: int
    subject: RunSubject
    verdict: Verdict
    is_usable: bool
    takes_a_minute: bool
    started_at_ns: int
    at_ns: int
    session_started_at_ns: int
    repeat: int
    queries: int
    temperature_before_c: float | None
    job: str | None
    values: tuple[float | None, ...]

    @property
    def day(self) -> int:
        """Its day since 1970."""
        return self.at_ns // NS_PER_DAY

    def value(self, name: str) -> float | None:
        """Return the value in a column: a figure, an uncertainty or a bound."""
        return self.values[_PLACES[name]]

    def bounds(self, entry: Figure) -> tuple[float | None, float | None]:
        """Return the 95% bounds of a figure, None if it has none."""
        if entry.low:
            return self.value(field_name(entry.low)), self.value(field_name(entry.high))
        value, u = self.value(entry.name), self.u(entry)
        return (None, None) if value is None or u is None else (value - u, value + u)

    def u(self, entry: Figure) -> float | None:
        """Return the expanded uncertainty (95%) of a figure, None if it has none."""
        return self.value(field_name(entry.u)) if entry.u else None


def is_timed(run: RunRecord) -> bool:
    """Return whether latency and throughput were measured or replayed."""
    return not (not_measured(run, "latency") or not_measured(run, "throughput"))


def temperature_before_c(run: RunRecord) -> float | None:
    """Return the highest temperature before the run, which excludes the load's own heat.

    Without one, it is the highest of any reading.
    """
    for when in ("before", "during", "after"):
        readings_c = [
            value
            for condition in run.conditions
            if condition.when == when
            for value in condition.temperatures_c.values()
        ]
        if readings_c:
            return max(readings_c)
    return None
