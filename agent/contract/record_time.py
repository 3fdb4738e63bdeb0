"""The plausibility of a time that a device reports, judged by the clock of the collector that received it.

A clock that claims to be synchronised may lie years ahead, after a wrong time server or a dead battery. What it stated stays as it was
stored; statistics and points place such a run at the time of its receipt, as those of devices without a synchronised clock.
"""

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.record import RunRecord

AHEAD_NS = NS_PER_DAY  # A clock set to local time is up to 14 hours ahead.
# 2023-01-01: no agent existed before. Boards without a clock chip begin at a date of their firmware.
EARLIEST_NS = 1_672_531_200 * 1_000_000_000


def off_by_ns(stated_ns: int, received_ns: int) -> int | None:
    """Return by how much a stated time is certainly wrong, negative for one that is behind; None for one that can be true.

    A time long before its receipt can be true: the device was away. A receipt before 2023 is of a clock that is wrong itself.
    """
    if received_ns < EARLIEST_NS:
        return None
    if stated_ns > received_ns + AHEAD_NS or stated_ns < EARLIEST_NS:
        return stated_ns - received_ns
    return None


def was_never_set(record: RunRecord) -> bool:
    """Return whether the device never had a synchronised clock: then only the time of receipt is known."""
    return record.clock_synchronised is False and record.stamped_by == "device"


def is_timeless(record: RunRecord, received_ns: int) -> bool:
    """Return whether a record has no time but that of its receipt: the clock was never set, or cannot be right."""
    return was_never_set(record) or off_by_ns(record.started_at_ns, received_ns) is not None


def placed(record: RunRecord, received_ns: int) -> RunRecord:
    """Return the record, at the time of its receipt and marked so where the stated time cannot be true; never for storing it."""
    if off_by_ns(record.started_at_ns, received_ns) is None:
        return record
    return msgspec.structs.replace(record, started_at_ns=received_ns, stamped_by="collector")


def off_by_text(off_by_ns: int) -> str:
    """Return how wrong a clock is, in words."""
    days = abs(off_by_ns) / NS_PER_DAY
    length = f"{days / 365.25:.1f} years" if days >= 365.25 else f"{days:.1f} days"
    return f"{length} {'ahead' if off_by_ns > 0 else 'behind'}"
