"""Retention: what is removed from a ledger for its age or its size; raw samples are removed before records.

Whole chunks are removed, oldest first. What the sinks in use do not have yet stays, whatever its age. The numbers of removed records are
kept as ranges, so that a repeated one is not taken for new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.ledger.chunks import is_position_of

SLICE_CHUNKS = 50


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept; None is unlimited. `sinks` are the names of those that must have a record before it is removed."""

    records_days: float | None = None
    samples_days: float | None = None
    limit_bytes: int | None = None
    sinks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetentionRemoved:
    """The removed data: records, and the samples of chunks; `is_all` if nothing more is due now."""

    records: int
    stripped_chunks: int
    is_all: bool


def before_ns(days: float | None, now_ns: int) -> int:
    """Return the time before which data kept for this many days are removed, -1 for never."""
    # Longer than the clock counts is for ever.
    return -1 if days is None else max(-1, now_ns - int(days * NS_PER_DAY))


def drained_row(positions: Mapping[str, int], sinks: Sequence[str]) -> int:
    """Return the row up to which each of the `sinks` has every record."""
    reached = (max((row for name, row in positions.items() if is_position_of(sink, name)), default=0) for sink in sinks)
    return min(reached, default=2**63 - 1)
