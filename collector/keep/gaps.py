"""Gaps: which numbers of a session should be here and are not. The outbox numbers a session's records 1, 2, 3, ... without gaps.

A number is missing when a later one of its session is here, and it neither is nor was: what retention took is not missing. With several
collectors in a group each has its share, so what one misses the others may hold.
"""

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionHeld:
    """What a ledger holds of one session of a device; `missing` counts numbers below the highest."""

    fleet: str
    device: str
    session: int
    records: int
    missing: int
    last_received_ns: int


def read(connection: sqlite3.Connection) -> list[SessionHeld]:
    """Return what is held of every session, by fleet, device and number."""
    forgotten = _forgotten(connection)
    query = """SELECT device, session, count(*), max(seq), max(row) FROM runs GROUP BY device, session"""
    found = []
    for device, session, records, highest, row in connection.execute(query).fetchall():
        gone = sum(max(0, min(last, highest) - first + 1) for first, last in forgotten.get((device, session), ()))
        newest = "SELECT fleet, received_ns FROM runs JOIN subjects USING (subject) JOIN chunks USING (chunk) WHERE row = ?"
        fleet, received_ns = connection.execute(newest, (row,)).fetchone()
        found.append(SessionHeld(fleet, device, session, records, highest - records - gone, received_ns))
    return sorted(found, key=lambda one: (one.fleet, one.device, one.session))


def _forgotten(connection: sqlite3.Connection) -> dict[tuple[str, int], list[tuple[int, int]]]:
    ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for device, session, first, last in connection.execute("SELECT device, session, first, last FROM forgotten"):
        ranges.setdefault((device, session), []).append((first, last))
    return ranges
