"""The quarantine of a ledger in PostgreSQL: as that of a file, with the same limits, for all collectors together."""

from collections.abc import Sequence

from edgemeter.agent.contract.messages import TOPIC_ROOT
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.quarantine import QuarantinedMessage, Rejection, entry_values
from edgemeter.collector.postgresql.session import Cursor, PostgresSession

_ADD = """INSERT INTO quarantine (digest, topic, payload, size_bytes, kept_bytes, reason, received_ns, last_ns, times)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 1)
ON CONFLICT (digest) DO UPDATE SET times = quarantine.times + 1, last_ns = excluded.last_ns"""
_TOTAL = "SELECT count(*), coalesce(sum(kept_bytes), 0) FROM quarantine WHERE topic LIKE %s"
# As in a file: entries are kept by rising share of their sender until the limits are full.
_DROP = """DELETE FROM quarantine WHERE row IN (
    SELECT row FROM (
        SELECT row,
            row_number() OVER (ORDER BY share, row DESC) AS place,
            sum(kept_bytes) OVER (ORDER BY share, row DESC ROWS UNBOUNDED PRECEDING) AS total_bytes
        FROM (
            SELECT row, kept_bytes,
                greatest(1.0 * row_number() OVER newest / %(rows)s, 1.0 * sum(kept_bytes) OVER newest / %(bytes)s) AS share
            FROM quarantine WHERE topic LIKE %(ours)s
            WINDOW newest AS (PARTITION BY regexp_replace(topic, '[^/]*$', '') ORDER BY row DESC ROWS UNBOUNDED PRECEDING)
        ) AS shares
    ) AS places WHERE place > %(kept_rows)s OR total_bytes > %(kept_bytes)s
)"""
_READ = "SELECT row, topic, payload, size_bytes, reason, received_ns, last_ns, times FROM quarantine ORDER BY row"


def add(cursor: Cursor, rejections: Sequence[Rejection]) -> None:
    """Add `rejections`, within a transaction that holds the row of the ledger; beyond the limits entries are dropped."""
    if not rejections:
        return
    cursor.executemany(_ADD, [_values(one) for one in rejections])
    ours = f"{TOPIC_ROOT}/%"
    cursor.execute(_TOTAL, (ours,))
    rows, kept_bytes = cursor.fetchone()
    if rows > quarantine.ROWS_LIMIT or kept_bytes > quarantine.TOTAL_LIMIT_BYTES:
        limits = {"rows": quarantine.ROWS_LIMIT, "bytes": quarantine.TOTAL_LIMIT_BYTES}
        kept = {f"kept_{name}": int(limit * quarantine.KEPT_RATIO) for name, limit in limits.items()}
        cursor.execute(_DROP, {**limits, **kept, "ours": ours})


def read(session: PostgresSession) -> list[QuarantinedMessage]:
    """Return every entry, oldest first."""
    return [QuarantinedMessage(row, topic, bytes(payload), *rest) for row, topic, payload, *rest in session.rows(_READ)]


def _values(rejection: Rejection) -> tuple[object, ...]:
    # PostgreSQL stores no NUL in a text.
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in entry_values(rejection))
