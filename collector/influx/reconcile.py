"""Comparison of a ledger with its InfluxDB, run by run, and the repair: a backup, a script or a person may change what the drain wrote.

Every run that was drained has one point, at the time that its record and its receipt give, under one set of tags. Times and ids are
compared; the figures in a point are not (`collector drain --again` writes them anew).
"""

import itertools
import json
import operator
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.record import RunRecord, decode
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.chunks import HeldChunk
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.collector.influx.client import InfluxHttp
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.point_schema import MEASUREMENT
from edgemeter.collector.influx.points import Points, forget_tags, plain_tag, point_ns
from edgemeter.collector.influx.reconciliation import KINDS, DayDifference, DifferenceKind, Reconciliation
from edgemeter.collector.influx.sink import Sink

# Runs of the ledger that are compared at once; some 10 MB.
SLICE_RUNS = 20_000
TIMES_TO_A_PAUSE = 100
# InfluxQL's own limits.
FIRST_NS, LAST_NS = -9_223_372_036_854_775_806, 9_223_372_036_854_775_806
_UNITS_S = {"h": 3600, "m": 60, "s": 1}
_POINTS = f'SELECT "id", "device", "case_hash" FROM "{MEASUREMENT}" WHERE time >= %d AND time < %d'  # noqa: S608 - our own names
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Keys = np.ndarray[Any, np.dtype[np.uint64]]


class _Envelope(msgspec.Struct):
    """The fields of a record that give the time and the name of its point; one that was removed has none."""

    id: str = ""
    device: str = ""
    session: int | None = None
    seq: int | None = None
    started_at_ns: int = 0
    stamped_by: str = "device"


_envelopes = msgspec.json.Decoder(list[_Envelope]).decode


class _Difference(NamedTuple):
    """One of a point; `row` is that of its run, 0 where no point belongs there."""

    kind: DifferenceKind
    at_ns: int
    device: str
    run_id: str
    row: int


@dataclass(slots=True)
class _SliceOutcome:
    """A part of the time: runs and points by day, and the differences. `untagged` ones are to be replaced, like doubled ones."""

    runs: Counter[int] = field(default_factory=Counter)
    points: Counter[int] = field(default_factory=Counter)
    differences: list[_Difference] = field(default_factory=list)
    untagged: list[_Difference] = field(default_factory=list)
    expired: int = 0
    refused: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class _LedgerSide:
    """The runs of a ledger in the order of their points' times: time, key and row of each; `keys` are sorted.

    Those up to `position` were drained. `withdrawn` and `refused` are keys, too.
    """

    at_ns: Numbers
    key: Keys
    row: Numbers
    keys: Keys
    position: int
    withdrawn: frozenset[int]
    refused: frozenset[int]

    def has(self, key: int) -> bool:
        """Return whether a run has this key, at whatever time."""
        index = int(np.searchsorted(self.keys, np.uint64(key)))
        return index < len(self.keys) and int(self.keys[index]) == key

    def between(self, first_ns: int, end_ns: int) -> Iterator[tuple[int, int, int]]:
        """Yield time, key and row of the runs in a part of the time."""
        first, end = (int(np.searchsorted(self.at_ns, bound)) for bound in (first_ns, end_ns))
        return zip(*(column[first:end].tolist() for column in (self.at_ns, self.key, self.row)), strict=True)

    def slices(self) -> list[tuple[int, int]]:
        """Return parts of the time with about `SLICE_RUNS` runs each, newest first."""
        inner = sorted({int(at_ns) for at_ns in self.at_ns[SLICE_RUNS::SLICE_RUNS]})
        return list(itertools.pairwise([FIRST_NS, *inner, LAST_NS]))[::-1]


class Reconciler:
    """Compares `ledger` with the InfluxDB of `sink`, which writes and deletes; `reader` is the same place with a token that may read.

    `pause` is called some hundred times a second of work; what it raises ends the comparison.
    """

    def __init__(
        self, ledger: Ledger, sink: Sink, points: Points, reader: InfluxConfig, pause: Callable[[], object] = lambda: None
    ) -> None:
        self._ledger, self._sink, self._points, self._reader, self._pause = ledger, sink, points, reader, pause

    def reconcile(self, *, repairs: bool, retags: bool = False) -> Reconciliation:
        """Compare every run, newest first; with `repairs` delete and write what differs, then compare that again.

        With `retags` points from before the tag `case_hash` are written again with it.

        Raises:
            ConfigError: the token may not read, write or delete, or the ledger was not drained to this place.
            TransientError: the server or the ledger does not answer now.
        """
        at_ns = time.time_ns()
        side = self._ledger_side()
        counts, kinds_of_day, remaining = _SliceOutcome(), defaultdict[int, Counter[str]](Counter), Counter[str]()
        untagged = repaired = 0
        with closing(InfluxHttp(self._reader)) as http:
            oldest_ns = _oldest_ns(http, self._reader, at_ns)
            for bounds in side.slices():
                before = after = self._compare(http, side, bounds, oldest_ns)
                to_mend = [*(before.differences if repairs else ()), *(before.untagged if retags else ())]
                if to_mend:
                    expired_rows, refused_rows = self._mend(to_mend)
                    after = self._compare(http, side, bounds, oldest_ns, expired_rows | refused_rows)
                    after.expired += len(expired_rows)
                    after.refused += len(refused_rows)
                    repaired += len(before.differences) - len(after.differences) - len(expired_rows | refused_rows)
                for difference in before.differences:
                    kinds_of_day[difference.at_ns // NS_PER_DAY][difference.kind] += 1
                counts.runs += before.runs
                counts.points += before.points
                counts.expired += after.expired
                counts.refused += after.refused
                counts.unknown += after.unknown
                untagged += len(after.untagged)
                remaining += Counter(difference.kind for difference in after.differences)
        days = tuple(
            DayDifference(str(np.datetime64(day, "D")), counts.runs[day], counts.points[day], dict(kinds))
            for day, kinds in sorted(kinds_of_day.items())
        )
        return Reconciliation(
            sink=self._sink.name, at_ns=at_ns, runs=counts.runs.total(), points=counts.points.total(), expired=counts.expired,
            refused=counts.refused, unknown=counts.unknown, untagged=untagged, repaired=repaired, days=days,
            remaining={kind: remaining[kind] for kind in KINDS if remaining[kind]},
        )  # fmt: skip

    def _ledger_side(self) -> _LedgerSide:
        # First: what is drained meanwhile is not expected.
        position = self._ledger.position(self._sink.name)
        if not position:
            raise ConfigError(f"the ledger was not drained to {self._sink.name} yet: start `collector up --influx URL`, then compare")
        at_ns, keys, rows = array("q"), array("Q"), array("q")
        for chunk in self._ledger.chunks():
            for row, envelope in _envelopes_of(chunk):
                at_ns.append(_point_ns(envelope, chunk.received_ns))
                keys.append(_key(envelope.device, envelope.id))
                rows.append(row)
            self._pause()
        history = LedgerRuns(self._ledger)
        ended = {event.id: event.device for event in history.events() if event.action in ("excluded", "deleted")}
        refused = [entry for entry in self._ledger.quarantined() if quarantine.is_sinks(entry.topic)]
        references = [quarantine.read_reference(entry.payload) for entry in refused]
        times, names = np.frombuffer(at_ns, np.int64), np.frombuffer(keys, np.uint64)
        order = np.argsort(times, kind="stable")
        return _LedgerSide(
            times[order],
            names[order],
            np.frombuffer(rows, np.int64)[order],
            np.sort(names),
            position,
            frozenset(_key(device, run_id) for run_id, device in ended.items() if not history.is_counted(run_id)),
            frozenset(_key(reference.device, reference.id) for reference in references),
        )

    def _compare(
        self, http: InfluxHttp, side: _LedgerSide, bounds: tuple[int, int], oldest_ns: int, excused: Collection[int] = ()
    ) -> _SliceOutcome:
        """Return what a part of the time shows; `excused` are rows that InfluxDB would not take."""
        outcome = _SliceOutcome()
        runs = itertools.groupby(side.between(*bounds), operator.itemgetter(0))
        points = itertools.groupby(self._points_there(http, bounds), operator.itemgetter("time"))
        for number, (at_ns, runs_then, points_then) in enumerate(_side_by_side(runs, points)):
            if number % TIMES_TO_A_PAUSE == 0:
                self._pause()
            rows = {key: row for _, key, row in runs_then}
            present = _note_points(outcome, side, at_ns, rows, points_then)
            drained_rows = {key: row for key, row in rows.items() if row <= side.position}
            outcome.runs[at_ns // NS_PER_DAY] += len(drained_rows)
            for key, row in drained_rows.items():
                if key not in present and row not in excused:
                    _note_absent(outcome, side, at_ns, key, row, oldest_ns)
        return outcome

    def _points_there(self, http: InfluxHttp, bounds: tuple[int, int]) -> Iterator[dict[str, Any]]:
        try:
            yield from http.rows(_POINTS % bounds)
        except ConfigError as error:
            raise ConfigError(f"{error}; the token has to be one that may read: --influx-read-token-file") from error

    def _mend(self, differences: Sequence[_Difference]) -> tuple[set[int], set[int]]:
        """Delete surplus points, and write what the ledger has there; return the rows that InfluxDB no longer retains, and refuses."""
        history = LedgerRuns(self._ledger)
        surplus = {}
        for difference in differences:
            # It may have been included again meanwhile.
            if difference.kind != "missing" and not (difference.kind == "withdrawn" and history.is_counted(difference.run_id)):
                surplus[difference.device, difference.at_ns] = difference
        for device, at_ns in sorted(surplus):
            self._sink.remove(device, at_ns)
            self._pause()
        if self._points.known is not None and self._points.known.refresh(self._ledger):
            forget_tags()
        expired, refused = set[int](), set[int]()
        for chunk in self._ledger.chunks_at(sorted({difference.row for difference in differences if difference.row})):
            written = [(row, line) for row, lines in self._points.of_chunk(chunk) for line in lines]
            if self._points.known is not None:
                self._points.known.save(self._ledger)
            for point in self._sink.write([line for _, line in written]):
                (expired if point.is_expired else refused).add(written[point.index][0])
            self._pause()
        return expired, refused


def _note_points(outcome: _SliceOutcome, side: _LedgerSide, at_ns: int, rows: dict[int, int], points: Iterable[dict[str, Any]]) -> set[int]:
    """Note the points of one time, where runs of these keys and rows belong; return the keys that are there."""
    present = set[int]()
    for point in points:
        if point["id"] is None:
            continue
        device, run_id = str(point["device"] or ""), str(point["id"])
        key = _key(device, run_id)
        if key in rows:
            outcome.points[at_ns // NS_PER_DAY] += 1
            difference = _Difference("doubled", at_ns, device, run_id, rows[key])
            if key in present:
                outcome.differences.append(difference)
            elif point["case_hash"] is None:
                outcome.untagged.append(difference)
            present.add(key)
        elif side.has(key) or key in side.withdrawn:
            kind: DifferenceKind = "misplaced" if side.has(key) else "withdrawn"
            outcome.differences.append(_Difference(kind, at_ns, device, run_id, 0))
        else:
            outcome.unknown += 1
    return present


def _note_absent(outcome: _SliceOutcome, side: _LedgerSide, at_ns: int, key: int, row: int, oldest_ns: int) -> None:
    if key in side.refused:
        outcome.refused += 1
    elif at_ns < oldest_ns:
        outcome.expired += 1
    else:
        outcome.differences.append(_Difference("missing", at_ns, "", "", row))


def _side_by_side(
    runs: Iterator[tuple[int, Iterable[tuple[int, int, int]]]], points: Iterator[tuple[int, Iterable[dict[str, Any]]]]
) -> Iterator[tuple[int, Iterable[tuple[int, int, int]], Iterable[dict[str, Any]]]]:
    """Yield each time, in order, with its runs and its points."""
    run, point = next(runs, None), next(points, None)
    while run is not None or point is not None:
        if point is None or (run is not None and run[0] < point[0]):
            yield cast("tuple[int, Any]", run)[0], cast("tuple[int, Any]", run)[1], ()
            run = next(runs, None)
        elif run is None or point[0] < run[0]:
            yield point[0], (), point[1]
            point = next(points, None)
        else:
            yield run[0], run[1], point[1]
            run, point = next(runs, None), next(points, None)


def _envelopes_of(chunk: HeldChunk) -> Iterator[tuple[int, _Envelope]]:
    if not chunk.is_checked:
        for row, payload in chunk.payloads():
            try:
                record = decode(payload)
            except ConfigError:
                # It will be quarantined, and is never drained.
                continue
            yield row, _Envelope(record.id, record.device, record.session, record.seq, record.started_at_ns, record.stamped_by)
        return
    envelopes = _envelopes(chunk.text)
    for row, index in chunk.rows:
        if envelopes[index].id:
            yield row, envelopes[index]


def _point_ns(envelope: _Envelope, received_ns: int) -> int:
    # Both read no other fields of a record.
    return point_ns(placed(cast("RunRecord", envelope), received_ns))


def _key(device: str, run_id: str) -> int:
    return int.from_bytes(blake2b(f"{plain_tag(device)}\0{run_id}".encode(), digest_size=8).digest(), "big")


def _oldest_ns(http: InfluxHttp, config: InfluxConfig, now_ns: int) -> int:
    """Return the time before which the place retains no point; what is refused for its age is known when it is written, too."""
    try:
        if config.database is None:
            # InfluxQL says nothing of a bucket's retention.
            listing = json.loads(http.send("GET", "/api/v2/buckets", {"name": config.bucket} | ({"org": config.org} if config.org else {})))
            kept_s = [rule["everySeconds"] for bucket in listing["buckets"] for rule in bucket["retentionRules"]]
        else:
            policies = http.rows(f"SHOW RETENTION POLICIES ON {json.dumps(config.database)}")
            kept_s = [
                _seconds(rule["duration"]) for rule in policies if (rule["name"] == config.policy if config.policy else rule["default"])
            ]
    except (EdgemeterError, ValueError, KeyError, TypeError, RecursionError):
        return FIRST_NS
    return now_ns - int(kept_s[0]) * 10**9 if kept_s and kept_s[0] else FIRST_NS


def _seconds(text: str) -> int:
    """Return a duration as InfluxDB 1 writes it, `168h0m0s`."""
    total, digits = 0, ""
    for character in text:
        if character.isdigit():
            digits += character
        else:
            total += int(digits or 0) * _UNITS_S[character]
            digits = ""
    return total
