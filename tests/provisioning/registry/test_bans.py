"""Bans grow from one to the next, end by themselves, and are forgotten."""

from edgemeter.provisioning.registry import certificates
from edgemeter.provisioning.registry.certificates import (
    active_bans,
    ban_device,
    end_ban,
    pending_disconnects,
)

MIN = 60_000_000_000


def ban(registry, now_ns):
    """Ban pi-1, and return for how many minutes; None where it is banned already."""
    with registry.transaction() as connection:
        new_ban = ban_device(connection, registry, "pi-1", "it floods", now_ns)
    return None if new_ban is None else (new_ban.until_ns - new_ban.since_ns) / MIN


def test_each_ban_is_four_times_as_long_up_to_a_day(registry):
    """Each ban is four times as long as the last, up to a day, and disconnects the device at once.

    While one holds there is no other.
    """
    now_ns, lengths = 0, []
    for _ in range(8):
        lengths.append(ban(registry, now_ns))
        assert ban(registry, now_ns + 1) is None
        now_ns = next(iter(active_bans(registry, now_ns).values())).until_ns
        assert active_bans(registry, now_ns) == {}
    assert lengths == [1, 4, 16, 64, 256, 1024, 1440, 1440]
    assert pending_disconnects(registry) == ["pi-1"]


def test_a_good_day_or_a_command_forgets_the_bans_before(registry):
    """After a good day or a command, the next ban is short again."""
    assert ban(registry, 0) == 1
    assert ban(registry, MIN) == 4
    assert ban(registry, 5 * MIN + certificates.FORGOTTEN_NS) == 1
    with registry.transaction() as connection:
        end_ban(connection, "pi-1")
    assert active_bans(registry, 5 * MIN + certificates.FORGOTTEN_NS) == {}
    assert ban(registry, 6 * MIN + certificates.FORGOTTEN_NS) == 1
