"""What people and the desk do to campaigns: release a group, pause, resume, cancel; each within one transaction, or rehearsed."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.campaigns import campaigns
from edgemeter.provisioning.campaigns.campaigns import IS_OVER, Campaign
from edgemeter.provisioning.jobs import executions, jobs
from edgemeter.provisioning.jobs.executions import Execution

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class _Change:
    """What a hand does to a campaign: what is written (nothing where the campaign is None), and what came or would come of it."""

    done: str
    rehearsed: str
    campaign: Campaign | None = None
    executions: tuple[Execution, ...] = ()
    judges_anew: bool = False


def release(registry: "Registry", connection: sqlite3.Connection, campaign: str, wave: int) -> int:
    """Let every group up to `wave` begin, within the caller's transaction; return how many executions that queues."""
    released = _released(registry, campaign, wave)
    executions.write(connection, released)
    return len(released)


def hold(registry: "Registry", connection: sqlite3.Connection, campaign: str) -> int:
    """Let nothing more of a campaign begin, within the caller's transaction; what is in flight goes on."""
    held = _held(registry, campaign)
    executions.write(connection, held)
    return len(held)


def pause(registry: "Registry", name: str, *, is_rehearsal: bool = False) -> str:
    """Pause a campaign and return what came of it; a rehearsal writes nothing and returns what would.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """

    def plan() -> _Change:
        campaign, held = _open_one(registry, name), _held(registry, name)
        return _Change(
            f"paused; {len(held)} executions wait, what is in flight goes on",
            f"would be paused; {len(held)} executions would wait, what is in flight would go on",
            replace(campaign, state="paused", reason="paused by hand"),
            held,
        )

    return _make(registry, plan, is_rehearsal=is_rehearsal)


def resume(registry: "Registry", name: str, *, is_rehearsal: bool = False) -> str:
    """Let a paused or aborted campaign go on, and return what came of it; what failed before counts for no abort criterion.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """

    def plan() -> _Change:
        campaign = _open_one(registry, name)
        if campaign.state == "running":
            return _Change("runs already", "runs already")
        was_short = campaign.state == "aborted" and campaign.reason is not None and campaign.reason.startswith("group ")
        wave = min(campaign.wave + was_short, campaign.waves - 1)
        released, group = _released(registry, name, wave), f"group {wave + 1} of {campaign.waves}"
        return _Change(
            f"goes on with {group}, {len(released)} executions are queued",
            f"would go on with {group}, {len(released)} executions would be queued",
            replace(campaign, state="running", reason=None, wave=wave),
            released,
            judges_anew=True,
        )

    return _make(registry, plan, is_rehearsal=is_rehearsal)


def cancel(registry: "Registry", name: str, now_ns: int, *, is_rehearsal: bool = False) -> str:
    """End a campaign, and return what came of it; what is in flight is told to end. Once is enough.

    Raises:
        ConfigError: there is none of that name, or it has ended by itself.
    """

    def plan() -> _Change:
        if campaigns.find(registry, name).state == "cancelled":
            return _Change("is cancelled already", "is cancelled already")
        campaign = _open_one(registry, name)
        found = executions.of_campaign(registry, name)
        left = tuple(jobs.cancelled(one, now_ns) for one in found if not one.is_final and one.wish is None)
        told = sum(not one.is_final for one in left)
        return _Change(
            f"cancelled; {len(left) - told} executions will not begin, {told} are told to end",
            f"would be cancelled; {len(left) - told} executions would not begin, {told} would be told to end",
            replace(campaign, state="cancelled", reason="cancelled by hand", ended_ns=now_ns),
            left,
        )

    return _make(registry, plan, is_rehearsal=is_rehearsal)


def _make(registry: "Registry", plan: Callable[[], _Change], *, is_rehearsal: bool) -> str:
    if is_rehearsal:
        return plan().rehearsed
    with registry.transaction() as connection:
        change = plan()
        if change.campaign is not None:
            judged_from = executions.last_serial(connection) if change.judges_anew else change.campaign.judged_from
            campaigns.write(connection, replace(change.campaign, judged_from=judged_from))
            executions.write(connection, change.executions)
    return change.done


def _released(registry: "Registry", campaign: str, wave: int) -> tuple[Execution, ...]:
    found = executions.of_campaign(registry, campaign)
    return tuple(replace(one, state="queued") for one in found if one.state == "held" and (one.wave or 0) <= wave)


def _held(registry: "Registry", campaign: str) -> tuple[Execution, ...]:
    return tuple(replace(one, state="held") for one in executions.of_campaign(registry, campaign) if one.state == "queued")


def _open_one(registry: "Registry", name: str) -> Campaign:
    campaign = campaigns.find(registry, name)
    if campaign.state in IS_OVER:
        message = f"campaign {name!r} is over ({campaign.state}): start another"
        raise ConfigError(message)
    return campaign
