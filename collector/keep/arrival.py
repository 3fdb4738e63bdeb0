"""What comes to the ledger: a record that came alone, or a message of many that stay together."""

from collections.abc import Sequence
from typing import NamedTuple

from edgemeter.agent.records import RunRecord


class Arrival(NamedTuple):
    """A record that came in, numbered (`session` and `seq` are set): what its text says, its text, and where it came from.

    Of one that is not checked only the envelope was read; the rest of its text may not be a record's. A tuple, because there are many.
    """

    record: RunRecord
    payload: bytes
    topic: str
    received_ns: int
    is_checked: bool = True


class Shipment(NamedTuple):
    """A message with many records of one device: what its text says, and that text, a JSON array, as a chunk."""

    records: Sequence[RunRecord]
    body: bytes
    topic: str
    received_ns: int
    is_checked: bool = True
