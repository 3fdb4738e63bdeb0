"""How campaigns proceed: by the handler, which releases group after group and aborts by rule, and by hand (pause, resume, cancel)."""

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract.orders import FINAL
from edgemeter.provisioning.campaigns.campaign_reports import CampaignReports
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import campaigns, jobs
from edgemeter.provisioning.registry.campaigns import IS_OVER, AbortRules, Campaign
from edgemeter.provisioning.registry.jobs import Execution, executions_of_campaign, last_serial, update_executions
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

# With ten thousand devices and many cells the counts take a tenth of a second.
POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class _CampaignChange:
    """A change by hand: what it does in words, and what is written (nothing where the campaign is None)."""

    text: str
    campaign: Campaign | None = None
    executions: tuple[Execution, ...] = ()
    is_resumed: bool = False


def release_group(registry: Registry, connection: sqlite3.Connection, campaign: str, wave: int) -> None:
    """Queue the executions of every group up to `wave`, within the caller's transaction."""
    update_executions(connection, _released(registry, campaign, wave))


def pause_campaign(registry: Registry, name: str, *, is_dry_run: bool = False) -> str:
    """Pause a campaign and return what was done; a dry run writes nothing.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """

    def plan() -> _CampaignChange:
        campaign, held = _open_one(registry, name), _held(registry, name)
        text = f"paused; {len(held)} executions held, those in flight continue"
        return _CampaignChange(text, replace(campaign, state="paused", reason="paused by hand"), held)

    return _make(registry, plan, is_dry_run=is_dry_run)


def resume_campaign(registry: Registry, name: str, *, is_dry_run: bool = False) -> str:
    """Resume a paused or aborted campaign and return what was done; earlier failures count for no abort rule.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """

    def plan() -> _CampaignChange:
        campaign = _open_one(registry, name)
        if campaign.state == "running":
            return _CampaignChange("already running")
        was_short = campaign.state == "aborted" and campaign.reason is not None and campaign.reason.startswith("group ")
        wave = min(campaign.wave + was_short, campaign.waves - 1)
        released = _released(registry, name, wave)
        text = f"resumed with group {wave + 1} of {campaign.waves}, {len(released)} executions queued"
        return _CampaignChange(text, replace(campaign, state="running", reason=None, wave=wave), released, is_resumed=True)

    return _make(registry, plan, is_dry_run=is_dry_run)


def cancel_campaign(registry: Registry, name: str, now_ns: int, *, is_dry_run: bool = False) -> str:
    """Cancel a campaign, with its executions in flight, and return what was done; it may be cancelled already.

    Raises:
        ConfigError: there is none of that name, or it has ended by itself.
    """

    def plan() -> _CampaignChange:
        if campaigns.find(registry, name).state == "cancelled":
            return _CampaignChange("already cancelled")
        campaign = _open_one(registry, name)
        left = tuple(
            jobs.cancel_execution(one, now_ns)
            for one in executions_of_campaign(registry, name)
            if not one.is_final and one.requested is None
        )
        in_flight = sum(not one.is_final for one in left)
        text = f"cancelled; {len(left) - in_flight} executions not started, {in_flight} being cancelled"
        return _CampaignChange(text, replace(campaign, state="cancelled", reason="cancelled by hand", ended_ns=now_ns), left)

    return _make(registry, plan, is_dry_run=is_dry_run)


def _make(registry: Registry, plan: Callable[[], _CampaignChange], *, is_dry_run: bool) -> str:
    if is_dry_run:
        change = plan()
        return f"would be {change.text}" if change.campaign else change.text
    with registry.transaction() as connection:
        change = plan()
        if change.campaign is not None:
            judged_from = last_serial(connection) if change.is_resumed else change.campaign.judged_from
            campaigns.write(connection, replace(change.campaign, judged_from=judged_from))
            update_executions(connection, change.executions)
    return change.text


def _released(registry: Registry, campaign: str, wave: int) -> tuple[Execution, ...]:
    found = executions_of_campaign(registry, campaign)
    return tuple(replace(one, state="queued") for one in found if one.state == "held" and (one.wave or 0) <= wave)


def _held(registry: Registry, campaign: str) -> tuple[Execution, ...]:
    return tuple(replace(one, state="held") for one in executions_of_campaign(registry, campaign) if one.state == "queued")


def _open_one(registry: Registry, name: str) -> Campaign:
    campaign = campaigns.find(registry, name)
    if campaign.state in IS_OVER:
        raise ConfigError(f"campaign {name!r} is over ({campaign.state}): start another")
    return campaign


# By (group, state).
Counts = Mapping[tuple[int, str], int]
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class CampaignStep:
    """The campaign after the step; `releases` is the group that may start, None where none does."""

    campaign: Campaign
    releases: int | None = None


def next_step(campaign: Campaign, counts: Counts, judged: Counts, now_ns: int) -> CampaignStep | None:
    """Return the next step of a running campaign, None where nothing changes.

    `counts` are all of its executions, `judged` those that the abort rules apply to.
    """
    if campaign.state != "running":
        return None
    if why := why_abort(campaign.rules.abort, judged):
        return CampaignStep(replace(campaign, state="aborted", reason=why))
    done, total, left = _of_wave(counts, campaign.wave)
    needed = campaign.rules.success_ratio * total - _EPSILON
    if campaign.wave + 1 >= campaign.waves:
        is_over = not any(count for (_, state), count in counts.items() if state not in FINAL)
        return CampaignStep(replace(campaign, state="done", reason=None, ended_ns=now_ns)) if is_over else None
    if done >= needed:
        return CampaignStep(replace(campaign, wave=campaign.wave + 1), campaign.wave + 1)
    if done + left < needed:
        why = f"group {campaign.wave + 1} of {campaign.waves}: {done} of {total} done, {campaign.rules.success_ratio:.0%} needed"
        return CampaignStep(replace(campaign, state="aborted", reason=why))
    return None


def why_abort(rule: AbortRules, counts: Counts) -> str | None:
    """Return which abort rule is violated, None when none is."""
    ended = {state: sum(count for (_, one), count in counts.items() if one == state) for state in FINAL}
    executed = sum(ended.values()) - ended["cancelled"]
    if executed < rule.min_executed:
        return None
    for state, limit in (("failed", rule.failed_ratio), ("rejected", rule.rejected_ratio), ("timed_out", rule.timed_out_ratio)):
        if ended[state] / executed > limit + _EPSILON:
            return f"{ended[state]} of {executed} {state.replace('_', ' ')}, at most {limit:.0%}"
    return None


def _of_wave(counts: Counts, wave: int) -> tuple[int, int, int]:
    """Return how many executions of a group are done, in all, and still open; cancelled ones do not count."""
    own = {state: count for (group, state), count in counts.items() if group == wave and state != "cancelled"}
    return own.get("done", 0), sum(own.values()), sum(count for state, count in own.items() if state not in FINAL)


class CampaignHandler:
    """Takes running campaigns a step further; `serve/handler.py` documents how it is called."""

    topics: Sequence[str] = ()

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:  # noqa: ARG002 - a handler's signature
        self._registry = registry
        self._reports = CampaignReports(registry, publish)
        self._due_ns = 0
        self._seen: tuple[object, ...] = ()

    def received(self, message: Message) -> None:
        """Ignore messages: it reads the registry."""

    def poll(self, now_ns: int) -> None:
        """Take every running campaign a step further, when anything changed since the last poll; report how far they are."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + int(POLL_S * NS_PER_S)
        self._advance(now_ns)
        self._reports.poll(now_ns)

    def close(self) -> None:
        """Hold nothing."""

    def _advance(self, now_ns: int) -> None:
        running = [one for one in campaigns.read_open(self._registry) if one.state == "running"]
        if not running:
            return
        serial = self._registry.query("SELECT MAX(serial) AS serial FROM executions")[0]["serial"]
        seen = (serial, *((one.campaign, one.wave, one.judged_from) for one in running))
        if seen == self._seen:
            return
        for campaign in running:
            self._step(campaign.campaign, now_ns)
        self._seen = seen

    def _step(self, name: str, now_ns: int) -> None:
        with self._registry.transaction() as connection:
            # It may have been paused since.
            campaign = campaigns.find(self._registry, name)
            counts = campaigns.count_by_group(self._registry, name)
            judged = campaigns.count_by_group(self._registry, name, campaign.judged_from)
            step = next_step(campaign, counts, judged, now_ns)
            if step is None:
                return
            campaigns.write(connection, step.campaign)
            if step.releases is not None:
                release_group(self._registry, connection, name, step.releases)
            elif step.campaign.state == "aborted":
                update_executions(connection, _held(self._registry, name))
        _log_step(step)


def _log_step(step: CampaignStep) -> None:
    campaign = step.campaign
    if step.releases is not None:
        logger.info("campaign %s: group %d of %d starts", campaign.campaign, step.releases + 1, campaign.waves)
    elif campaign.state == "aborted":
        logger.warning("campaign %s: aborted: %s", campaign.campaign, campaign.reason)
    else:
        logger.info("campaign %s: %s", campaign.campaign, campaign.state)
