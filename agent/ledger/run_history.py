"""The history of a ledger's runs, which says by whom, when and why each was changed.

It has notes, exclusions, inclusions and deletions.

An excluded or deleted run has no row, so no statistic, page or export reads it. Its number is
remembered, like those that retention removes: a device that delivers the record again gets a
receipt, and the record does not return. The record of an excluded run is kept until it is included
again or deleted.
"""

import re
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Literal, NamedTuple

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.number_text import stamp
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.record import RunRecord, decode
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.ledger.chunks import (
    REMOVED,
    arrived,
    pack_chunk,
    skipped_record,
    unpack_chunk,
    warn_of_skipped,
)
from edgemeter.agent.ledger.ledger import HeldRecord, Ledger, default_path
from edgemeter.agent.ledger.run_row import judge_siblings

RunAction = Literal["noted", "excluded", "included", "deleted"]
RunState = Literal["counted", "excluded"]
# The conditions that filter a list, each a column of the rows.
NARROWED = ("device", "fleet", "model", "runtime", "precision")
_COLUMN = {name: "runs.device" if name == "device" else name for name in NARROWED}
# Shorter beginnings of an id are accepted by `edgemeter runs` only: elsewhere they could be a
# mistyped file.
ID = re.compile(r"[A-Za-z0-9-]{4,}")
_NAMED = 5  # Candidates that are listed for an ambiguous id.
_EVENT_COLUMNS = ("number", "action", "id", "device", "model", "author", "at_ns", "text")
_EVENTS = f"SELECT {', '.join(_EVENT_COLUMNS)} FROM run_events"  # noqa: S608 - our own names
# The identity of the run, kept with each event.
_ABOUT = "id, device, session, seq, model, started_at_ns, stamped_by, received_ns"
_ADD = (
    # The SQL contains only our own names.
    f"INSERT INTO run_events (action, {_ABOUT}, author, at_ns, text, body) VALUES "  # noqa: S608
    f"({', '.join('?' * 13)})"
)
_JOINED = "FROM runs JOIN subjects USING (subject) JOIN chunks USING (chunk)"
_ROWS = (
    f"SELECT row, received_ns, chunk, place, session_started_at_ns, runs.case_number {_JOINED} "
    "WHERE id = ? ORDER BY row"
)
_WITHDRAWN = (
    # The SQL contains only our own names.
    f"SELECT number, left_sinks, {_ABOUT} FROM run_events WHERE action IN "  # noqa: S608
    "('excluded', 'deleted') ORDER BY number"
)
_EXCLUDED = "SELECT number, id, received_ns, body FROM run_events WHERE body IS NOT NULL"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An action of `author` on a run; `text` is a note, or the reason."""

    number: int
    action: RunAction
    id: str
    device: str
    model: str
    author: str
    at_ns: int
    text: str


class ListedRun(NamedTuple):
    """A run of the ledger without its samples.

    It has the time of its receipt if its own cannot be true; `events` are oldest first.
    """

    record: RunRecord
    state: RunState
    events: tuple[RunEvent, ...]


class WithdrawnRun(NamedTuple):
    """An excluded or deleted run, with the facts by which a sink finds it."""

    id: str
    device: str
    session: int
    seq: int
    model: str
    started_at_ns: int
    stamped_by: str
    received_ns: int


def nothing_called(text: str) -> str:
    """Return a remedy for `text` that is neither a file nor a run: a suggestion."""
    if Path(text).expanduser() == default_path():
        return (
            f"no run is kept in {text!r} yet: measure with `edgemeter run MODEL`, or name "
            "another file with --ledger"
        )
    if text.isalnum() and not ID.fullmatch(text):
        return (
            f"there is no file {text!r}, and it is too short for a run's id: write 4 letters of "
            "it or more, see `edgemeter runs`"
        )
    if ID.fullmatch(text):
        return (
            f"{text!r} is neither a file, a model nor the beginning of a run's id: `edgemeter "
            "runs` lists the runs"
        )
    return (
        f"there is no file {text!r}: correct the path, or give the id of a run, "
        "see `edgemeter runs`"
    )


class LedgerRuns:
    """The runs of `ledger` and their history."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def events(self, run_id: str | None = None) -> list[RunEvent]:
        """Return the history, oldest first, of one run or of all."""
        condition, values = ("", ()) if run_id is None else ("WHERE id = ?", (run_id,))
        return [
            RunEvent(*row)
            for row in self.ledger.query(f"{_EVENTS} {condition} ORDER BY number", *values)
        ]

    def runs(
        self,
        conditions: Mapping[str, str],
        since_ns: int | None = None,
        limit: int | None = None,
        rows: Container[int] | None = None,
    ) -> list[ListedRun]:
        """Return the runs that match `conditions` (columns of `NARROWED`), newest first.

        Runs that are too old are left out, excluded ones are not.

        With `rows`, only the runs of these rows; excluded runs have none.
        """
        # A name with a suffix that is not a model's name is a file name, which is not a column:
        # read records until enough match.
        is_file = (
            bool(PurePath(conditions.get("model", "")).suffix)
            and conditions["model"] not in self.models()
        )
        columns = [
            name for name in NARROWED if name in conditions and not (is_file and name == "model")
        ]
        where = " AND ".join(["started_at_ns >= ?", *(f"{_COLUMN[name]} = ?" for name in columns)])
        values = [since_ns or 0, *(conditions[name] for name in columns)]
        bound = "" if limit is None or is_file or rows is not None else f"LIMIT {limit}"
        query = f"SELECT row {_JOINED} WHERE {where} ORDER BY started_at_ns DESC, row DESC {bound}"
        placed_runs = (
            placed(entry.record, entry.received_ns)
            for (row,) in self.ledger.query(query, *values)
            if rows is None or row in rows
            for entry in self._entries(row)
        )
        counted = [
            (record, "counted")
            for record in islice((run for run in placed_runs if _matches(run, conditions)), limit)
        ]
        excluded = [
            (record, "excluded")
            for record in (placed(entry.record, entry.received_ns) for entry in self._excluded())
            if rows is None
            and record.started_at_ns >= (since_ns or 0)
            and _matches(record, conditions)
        ]
        by_id: dict[str, list[RunEvent]] = {}
        for event in self.events():
            by_id.setdefault(event.id, []).append(event)
        newest = sorted(
            [*counted, *excluded], key=lambda entry: entry[0].started_at_ns, reverse=True
        )[:limit]
        return [
            ListedRun(record, state, tuple(by_id.get(record.id, ())))  # type: ignore[arg-type]
            for record, state in newest
        ]

    def models(self) -> list[str]:
        """Return the names of the models that have runs, sorted."""
        return [
            name
            for (name,) in self.ledger.query(
                "SELECT DISTINCT model FROM runs JOIN subjects USING (subject) ORDER BY model"
            )
        ]

    def find(self, prefix: str) -> str:
        """Return the id that begins with `prefix`, of a counted or excluded run.

        Raises:
            ConfigError: there is none, or several.
        """
        if (run_id := self.lookup(prefix)) is None:
            raise ConfigError(
                f"no run's id begins with {prefix!r} in {self.ledger.where}: list the runs with "
                "`edgemeter runs`"
            )
        return run_id

    def lookup(self, prefix: str) -> str | None:
        """Return the id as `find`, None if no run has or had it.

        Raises:
            ConfigError: there are several, or it was deleted.
        """
        ids = {
            run_id
            for (run_id,) in self.ledger.query(
                "SELECT DISTINCT id FROM runs WHERE substr(id, 1, ?) = ?", len(prefix), prefix
            )
        }
        ids |= {
            run_id for _, run_id, *_ in self.ledger.query(_EXCLUDED) if run_id.startswith(prefix)
        }
        if prefix in ids:
            return prefix
        if len(ids) == 1:
            return str(ids.pop())
        if ids:
            named = ", ".join(sorted(ids)[:_NAMED]) + (
                f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
            )
            raise ConfigError(
                f"{prefix!r} begins the ids of {len(ids)} runs ({named}): write more of it"
            )
        deleted = [
            event
            for event in self.events()
            if event.action == "deleted" and event.id.startswith(prefix)
        ]
        if deleted and prefix:
            event = deleted[-1]
            raise ConfigError(
                f"run {event.id} was deleted by {event.author} on {stamp(event.at_ns)} "
                f"({event.text or 'no reason stated'})"
            )
        return None

    def entry(self, run_id: str, *, with_samples: bool = False) -> HeldRecord:
        """Return the stored record of a run; the row of an excluded one is 0.

        Raises ConfigError if it cannot be read.
        """
        for row, *_ in self.ledger.query(_ROWS, run_id):
            for entry in self._entries(row, with_samples=with_samples):
                return entry
        for entry in self._excluded(with_samples=with_samples):
            if entry.record.id == run_id:
                return entry
        raise ConfigError(
            f"run {run_id} is in {self.ledger.where}, but cannot be read: the line above says why"
        )

    def is_counted(self, run_id: str) -> bool:
        return bool(self.ledger.query("SELECT 1 FROM runs WHERE id = ? LIMIT 1", run_id))

    def note(self, run_id: str, text: str, author: str) -> None:
        entry = self.entry(run_id)
        with self.ledger.writing() as statements:
            _add(statements, "noted", _about(entry.record, entry.received_ns), author, text)

    def withdraw(
        self, run_id: str, action: Literal["excluded", "deleted"], author: str, reason: str
    ) -> list[tuple[str, int, int]]:
        """Remove a run from every statistic; return its numbers (device, session, seq).

        The record of a deleted run is gone for good.
        """
        # A list of runs does not need it.
        from edgemeter.agent.ledger.retention import remember  # noqa: PLC0415

        numbers = []
        with self.ledger.writing() as statements:
            bodies = (
                []
                if action == "excluded"
                else statements.execute(f"{_EXCLUDED} AND id = ?", (run_id,)).fetchall()
            )
            withdrawn = [
                (unpack_chunk(bytes(body))[0], received_ns) for _, _, received_ns, body in bodies
            ]
            for row, received_ns, chunk, index, session_ns, case in statements.execute(
                _ROWS, (run_id,)
            ).fetchall():
                withdrawn.append((self._take_out(statements, chunk, index), received_ns))
                statements.execute("DELETE FROM runs WHERE row = ?", (row,))
                judge_siblings(statements, [(session_ns, case)] if session_ns else ())
            statements.execute("UPDATE run_events SET body = NULL WHERE id = ?", (run_id,))
            for payload, received_ns in withdrawn:
                record = decode(payload)
                numbers.append((record.device, record.session or 0, record.seq or 0))
                remember(statements, numbers[-1:])
                body = pack_chunk([payload]) if action == "excluded" else None
                _add(statements, action, _about(record, received_ns), author, reason, body)
        return numbers

    def include(self, run_id: str, author: str, reason: str) -> None:
        """Count an excluded run again. It gets a new row, so that every sink receives it.

        Raises:
            ConfigError: its number has been given to another record.
        """
        from edgemeter.agent.contract.messages import Topic  # noqa: PLC0415 - as above
        from edgemeter.agent.ledger.retention import recall  # noqa: PLC0415

        for number, _, received_ns, body in self.ledger.query(f"{_EXCLUDED} AND id = ?", run_id):
            (payload,) = unpack_chunk(bytes(body))
            record = decode(payload)
            # If interrupted in between, the run is still excluded, and the same call includes it
            # again.
            with self.ledger.writing() as statements:
                recall(statements, record.device, record.session or 0, record.seq or 0)
            topic = str(Topic(record.fleet, record.device, "result"))
            if self.ledger.commit([arrived(record, payload, topic, received_ns)]).collisions:
                raise ConfigError(
                    f"run {run_id} cannot be included: another record has its number, see "
                    "`edgemeter collector status`"
                )
            with self.ledger.writing() as statements:
                statements.execute("UPDATE run_events SET body = NULL WHERE number = ?", (number,))
                _add(statements, "included", _about(record, received_ns), author, reason)

    def withdrawn(self, sink: str) -> list[tuple[int, WithdrawnRun]]:
        """Return the excluded or deleted runs that the `sink` may still have.

        They are by the number of the event.
        """
        remaining = [
            (number, WithdrawnRun(*about))
            for number, sinks, *about in self.ledger.query(_WITHDRAWN)
            if sink not in sinks.split("\n")
        ]
        return [(number, run) for number, run in remaining if not self.is_counted(run.id)]

    def note_removed(self, number: int, sink: str) -> None:
        """Note that the sink no longer has the run of an event."""
        with self.ledger.writing() as statements:
            statements.execute(
                "UPDATE run_events SET left_sinks = left_sinks || ? WHERE number = ?",
                (f"{sink}\n", number),
            )

    def _take_out(self, statements: Statements, chunk: int, index: int) -> bytes:
        """Remove a record from its chunk, and return its JSON text."""
        payloads = unpack_chunk(
            bytes(
                statements.execute("SELECT body FROM chunks WHERE chunk = ?", (chunk,)).fetchone()[
                    0
                ]
            )
        )
        payload, payloads[index] = payloads[index], REMOVED
        statements.execute(self.ledger.set_body, (pack_chunk(payloads), chunk))
        return payload

    def _entries(self, row: int, *, with_samples: bool = False) -> Iterator[HeldRecord]:
        return self.ledger.records(with_samples=with_samples, rows=[row])

    def _excluded(self, *, with_samples: bool = False) -> Iterator[HeldRecord]:
        for _, _, received_ns, body in self.ledger.query(_EXCLUDED):
            (payload,) = unpack_chunk(bytes(body))
            try:
                record = decode(payload)
            except ConfigError as error:
                warn_of_skipped(skipped_record(0, payload, error))
                continue
            yield HeldRecord(
                0,
                received_ns,
                record if with_samples else msgspec.structs.replace(record, samples=()),
            )


def _matches(record: RunRecord, conditions: Mapping[str, str]) -> bool:
    is_of_model = "model" not in conditions or record.model.is_called(conditions["model"])
    return is_of_model and all(
        (record.runtime.name if name == "runtime" else getattr(record, name)) == value
        for name, value in conditions.items()
        if name in NARROWED and name != "model"
    )


def _about(record: RunRecord, received_ns: int) -> WithdrawnRun:
    record_in_time = placed(record, received_ns)
    return WithdrawnRun(
        record.id,
        record.device,
        record.session or 0,
        record.seq or 0,
        record.model.name,
        record_in_time.started_at_ns,
        record_in_time.stamped_by,
        received_ns,
    )


def _add(
    statements: Statements,
    action: RunAction,
    run: WithdrawnRun,
    author: str,
    text: str,
    body: bytes | None = None,
) -> None:
    # PostgreSQL stores no NUL in a text.
    words = [word.replace("\0", "\ufffd") for word in (author, text)]
    statements.execute(_ADD, (action, *run, words[0], time.time_ns(), words[1], body))
