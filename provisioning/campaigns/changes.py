"""What people and the desk do to campaigns: release a group, pause, resume, cancel; each within one transaction."""

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.campaigns import campaigns
from edgemeter.provisioning.campaigns.campaigns import IS_OVER, Campaign
from edgemeter.provisioning.jobs import executions, jobs

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry


def release(registry: "Registry", connection: sqlite3.Connection, campaign: str, wave: int) -> int:
    """Let every group up to `wave` begin, within the caller's transaction; return how many executions that queues."""
    held = [one for one in executions.of_campaign(registry, campaign) if one.state == "held" and (one.wave or 0) <= wave]
    executions.write(connection, [replace(one, state="queued") for one in held])
    return len(held)


def hold(registry: "Registry", connection: sqlite3.Connection, campaign: str) -> int:
    """Let nothing more of a campaign begin, within the caller's transaction; what is in flight goes on."""
    queued = [one for one in executions.of_campaign(registry, campaign) if one.state == "queued"]
    executions.write(connection, [replace(one, state="held") for one in queued])
    return len(queued)


def pause(registry: "Registry", name: str) -> str:
    """Pause a campaign and return what came of it.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """
    with registry.transaction() as connection:
        campaign = _open_one(registry, name)
        campaigns.write(connection, replace(campaign, state="paused", reason="paused by hand"))
        count = hold(registry, connection, name)
    return f"{name}: paused; {count} executions wait, what is in flight goes on"


def resume(registry: "Registry", name: str) -> str:
    """Let a paused or aborted campaign go on, and return what came of it; what failed before counts for no abort criterion.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """
    with registry.transaction() as connection:
        campaign = _open_one(registry, name)
        if campaign.state == "running":
            return f"{name}: runs already"
        was_short = campaign.state == "aborted" and campaign.reason is not None and campaign.reason.startswith("group ")
        wave = min(campaign.wave + was_short, campaign.waves - 1)
        campaigns.write(
            connection, replace(campaign, state="running", reason=None, wave=wave, judged_from=executions.last_serial(connection))
        )
        count = release(registry, connection, name, wave)
    return f"{name}: goes on with group {wave + 1} of {campaign.waves}, {count} executions are queued"


def cancel(registry: "Registry", name: str, now_ns: int) -> str:
    """End a campaign, and return what came of it; what is in flight is told to end.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """
    with registry.transaction() as connection:
        campaign = _open_one(registry, name)
        campaigns.write(connection, replace(campaign, state="cancelled", reason="cancelled by hand", ended_ns=now_ns))
        left = [jobs.cancelled(one, now_ns) for one in executions.of_campaign(registry, name) if not one.is_final and one.wish is None]
        executions.write(connection, left)
    told = sum(not one.is_final for one in left)
    return f"{name}: cancelled; {len(left) - told} executions will not begin, {told} are told to end"


def _open_one(registry: "Registry", name: str) -> Campaign:
    campaign = campaigns.find(registry, name)
    if campaign.state in IS_OVER:
        message = f"campaign {name!r} is over ({campaign.state}): start another"
        raise ConfigError(message)
    return campaign
