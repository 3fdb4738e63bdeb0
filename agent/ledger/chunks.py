"""The rows of a ledger and how records are packed into them, for both databases.

A chunk is a compressed JSON array of records, stored as received, so that fields of newer versions
survive.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from edgemeter.agent.base import deflate
from edgemeter.agent.base.errors import ConfigError, one_line
from edgemeter.agent.contract.record import RunRecord, decode, split_samples
from edgemeter.agent.ledger.run_row import RecordKey, RunRow, row_of

if TYPE_CHECKING:
    from edgemeter.agent.ledger.quarantine import RecordReference, Rejection


_Read = TypeVar("_Read")


class Arrival(NamedTuple):
    """The row of a received record, its JSON text and its topic.

    A tuple, because there are many.
    """

    run: RunRow
    payload: bytes
    topic: str
    received_ns: int


def arrived(record: RunRecord, payload: bytes, topic: str, received_ns: int) -> Arrival:
    """Return the arrival of a numbered record.

    Raises:
        msgspec.ValidationError: it has no number.
    """
    return Arrival(row_of(record, received_ns), payload, topic, received_ns)


class ArrivedBatch(NamedTuple):
    """A message with many records of one device, as rows, and its JSON array as a chunk."""

    runs: Sequence[RunRow]
    body: bytes
    topic: str
    received_ns: int


REMOVED = b"{}"  # Replaces an excluded or deleted record in a chunk.
# A chunk built here is closed at this size; a message of many records becomes one chunk, and a
# larger record has its own.
CHUNK_TEXT_BYTES = 256 << 10
# Records are limited in size when they arrive: a longer chunk is damaged.
_LONGEST_TEXT_BYTES = 1 << 30
_chunk_array = msgspec.json.Decoder(list[msgspec.Raw])


def pack_array(text: bytes) -> bytes:
    return deflate.compress(text)


def pack_chunk(payloads: Sequence[bytes]) -> bytes:
    return deflate.compress(b"[", b",".join(payloads), b"]")


def chunk_text(body: bytes) -> bytes:
    """Return the JSON array in a chunk; raises ConfigError if the chunk is damaged."""
    try:
        return deflate.expand(body, lambda _: _LONGEST_TEXT_BYTES)
    except ConfigError as error:
        raise ConfigError(
            f"a chunk of records in the ledger is damaged ({error}): take the file from a backup"
        ) from error


def _raw_records(array: bytes) -> list[msgspec.Raw]:
    try:
        return _chunk_array.decode(array)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"a chunk of records in the ledger is damaged ({error}): take the file from a backup"
        ) from error


def unpack_chunk(body: bytes) -> list[bytes]:
    """Return the JSON text of each record; raises ConfigError if the chunk is damaged."""
    return [bytes(raw) for raw in _raw_records(chunk_text(body))]


# Errors raised by a reader that does not understand a record: it is malformed or of a newer schema.
UNREADABLE = (
    ConfigError,
    msgspec.MsgspecError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class SkippedRecord(NamedTuple):
    """A record in row `row` that a reader does not understand, and why.

    The `reference` is None if it is not a record at all.
    """

    row: int
    reference: "RecordReference | None"
    reason: str

    @property
    def device(self) -> str:
        return self.reference.device if self.reference else ""

    @property
    def run(self) -> str | None:
        return self.reference.id if self.reference else None


def skipped_record(row: int, payload: bytes | msgspec.Raw, error: Exception) -> SkippedRecord:
    """Return the record with this JSON as one that a reader does not understand.

    `error` is the error that the reader raised.
    """
    from edgemeter.agent.ledger import quarantine  # noqa: PLC0415 - few ledgers have such a record

    try:
        reference = quarantine.read_reference(payload)
    except ConfigError:
        reference = None
    reason = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    return SkippedRecord(row, reference, one_line(reason))


def warn_of_skipped(skipped: SkippedRecord) -> None:
    import logging  # noqa: PLC0415 - few ledgers have such a record

    from edgemeter.agent.base.log_limit import about  # noqa: PLC0415

    at = skipped.reference
    run = (
        f"run {at.id} of device {at.device!r} (session {at.session}, seq {at.seq})"
        if at
        else f"the record in row {skipped.row}"
    )
    logging.getLogger(__name__).warning(
        "skipped %s, which is in the ledger but cannot be read: %s",
        run,
        skipped.reason,
        extra=about(skipped.device),
    )


@dataclass(frozen=True, slots=True, eq=False)
class HeldChunk:
    """Records stored in one JSON array, `text`.

    Each has its row and its index in the array, in the order of commits.
    """

    rows: Sequence[tuple[int, int]]
    received_ns: int
    text: bytes

    def raw_records(self) -> Iterator[tuple[int, msgspec.Raw]]:
        """Yield row and JSON of each record, a view of `text`.

        Raises:
            ConfigError: the chunk is damaged.
        """
        raw_records = _raw_records(self.text)
        for row, index in self.rows:
            # It was removed since the rows were read.
            if memoryview(raw_records[index]) != REMOVED:
                yield row, raw_records[index]

    def payloads(self) -> Iterator[tuple[int, bytes]]:
        """Yield row and JSON text of each record; raises as `raw_records`."""
        return ((row, bytes(raw)) for row, raw in self.raw_records())

    def read_each(
        self,
        read: Callable[[msgspec.Raw], _Read],
        skipped: Callable[[SkippedRecord], object] = warn_of_skipped,
    ) -> Iterator[tuple[int, _Read | None]]:
        """Yield each row with the result of `read`.

        It is None for a record that `read` does not understand: `skipped` is called with it.
        """
        for row, raw in self.raw_records():
            value = None
            try:
                value = read(raw)
            except UNREADABLE as error:
                skipped(skipped_record(row, raw, error))
            yield row, value

    def records(
        self, skipped: Callable[[SkippedRecord], object] = warn_of_skipped
    ) -> Iterator[tuple[int, RunRecord]]:
        """Yield row and record of each; one that cannot be read is skipped."""
        return (
            (row, record) for row, record in self.read_each(decode, skipped) if record is not None
        )


def without_samples(body: bytes) -> bytes:
    """Return the same chunk without the records' raw samples.

    Raises:
        ConfigError: the chunk is damaged.
    """
    return pack_chunk([split_samples(payload)[0] for payload in unpack_chunk(body)])


COLLISION = "another record already holds this number: cloned card or copied outbox?"
Source = ArrivedBatch | list[Arrival]


class Committed(NamedTuple):
    """The outcome of a commit.

    `held` are the keys (fleet, device, session, seq) that the ledger now contains, new or not.
    """

    inserted: int = 0
    duplicates: int = 0
    collisions: int = 0
    held: tuple[RecordKey, ...] = ()


def portions(arrivals: Sequence[Arrival]) -> Iterator[list[Arrival]]:
    """Yield arrivals by future chunk: received together, and not too large."""
    portion: list[Arrival] = []
    size_bytes = 0
    for arrival in arrivals:
        if portion and (
            size_bytes + len(arrival.payload) > CHUNK_TEXT_BYTES
            or arrival.received_ns != portion[0].received_ns
        ):
            yield portion
            portion, size_bytes = [], 0
        portion.append(arrival)
        size_bytes += len(arrival.payload)
    if portion:
        yield portion


def rejections_of(source: Source, places: Iterable[int]) -> "list[Rejection]":
    """Return the records of `source` at the indexes `places`, as rejected.

    Their numbers belong to other records.
    """
    # As above.
    from edgemeter.agent.ledger.quarantine import Rejection, of_one_message  # noqa: PLC0415

    if isinstance(source, ArrivedBatch):
        payloads = unpack_chunk(source.body)
        return of_one_message(
            [
                Rejection(source.topic, payloads[index], COLLISION, source.received_ns)
                for index in places
            ],
            source.body,
        )
    return [
        Rejection(source[index].topic, source[index].payload, COLLISION, source[index].received_ns)
        for index in places
    ]


def runs_of(source: Source) -> Sequence[RunRow]:
    return source.runs if isinstance(source, ArrivedBatch) else [arrival.run for arrival in source]


def received_ns_of(source: Source) -> int:
    return source.received_ns if isinstance(source, ArrivedBatch) else source[0].received_ns


def body_of(source: Source) -> bytes:
    return (
        source.body
        if isinstance(source, ArrivedBatch)
        else pack_chunk([arrival.payload for arrival in source])
    )


def coalesce(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return sorted numbers as inclusive ranges: 1, 2, 3, 7 -> (1, 3), (7, 7)."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
