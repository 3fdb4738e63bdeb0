"""Retention and sizes of a ledger in PostgreSQL. Space that is freed is filled again (autovacuum)."""

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.ledger.chunks import without_samples
from edgemeter.agent.ledger.ledger import LedgerPart
from edgemeter.agent.ledger.retention import SLICE_CHUNKS, Retention, RetentionRemoved, before_ns, drained_row, remember
from edgemeter.collector.postgresql.session import LedgerSession
from edgemeter.collector.postgresql.writer import locked

_TABLES = (
    "chunks", "runs", "subjects", "forgotten", "quarantine", "presence", "retained", "sinks", "leases", "annotations", "alerts", "unsent",
    "run_events",
)  # fmt: skip
# What the records take, and what finds them: the part that retention makes smaller. The files of the tables do not shrink.
_RECORD_BYTES = """SELECT coalesce(sum(size_bytes), 0) + (SELECT coalesce(sum(pg_column_size(runs.*)), 0) FROM runs) FROM chunks"""
_OLD_SAMPLES = """SELECT chunk, body FROM chunks WHERE has_samples AND (? OR received_ns < ?) AND last_row <= ?
ORDER BY received_ns LIMIT ?"""
_OLD_CHUNKS = "SELECT chunk, last_row, received_ns FROM chunks WHERE last_row <= ? ORDER BY chunk LIMIT ?"
_STRIP = "UPDATE chunks SET body = ?, size_bytes = ?, has_samples = false WHERE chunk = ? AND has_samples"


def forget(session: LedgerSession, retention: Retention, now_ns: int) -> RetentionRemoved:
    """Remove one slice of what `retention` does not keep: first samples, then whole chunks of records."""
    drained = drained_row(dict(session.query("SELECT name, position FROM sinks")), retention.sinks)
    is_too_large = retention.limit_bytes is not None and int(session.query(_RECORD_BYTES)[0][0]) > retention.limit_bytes
    stripped = _strip(session, (is_too_large, before_ns(retention.samples_days, now_ns), drained, SLICE_CHUNKS))
    is_only_records_left = is_too_large and not stripped
    records = _delete(session, before_ns(retention.records_days, now_ns), drained, is_any=is_only_records_left)
    return RetentionRemoved(records, stripped, is_all=not stripped and not records)


def table_bytes(session: LedgerSession) -> list[int]:
    """Return the size of each table with its indexes on the server's disk, the chunks first."""
    return [int(session.query("SELECT coalesce(pg_total_relation_size(to_regclass(?)), 0)", table)[0][0]) for table in _TABLES]


def _strip(session: LedgerSession, values: tuple[object, ...]) -> int:
    smaller = []
    for chunk, body in session.query(_OLD_SAMPLES, *values):
        try:
            stripped = without_samples(bytes(body))
        except ConfigError:
            # A field that this version skips is broken text: it is removed with the record.
            stripped = bytes(body)
        smaller.append((stripped, len(stripped), chunk))
    if smaller:
        with locked(session) as statements:
            statements.executemany(_STRIP, smaller)
    return len(smaller)


def _delete(session: LedgerSession, old_ns: int, drained: int, *, is_any: bool) -> int:
    with locked(session) as statements:
        # Rows and chunks rise together, so that the oldest chunks are the lowest rows.
        up_to: tuple[int, int] | None = None
        for chunk, last_row, received_ns in statements.execute(_OLD_CHUNKS, (drained, SLICE_CHUNKS)).fetchall():
            if not is_any and received_ns >= old_ns:
                break
            up_to = chunk, last_row
        if up_to is None:
            return 0
        chunk, last_row = up_to
        remember(statements, statements.execute("SELECT device, session, seq FROM runs WHERE row <= ?", (last_row,)).fetchall())
        statements.execute("DELETE FROM chunks WHERE chunk <= ?", (chunk,))
        removed: int = statements.execute("DELETE FROM runs WHERE row <= ?", (last_row,)).rowcount
    return removed


def parts(session: LedgerSession) -> tuple[LedgerPart, ...]:
    """Return what takes how much of the server's disk."""
    query = "SELECT coalesce(sum(size_bytes) FILTER (WHERE has_samples), 0), coalesce(sum(size_bytes), 0) FROM chunks"
    with_samples, records = map(int, session.query(query)[0])
    chunks, *other_tables = table_bytes(session)
    return (
        LedgerPart("records with raw samples", with_samples),
        LedgerPart("records without raw samples", records - with_samples),
        LedgerPart("rows, indexes, quarantine and the rest", sum(other_tables)),
        LedgerPart("free, to be reused, and what finds the records", max(0, chunks - records)),
    )
