"""Corrects timestamps of records measured before the wall clock was synchronised.

This is needed on a board without a clock chip.

Such a record is held back until the clock is synchronised; then its start is computed from the time
since boot, which no step of the wall clock affects. It is changed only before it is sent: every
copy of a sent record must be the same (a record without a time gets that of its first receipt
afterwards, as the collector stored it). If the board was rebooted meanwhile, or the clock is never
synchronised, it is sent as it is, and marked. The wait is limited once a boot, not once a
connection: an unstable link without a time server delivers all the same.
"""

import time
from collections.abc import Callable
from typing import Any

from edgemeter.agent.delivery.outbox import Outbox

# After a boot or a network outage, time servers are asked and the clock is set; chrony and
# systemd-timesyncd take seconds.
PATIENCE_AFTER_BOOT_S = 120.0
PATIENCE_ONLINE_S = 60.0
POLL_S = 2.0


def since_boot_ns() -> int:
    """Return the time since boot, suspension included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _clock() -> Any:
    # Most devices never ask, and the agent that stays is to be light.
    from edgemeter.agent.machine import clock  # noqa: PLC0415

    return clock


class Stamping:
    """Corrects the timestamps in `outbox` as soon as possible."""

    def __init__(
        self,
        outbox: Outbox,
        synchronised: Callable[[], bool | None] = lambda: _clock().synchronised(),
        boot_id: Callable[[], str | None] = lambda: _clock().boot_id(),
        wall_ns: Callable[[], int] = time.time_ns,
        boot_clock_ns: Callable[[], int] = since_boot_ns,
    ) -> None:
        self._outbox = outbox
        self._synchronised = synchronised
        self._boot_id = boot_id
        self._wall_ns = wall_ns
        self._boot_clock_ns = boot_clock_ns

    def is_online(self) -> None:
        """Note the end of a network outage: the clock may soon be set.

        Only the first time in a boot counts.
        """
        if self._outbox.has_unstamped():
            self._outbox.wait_for_clock(
                self._boot_id() or "", self._since_boot_s() + PATIENCE_ONLINE_S
            )

    def settle(self) -> float | None:
        """Correct held records once the clock is set, or release them after a while.

        Returns when to retry (s), None if none is held.
        """
        if not self._outbox.has_unstamped():
            return None
        boot_id = self._boot_id() or ""
        if self._synchronised():
            self._outbox.stamp(boot_id, self._wall_ns() - self._boot_clock_ns())
        elif self._since_boot_s() < max(PATIENCE_AFTER_BOOT_S, self._outbox.waits_until_s(boot_id)):
            self._outbox.leave_unstamped(all_but_boot_id=boot_id)
            return POLL_S if self._outbox.has_unstamped() else None
        self._outbox.leave_unstamped()
        return None

    def _since_boot_s(self) -> float:
        return self._boot_clock_ns() / 1e9
