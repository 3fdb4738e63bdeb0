"""The quarantine of rejected messages with the reason.

It is limited in size so that a flood of garbage cannot fill the disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.agent.base.statements import Statements
from edgemeter.agent.base.types import Positive
from edgemeter.agent.contract.messages import TOPIC_ROOT, decoder_of

PAYLOAD_LIMIT_BYTES = 1 << 20
ROWS_LIMIT = 10_000
TOTAL_LIMIT_BYTES = 64 << 20
# Above a limit, entries are dropped down to this share of it, so that a flood does not cost a
# deletion at every commit.
KEPT_RATIO = 0.9
MOST_OF_A_MESSAGE = 100  # More rejected records of one message become one entry: the message.

# A repeated message (a device resends until it has a receipt) is counted, not stored again.
_ADD = """INSERT INTO quarantine (digest, topic, payload, size_bytes, kept_bytes, reason, \
received_ns, last_ns, times)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)
ON CONFLICT (digest) DO UPDATE SET times = quarantine.times + 1, last_ns = excluded.last_ns"""
# A sink's rejection has the name of the sink instead of a topic: its record is in the ledger.
FROM_DEVICES = f"substr(topic, 1, {len(TOPIC_ROOT) + 1}) = '{TOPIC_ROOT}/'"
# The SQL contains only our own words.
_TOTAL = (
    "SELECT count(*), coalesce(sum(kept_bytes), 0) FROM quarantine "  # noqa: S608
    f"WHERE {FROM_DEVICES}"
)

# The share of an entry is the part of the limits that its device uses with it and its newer ones.
# Entries are kept by rising share until the limits are reached. The sender is the topic without its
# last part.
_DROP = f"""DELETE FROM quarantine WHERE row IN (
    SELECT row FROM (
        SELECT row,
            row_number() OVER (ORDER BY share, row DESC) AS place,
            sum(kept_bytes) OVER (ORDER BY share, row DESC ROWS UNBOUNDED PRECEDING) AS total_bytes
        FROM (
            SELECT row, kept_bytes, \
CASE WHEN of_rows > of_bytes THEN of_rows ELSE of_bytes END AS share
            FROM (
                SELECT row, kept_bytes, 1.0 * row_number() OVER newest / ? AS of_rows, \
1.0 * sum(kept_bytes) OVER newest / ? AS of_bytes
                FROM quarantine WHERE {FROM_DEVICES}
                WINDOW newest AS (PARTITION BY rtrim(topic, replace(topic, '/', '')) \
ORDER BY row DESC ROWS UNBOUNDED PRECEDING)
            ) AS sums
        ) AS shares
    ) AS places WHERE place > ? OR total_bytes > ?
)"""  # noqa: S608 - our own words


# The part that is wrong: the topic, a reported state or health, the compression or list of records,
# a record, or its origin (another device's topic, a number that no outbox assigns).
RejectionKind = Literal["topic", "presence", "payload", "record", "origin"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected message, or a record in one, and the reason."""

    topic: str
    payload: bytes
    reason: str
    received_ns: int
    kind: RejectionKind = "record"


class RecordReference(msgspec.Struct, frozen=True):
    """The record of the ledger that a sink rejected."""

    fleet: str
    device: str
    session: Positive
    seq: Positive
    id: str


# The JSON of a whole record decodes as a reference too.
read_reference = decoder_of(RecordReference, "a reference to a record", None)


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """One entry of the quarantine.

    `payload` is truncated to 1 MiB, `size_bytes` is its full size; `times` is how often it arrived.
    """

    row: int
    topic: str
    payload: bytes
    size_bytes: int
    reason: str
    received_ns: int
    last_ns: int
    times: int


def of_one_message(rejections: Sequence[Rejection], payload: bytes) -> list[Rejection]:
    """Return the rejections of one message with the given payload.

    If there are very many, it is one rejection of the whole message.
    """
    if len(rejections) <= MOST_OF_A_MESSAGE:
        return list(rejections)
    first = rejections[0]
    reason = f"{len(rejections)} records of this message, the first: {first.reason}"
    return [Rejection(first.topic, payload, reason, first.received_ns, first.kind)]


def add(statements: Statements, rejections: Sequence[Rejection]) -> None:
    """Add `rejections`, within the caller's transaction.

    Beyond the limits entries are dropped, oldest first. Those of the device with the most entries
    or bytes are dropped first, so that no device displaces the others. A sink's rejection is never
    dropped: it is a few words about a record in the ledger.
    """
    if not rejections:
        return
    statements.executemany(_ADD, map(_entry_values, rejections))
    rows, kept_bytes = statements.execute(_TOTAL).fetchone()
    if rows > ROWS_LIMIT or kept_bytes > TOTAL_LIMIT_BYTES:
        targets = int(KEPT_RATIO * ROWS_LIMIT), int(KEPT_RATIO * TOTAL_LIMIT_BYTES)
        statements.execute(_DROP, (ROWS_LIMIT, TOTAL_LIMIT_BYTES, *targets))


def _entry_values(rejection: Rejection) -> tuple[object, ...]:
    """Return the columns of a new entry.

    They are digest, topic, payload, size_bytes, kept_bytes, reason, received_ns and last_ns.
    """
    import hashlib  # noqa: PLC0415 - it brings OpenSSL

    # PostgreSQL stores no NUL in a text.
    topic, reason = (text.replace("\0", "\ufffd") for text in (rejection.topic, rejection.reason))
    payload = rejection.payload[:PAYLOAD_LIMIT_BYTES]
    digest = hashlib.sha256(b"\0".join((rejection.topic.encode(), rejection.reason.encode(), b"")))
    digest.update(rejection.payload)
    return (
        digest.digest(),
        topic,
        payload,
        len(rejection.payload),
        len(payload),
        reason,
        rejection.received_ns,
        rejection.received_ns,
    )
