"""Fills the tables for SQL from the ledger: in the order of its rows, never ahead of it, each row once."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple
from functools import partial
from typing import Any

import msgspec

from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.contract.record import decode
from edgemeter.agent.contract.record_time import placed
from edgemeter.collector.influx.status_points import DEVICE_FIELDS
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.postgresql.schema import LedgerSession
from edgemeter.collector.sql_views.columns import (
    CONTEXT_COLUMNS,
    DEVICE_COLUMNS,
    RUN_COLUMNS,
    Contexts,
    SqlColumn,
    array_of,
    storable,
)
from edgemeter.collector.sql_views.set_up import SINK, position_name, upsert
from edgemeter.collector.trend.changes import FleetChange

BATCH_ROWS = 2000
POLL_S = 5.0
# How often presence and health are written where they changed, and where they did not: what is due depends on the time.
DEVICES_EVERY_S, DEVICES_AGAIN_S = 60.0, 3600.0
_ROW, _CONTEXT = SqlColumn("row", "bigint", ""), SqlColumn("context", "bigint", "")
_DEVICE = (SqlColumn("fleet", "text", ""), SqlColumn("device", "text", ""), *DEVICE_COLUMNS)
_RUNS = (_ROW, _CONTEXT, *RUN_COLUMNS)
_CONTEXTS = (_CONTEXT, *CONTEXT_COLUMNS)
_ADD_RUNS = upsert("sql_runs", ("row",), _RUNS)
_ADD_CONTEXTS = upsert("sql_contexts", ("context",), _CONTEXTS)
_ADD_DEVICES = upsert("sql_devices", ("fleet", "device"), _DEVICE)
_MOVE = "UPDATE sinks SET position = ? WHERE name = ? AND position = ?"
_READERS = tuple(column.read for column in RUN_COLUMNS if column.read)


class ViewsFiller:
    """Fills the tables of the ledger at `address`; of several collectors of it one does. For one thread; `close` it.

    The position moves in the transaction that adds the rows, and only from where they begin: who was frozen or is doubled adds nothing.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._ledger = open_ledger(address)
        self._session = LedgerSession(address)
        self._contexts = Contexts()
        self._devices: dict[tuple[str, str], object] = {}
        self._devices_due_s = self._again_due_s = 0.0

    def close(self) -> None:
        """Close the connections, and let another one fill."""
        self._session.close()
        self._ledger.close()

    def fill(self) -> bool:
        """Add what the ledger has; return False where another one does it, or the tables are absent or of another version.

        Raises:
            EdgemeterError: the server does not answer, or the like: try again.
        """
        position = self._ledger.positions().get(position_name()) if self._ledger.lease(SINK) else None
        if position is None:
            return False
        try:
            for last_row, rows in self._batches(position):
                if not self._add(position, last_row, rows) or not self._ledger.lease(SINK):
                    return False
                position = last_row
        except BaseException:
            # After a rollback or a failover what was stored may be gone.
            self._contexts.clear()
            raise
        self._add_devices()
        return True

    def _batches(self, position: int) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        """Yield the rows to add after `position`, and the last row of the ledger that they are up to.

        A record that cannot be read has none.
        """
        rows: list[tuple[Any, ...]] = []
        last_row = position
        for chunk in self._ledger.chunks(after_row=position):
            for last_row, values in chunk.read_each(partial(self._values, chunk.received_ns)):
                if values is not None:
                    rows.append((last_row, *values))
                if len(rows) >= BATCH_ROWS:
                    yield last_row, rows
                    position, rows = last_row, []
        if last_row > position:
            yield last_row, rows

    def _values(self, received_ns: int, raw: msgspec.Raw) -> tuple[Any, ...]:
        run = placed(decode(raw), received_ns)
        return self._contexts.number(run), *(read(run) for read in _READERS)

    def _add(self, position: int, last_row: int, rows: Sequence[Sequence[Any]]) -> bool:
        """Add rows and move the position from `position` to `last_row`; return False if it is another one meanwhile."""
        contexts = [(number, *values) for number, values in self._contexts.unsaved.items()]
        with self._session.transaction() as statements:
            moved = statements.execute(_MOVE, (last_row, position_name(), position)).rowcount
            if moved and contexts:
                statements.execute(_ADD_CONTEXTS, _arrays(_CONTEXTS, contexts))
            if moved and rows:
                statements.execute(_ADD_RUNS, _arrays(_RUNS, rows))
        self._contexts.unsaved.clear()
        return bool(moved)

    def _add_devices(self) -> None:
        now_s, now_ns = time.monotonic(), time.time_ns()
        if now_s < self._devices_due_s:
            return
        if now_s >= self._again_due_s:
            self._devices.clear()
            self._again_due_s = now_s + DEVICES_AGAIN_S
        changed = [device for device in self._ledger.devices() if self._devices.get((device.fleet, device.device)) != device]
        rows = [(device.fleet, device.device, *(field.value(device, now_ns) for field in DEVICE_FIELDS)) for device in changed]
        if rows:
            with self._session.transaction() as statements:
                statements.execute(_ADD_DEVICES, _arrays(_DEVICE, rows))
        self._devices |= {(device.fleet, device.device): device for device in changed}
        self._devices_due_s = now_s + DEVICES_EVERY_S


def write_changes(address: PostgresAddress, changes: Iterable[FleetChange]) -> None:
    """Write the changes of the devices to the table for SQL, in place of those that are there; raises as `ViewsFiller.fill`."""
    rows = [tuple(map(storable, astuple(change))) for change in changes]
    with closing(LedgerSession(address)) as session, session.transaction() as statements:
        statements.execute("DELETE FROM sql_changes")
        statements.executemany("INSERT INTO sql_changes VALUES (?, ?, ?, ?, ?)", rows)


def _arrays(columns: Sequence[SqlColumn], rows: Iterable[Sequence[Any]]) -> list[Any]:
    return [array_of(column, values) for column, values in zip(columns, zip(*rows, strict=True), strict=True)]
