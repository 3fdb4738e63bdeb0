"""How a campaign begins, whatever its work: devices in groups, and the campaign written with its jobs and cells."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.campaigns.campaign_handler import release_group
from edgemeter.provisioning.registry import campaigns, jobs
from edgemeter.provisioning.registry.campaigns import Campaign, CampaignCell, GroupEnd, GroupRules
from edgemeter.provisioning.registry.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry


def in_groups(kinds: Mapping[str, Hashable], ends: Sequence[GroupEnd]) -> dict[str, int]:
    """Return the group of each device, from 0: one of each kind (board type, release) in turn, so that every kind is tried early.

    `ends` are how many devices, or what share of them, have begun with each group; the last group has all others.
    """
    by_kind = defaultdict(list)
    for device, kind in kinds.items():
        by_kind[kind].append(device)
    ordered = [device for row in zip_longest(*by_kind.values()) for device in row if device is not None]
    total = len(ordered)
    counts = (end if isinstance(end, int) else math.ceil(float(end.rstrip("%")) * total / 100) for end in ends)
    bounds = sorted({min(count, total) for count in counts} - {0})
    return {device: bisect_right(bounds, index) for index, device in enumerate(ordered)}


def start_campaign(
    registry: Registry,
    name: str,
    rules: GroupRules,
    work: Iterable[tuple[NewJob, Sequence[CampaignCell]]],
    fleets: Mapping[str, str],
    now_ns: int,
    *,
    impossible: Sequence[CampaignCell] = (),
) -> None:
    """Write a campaign, with a job each for its cells' devices, and release the first group; raises ConfigError if the name is taken."""
    with registry.transaction() as connection:
        if connection.execute("SELECT 1 FROM campaigns WHERE campaign = ?", (name,)).fetchone():
            raise ConfigError(f"a campaign named {name!r} exists already: give the new one another `name`, or resume that one")
        cells = list(impossible)
        for new, planned in work:
            targets = [(cell.device, fleets[cell.device]) for cell in planned]
            waves = {cell.device: cell.wave for cell in planned}
            job = jobs.add(connection, replace(new, campaign=name), targets, now_ns, state="held", waves=waves)
            cells += [replace(cell, job=job) for cell in planned]
        group_count = max(cell.wave for cell in cells) + 1
        campaigns.insert(connection, Campaign(name, "running", None, 0, group_count, rules, now_ns, 0), cells)
        release_group(registry, connection, name, 0)
