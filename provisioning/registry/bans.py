"""Bans: a device that keeps others from working is refused by the broker for a time, which grows from ban to ban and ends by itself."""

from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.provisioning.registry.certificates import put_pending_disconnect
from edgemeter.provisioning.registry.registry import Registry, put_row

FIRST_BAN_NS = 60 * NS_PER_S
LONGEST_BAN_NS = NS_PER_DAY
GROWTH = 4
# A device that was good for so long after a ban begins anew.
FORGOTTEN_NS = NS_PER_DAY


@dataclass(frozen=True, slots=True)
class Ban:
    """The last ban of a device, its `count`th in a row: from when until when (UTC), and what the device did."""

    device: str
    count: int
    since_ns: int
    until_ns: int
    reason: str


def ban_device(statements: Statements, registry: Registry, device: str, reason: str, now_ns: int) -> Ban | None:
    """Ban a device within the caller's transaction, longer than the last time; return the ban, None where it is banned already."""
    before = registry.row(Ban, "SELECT * FROM bans WHERE device = ?", device)
    if before is not None and before.until_ns > now_ns:
        return None
    count = before.count + 1 if before is not None and now_ns - before.until_ns < FORGOTTEN_NS else 1
    length_ns = min(LONGEST_BAN_NS, FIRST_BAN_NS * GROWTH ** min(count - 1, 10))
    ban = Ban(device, count, now_ns, now_ns + length_ns, reason)
    put_row(statements, "bans", ban, "device")
    put_pending_disconnect(statements, device, now_ns)
    return ban


def end_ban(statements: Statements, device: str) -> None:
    """End the ban of a device, and forget those before it, within the caller's transaction."""
    statements.execute("DELETE FROM bans WHERE device = ?", (device,))


def active_bans(registry: Registry, now_ns: int) -> dict[str, Ban]:
    """Return the bans that hold at `now_ns`, by device."""
    try:
        return {ban.device: ban for ban in registry.rows(Ban, "SELECT * FROM bans WHERE until_ns > ? ORDER BY device", now_ns)}
    except ConfigError as error:
        # A file of an earlier version that no service has opened since.
        if "no such table" in str(error):
            return {}
        raise
