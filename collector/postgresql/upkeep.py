"""Retention, leases and numbers of a ledger in PostgreSQL. Space that is freed is filled again (autovacuum)."""

from collections.abc import Mapping, Sequence

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.ledger.chunks import coalesce, without_samples
from edgemeter.agent.ledger.ledger import GROWTH_DAYS, LedgerPart, LedgerStats
from edgemeter.agent.ledger.retention import SLICE_CHUNKS, Retention, RetentionRemoved, before_ns, drained_row
from edgemeter.collector.postgresql.session import Cursor, PostgresSession
from edgemeter.collector.postgresql.writer import locked

_TABLES = (
    "chunks", "runs", "subjects", "forgotten", "quarantine", "presence", "retained", "sinks", "leases", "annotations", "alerts", "unsent",
)  # fmt: skip
# What the records take, and what finds them: the part that retention makes smaller. The files of the tables do not shrink.
_RECORD_BYTES = """SELECT coalesce(sum(size_bytes), 0) + (SELECT coalesce(sum(pg_column_size(runs.*)), 0) FROM runs) FROM chunks"""
_OLD_SAMPLES = """SELECT chunk, body FROM chunks WHERE has_samples AND (%s OR received_ns < %s) AND last_row <= %s
ORDER BY received_ns LIMIT %s"""
_OLD_CHUNKS = "SELECT chunk, last_row, received_ns FROM chunks WHERE last_row <= %s ORDER BY chunk LIMIT %s"
_STRIP = "UPDATE chunks SET body = %b, size_bytes = %s, has_samples = false WHERE chunk = %s AND has_samples"
# Ranges that touch the new one become part of it.
_TOUCHING = """DELETE FROM forgotten WHERE device = %s AND session = %s AND last >= %s AND first <= %s RETURNING first, last"""


def forget(session: PostgresSession, retention: Retention, now_ns: int) -> RetentionRemoved:
    """Remove one slice of what `retention` does not keep: first samples, then whole chunks of records."""
    drained = drained_row(dict(session.rows("SELECT name, position FROM sinks")), retention.sinks)
    is_too_large = retention.limit_bytes is not None and int(session.value(_RECORD_BYTES)) > retention.limit_bytes
    stripped = _strip(session, (is_too_large, before_ns(retention.samples_days, now_ns), drained, SLICE_CHUNKS))
    is_only_records_left = is_too_large and not stripped
    records = _delete(session, before_ns(retention.records_days, now_ns), drained, is_any=is_only_records_left)
    return RetentionRemoved(records, stripped, is_all=not stripped and not records)


def table_bytes(session: PostgresSession) -> list[int]:
    """Return the size of each table with its indexes on the server's disk, the chunks first."""
    return [int(session.value("SELECT pg_total_relation_size(%s::regclass)", (table,))) for table in _TABLES]


def stats(session: PostgresSession, sinks: Mapping[str, int], last_row: int, safety: str) -> LedgerStats:
    """Return the ledger in numbers, without reading records."""
    query = "SELECT min(received_ns), max(received_ns), count(*), count(*) FILTER (WHERE has_samples) FROM chunks"
    first_ns, last_ns, chunks, with_samples = session.rows(query)[0]
    kinds = session.rows("SELECT device, subject, verdict, count(*) FROM runs GROUP BY device, subject, verdict")
    verdicts = {state: sum(row[3] for row in kinds if row[2] == state) for state in sorted({row[2] for row in kinds})}
    return LedgerStats(
        path=str(session.address),
        runs=sum(verdicts.values()),
        devices=len({row[0] for row in kinds}),
        cases=len({row[:2] for row in kinds}),
        verdicts=verdicts,
        first_received_ns=first_ns,
        last_received_ns=last_ns,
        chunks=chunks,
        chunks_with_samples=with_samples,
        quarantined=int(session.value("SELECT count(*) FROM quarantine")),
        sinks=dict(sinks),
        last_row=last_row,
        growth_bytes_per_day=_growth(session, last_ns),
        parts=_parts(session),
        safety=safety,
    )


def _strip(session: PostgresSession, values: tuple[object, ...]) -> int:
    smaller = []
    for chunk, body in session.rows(_OLD_SAMPLES, values):
        try:
            stripped = without_samples(bytes(body))
        except ConfigError:
            # A field that this version skips is broken text: it is removed with the record.
            stripped = bytes(body)
        smaller.append((stripped, len(stripped), chunk))
    if smaller:
        with locked(session) as cursor:
            cursor.executemany(_STRIP, smaller)
    return len(smaller)


def _delete(session: PostgresSession, old_ns: int, drained: int, *, is_any: bool) -> int:
    with locked(session) as cursor:
        # Rows and chunks rise together, so that the oldest chunks are the lowest rows.
        up_to: tuple[int, int] | None = None
        cursor.execute(_OLD_CHUNKS, (drained, SLICE_CHUNKS))
        for chunk, last_row, received_ns in cursor.fetchall():
            if not is_any and received_ns >= old_ns:
                break
            up_to = chunk, last_row
        if up_to is None:
            return 0
        chunk, last_row = up_to
        cursor.execute("SELECT device, session, seq FROM runs WHERE row <= %s", (last_row,))
        _remember(cursor, cursor.fetchall())
        cursor.execute("DELETE FROM chunks WHERE chunk <= %s", (chunk,))
        cursor.execute("DELETE FROM runs WHERE row <= %s", (last_row,))
        removed: int = cursor.rowcount
    return removed


def _remember(cursor: Cursor, removed: Sequence[tuple[str, int, int]]) -> None:
    sessions: dict[tuple[str, int], list[int]] = {}
    for device, session, seq in removed:
        sessions.setdefault((device, session), []).append(seq)
    for name, seqs in sessions.items():
        for first, last in coalesce(sorted(seqs)):
            cursor.execute(_TOUCHING, (*name, first - 1, last + 1))
            joined = [(first, last), *cursor.fetchall()]
            merged = min(start for start, _ in joined), max(end for _, end in joined)
            cursor.execute("INSERT INTO forgotten VALUES (%s, %s, %s, %s)", (*name, *merged))


def _growth(session: PostgresSession, last_ns: int | None) -> float | None:
    if last_ns is None:
        return None
    query = "SELECT coalesce(sum(size_bytes), 0), min(received_ns) FROM chunks WHERE received_ns > %s"
    total_bytes, first_ns = session.rows(query, (last_ns - GROWTH_DAYS * NS_PER_DAY,))[0]
    days = (last_ns - first_ns) / NS_PER_DAY
    return float(total_bytes) / days if days >= 1 else None


def _parts(session: PostgresSession) -> tuple[LedgerPart, ...]:
    query = "SELECT coalesce(sum(size_bytes) FILTER (WHERE has_samples), 0), coalesce(sum(size_bytes), 0) FROM chunks"
    with_samples, records = map(int, session.rows(query)[0])
    chunks, *other_tables = table_bytes(session)
    return (
        LedgerPart("records with raw samples", with_samples),
        LedgerPart("records without raw samples", records - with_samples),
        LedgerPart("rows, indexes, quarantine and the rest", sum(other_tables)),
        LedgerPart("free, to be reused, and what finds the records", max(0, chunks - records)),
    )
