"""The history of a ledger: the figures of its runs by series, from the columns of their rows."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.run_figures import VALUE_COLUMNS, run_of_row
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger, shown_place
from edgemeter.collector.runs.store import LedgerStore, open_store
from edgemeter.collector.trend.history import History, Points, RunHistory, series_order
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.run_columns import CommonFacts, RunColumns

# So many subjects stand in one query.
_SUBJECTS = 500
# To look a run up takes so many times as long as to read it among all, of which so many are read at once.
_LOOKED_UP, _PAGE = 3, 50_000
# Among the columns of a row the first figure comes after so many others.
_FIRST = 5
_decode = msgspec.msgpack.Decoder(RunSubject).decode
# Counts without reading rows: by the index of subject and day.
_HELD = """SELECT subject, body, runs_held, newest_row, newest_ns FROM subjects JOIN (
    SELECT subject, count(*) AS runs_held, max(row) AS newest_row, max(at_ns) AS newest_ns FROM runs {of_device} GROUP BY subject
) AS held USING (subject)"""
_APART = "SELECT subject, count(*) FROM runs WHERE siblings IS NOT NULL GROUP BY subject"
_OF_DEVICE = "WHERE subject IN (SELECT subject FROM subjects WHERE device = ?)"
# In the order of `RUN_COLUMNS`, but for what the subject has.
_POINTS = f"""SELECT subject, id, started_at_ns, at_ns, received_ns,
CASE WHEN siblings IS NULL THEN verdict ELSE 'disturbed' END, is_usable, temperature_before_c, job,
{", ".join(VALUE_COLUMNS)} FROM runs JOIN chunks USING (chunk)"""  # noqa: S608 - our own names


@dataclass(frozen=True, slots=True)
class _Member:
    """A subject of a series, the facts that its runs share, and how many there are up to which row and time.

    So many of the runs lie apart from their siblings.
    """

    number: int
    subject: RunSubject
    facts: CommonFacts
    runs: int
    newest_row: int
    newest_ns: int
    apart: int

    @property
    def has_own_energy(self) -> bool | None:
        """Whether its energy was measured in the run itself, or replayed with it."""
        return None if self.subject.energy_kind is None else self.subject.energy_provenance == self.subject.provenance.get("latency")


class LedgerHistory:
    """The history of a ledger, of one device where it is named. Read from one thread."""

    def __init__(self, ledger: LedgerPlace, device: str | None = None) -> None:
        self._ledger = open_ledger(ledger, "read")
        members: dict[SeriesKey, list[_Member]] = {}
        try:
            apart = dict(self._ledger.query(_APART))
            query = _HELD.format(of_device="" if device is None else _OF_DEVICE)
            for number, body, runs, row, newest_ns in self._ledger.query(query, *([] if device is None else [device])):
                subject = _decode(bytes(body))
                facts = CommonFacts(subject.fingerprint, subject.energy_kind, subject.accuracy_kind)
                members.setdefault(subject.series, []).append(_Member(number, subject, facts, runs, row, newest_ns, apart.get(number, 0)))
        except BaseException:
            self._ledger.close()
            raise
        self._members = {key: members[key] for key in sorted(members, key=series_order)}

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def series(self) -> Sequence[SeriesKey]:
        """Return every series, sorted."""
        return list(self._members)

    def points(self, key: SeriesKey, since_day: int = 0) -> Points:
        """Return the runs of a series since a day, oldest first."""
        members = {member.number: member for member in self._members.get(key, ())}
        query = f"{_POINTS} WHERE subject IN ({', '.join('?' * len(members))}) AND at_ns >= ? ORDER BY at_ns, row"
        points = []
        for number, *row in self._ledger.query(query, *members, since_day * NS_PER_DAY):
            member = members[number]
            subject = member.subject
            kinds = subject.energy_kind, subject.energy_by, subject.energy_provenance, subject.accuracy_kind
            run = run_of_row((*row[:5], bool(row[5]), row[6], member.has_own_energy, number, *kinds, *row[7:]))
            points.append((run, member.facts.below))
        return points

    def columns(self, keys: Sequence[SeriesKey], names: Sequence[str], since_day: int = 0) -> RunColumns:
        """Return the runs of each series since a day, with the figures of these names."""
        members_of_keys = [(number, member) for number, key in enumerate(keys) for member in self._members.get(key, ())]
        members = [member for _, member in members_of_keys]
        rows = self._rows(members, names, since_day)
        numbers = np.array([member.number for member in members], np.float64)
        by_number = np.argsort(numbers)
        member_of_row = by_number[np.searchsorted(numbers, rows[:, 0], sorter=by_number)] if members else rows[:, 0].astype(np.intp)
        series = np.array([number for number, _ in members_of_keys], np.intp)[member_of_row]
        order = np.lexsort((rows[:, 4], rows[:, 3], series))
        member_of_row = member_of_row[order]
        facts = {fact: number for number, fact in enumerate(dict.fromkeys(member.facts for member in members))}
        has_own_energy = np.array([bool(member.has_own_energy) for member in members], np.bool_)[member_of_row]
        return RunColumns(
            edges=np.searchsorted(series[order], np.arange(len(keys) + 1)),
            day=rows[order, 1].astype(np.int64),
            is_ok=rows[order, 2] > 0,
            common=np.array([facts[member.facts] for member in members], np.intp)[member_of_row],
            facts=list(facts),
            figures={name: _followed(name, rows[order, _FIRST + column], has_own_energy) for column, name in enumerate(names)},
        )

    def _rows(self, members: Sequence[_Member], names: Sequence[str], since_day: int) -> NDArray[np.float64]:
        """Return the runs of these subjects: subject, day, whether it is ok, time, row, and the figures of these names."""
        selected = ", ".join((f"subject, at_ns / {NS_PER_DAY}, verdict = 'ok' AND siblings IS NULL, at_ns, row", *names))
        numbers, last_row = [member.number for member in members], max((member.newest_row for member in members), default=0)
        if _LOOKED_UP * sum(member.runs for member in members) > last_row:
            parts = [("row > ? AND row <= ?", [first, first + _PAGE]) for first in range(0, last_row, _PAGE)]
        else:
            batches = [numbers[first : first + _SUBJECTS] for first in range(0, len(numbers), _SUBJECTS)]
            parts = [(f"subject IN ({', '.join('?' * len(part))})", part) for part in batches]
        pages = [np.zeros((0, _FIRST + len(names)))]
        for condition, values in parts:
            query = f"SELECT {selected} FROM runs WHERE {condition} AND at_ns >= ?"  # noqa: S608 - our own names
            page = np.array(self._ledger.query(query, *values, since_day * NS_PER_DAY), np.float64).reshape(-1, _FIRST + len(names))
            pages.append(page[np.isin(page[:, 0], numbers)])
        return np.concatenate(pages)

    def last_day(self, key: SeriesKey) -> int:
        """Return the day of the newest run of a series."""
        return max((member.newest_ns for member in self._members.get(key, ())), default=0) // NS_PER_DAY

    def newest_day(self) -> int:
        """Return the day of the newest run of all, also where only those of one device are read."""
        return int(self._ledger.query("SELECT coalesce(max(at_ns), 0) FROM runs")[0][0]) // NS_PER_DAY

    def received_ns(self, key: SeriesKey) -> int:
        """Return when the last run of the series was received."""
        row = max((member.newest_row for member in self._members.get(key, ())), default=0)
        query = "SELECT coalesce(max(received_ns), 0) FROM runs JOIN chunks USING (chunk) WHERE row = ?"
        return int(self._ledger.query(query, row)[0][0])

    def runs(self, key: SeriesKey) -> int:
        """Return how many runs a series has."""
        return sum(member.runs for member in self._members.get(key, ()))

    def version(self, key: SeriesKey) -> object:
        """Return what changes with the runs of a series."""
        return [(member.number, member.runs, member.newest_row, member.apart) for member in self._members.get(key, ())]


def _followed(name: str, values: NDArray[np.float64], has_own_energy: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the values of a column, NaN where `TrendMetric.value` has None."""
    if name not in METRICS:
        return values
    metric = METRICS[name]
    refused = ~has_own_energy if metric.figure.group == "energy" else np.zeros(len(values), np.bool_)
    if metric.rule.scale == "log":
        refused |= values <= 0
    return np.where(refused, np.nan, values)


@contextmanager
def open_history(where: Sequence[str], device: str | None = None) -> Iterator[History]:
    """Give the history of the store at `where`: of one ledger from its rows, of documents (and several stores) in memory.

    Raises:
        ConfigError: a store is absent or invalid.
    """
    store = open_store(*where)
    if isinstance(store, LedgerStore):
        with closing(LedgerHistory(store.place, device)) as history:
            yield history
        return
    contents = store.contents()
    if not contents.runs and contents.left_out:
        raise ConfigError(f"no run in {', '.join(map(shown_place, where))} can be read: {contents.left_out[0].reason}")
    yield RunHistory(contents.runs)
