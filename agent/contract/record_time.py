"""The plausibility of a device's times, by the clock of the collector.

A clock that claims to be synchronised may be years off, by a wrong time server or a dead battery.
The stored time stays; statistics use the time of receipt instead, as for devices without a
synchronised clock.
"""

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.record import RunRecord

AHEAD_NS = NS_PER_DAY  # A clock set to local time is up to 14 hours ahead.
# 2023-01-01, before the first agent. Boards without a clock chip start at a date in their firmware.
EARLIEST_NS = 1_672_531_200 * 1_000_000_000


def off_by_ns(stated_ns: int, received_ns: int) -> int | None:
    """Return the error of a stated time that cannot be right, negative if it is behind.

    None for a possible time. A time long before its receipt is possible: the device was offline.
    With a receipt before 2023 the collector's own clock is wrong.
    """
    if received_ns < EARLIEST_NS:
        return None
    if stated_ns > received_ns + AHEAD_NS or stated_ns < EARLIEST_NS:
        return stated_ns - received_ns
    return None


def was_never_set(record: RunRecord) -> bool:
    """Return whether the device never had a synchronised clock.

    Then only the time of receipt is known.
    """
    return record.clock_synchronised is False and record.stamped_by == "device"


def is_timeless(record: RunRecord, received_ns: int) -> bool:
    """Return whether only the time of receipt is known.

    Then the clock was never set, or cannot be right.
    """
    return was_never_set(record) or off_by_ns(record.started_at_ns, received_ns) is not None


def placed(record: RunRecord, received_ns: int) -> RunRecord:
    """Return the record for display.

    If the stated time is impossible, it is at the time of its receipt, and marked.
    """
    if off_by_ns(record.started_at_ns, received_ns) is None:
        return record
    return msgspec.structs.replace(record, started_at_ns=received_ns, stamped_by="collector")


def off_by_text(off_by_ns: int) -> str:
    days = abs(off_by_ns) / NS_PER_DAY
    length = f"{days / 365.25:.1f} years" if days >= 365.25 else f"{days:.1f} days"
    return f"{length} {'ahead' if off_by_ns > 0 else 'behind'}"
