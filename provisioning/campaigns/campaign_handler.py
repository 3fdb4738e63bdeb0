"""How campaigns proceed: by the handler, which releases group after group and aborts by rule, and by hand (pause, resume, cancel)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.orders import FINAL
from edgemeter.provisioning.campaigns.progress import ProgressReports
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import campaigns, jobs
from edgemeter.provisioning.registry.campaigns import IS_OVER, AbortRules, Campaign
from edgemeter.provisioning.registry.jobs import FAILURES, Execution, executions_of_campaign, last_serial, update_executions
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

# With ten thousand devices and many cells the counts take a tenth of a second.
POLL_NS = NS_PER_S
# The progress of campaigns and jobs is retained for the collector and its page, at most one message of each in this time.
REPORT_NS = 5 * NS_PER_S
_EPSILON = 1e-9

# By (group, state).
Counts = Mapping[tuple[int, str], int]


# A change by hand: what it does in words, and what is written (nothing where the campaign is None).
_CampaignChange = tuple[str, Campaign | None, tuple[Execution, ...]]


def release_group(registry: Registry, connection: Statements, campaign: str, wave: int) -> None:
    """Queue the executions of every group up to `wave`, within the caller's transaction."""
    update_executions(connection, _released(registry, campaign, wave))


def pause_campaign(registry: Registry, name: str, *, is_dry_run: bool = False) -> str:
    """Pause a campaign and return what was done; a dry run writes nothing.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """

    def plan() -> _CampaignChange:
        campaign, executions = _open_campaign(registry, name), _held(registry, name)
        text = f"paused; {len(executions)} executions held, those in flight continue"
        return text, replace(campaign, state="paused", reason="paused by hand"), executions

    return _make(registry, plan, is_dry_run=is_dry_run)


def resume_campaign(registry: Registry, name: str, *, is_dry_run: bool = False) -> str:
    """Resume a paused or aborted campaign and return what was done; earlier failures count for no abort rule.

    Raises:
        ConfigError: there is none of that name, or it is over.
    """

    def plan() -> _CampaignChange:
        campaign = _open_campaign(registry, name)
        if campaign.state == "running":
            return "already running", None, ()
        released = _released(registry, name, campaign.wave)
        text = f"resumed with group {campaign.wave + 1} of {campaign.waves}, {len(released)} executions queued"
        return text, replace(campaign, state="running", reason=None, judged_from=last_serial(registry)), released

    return _make(registry, plan, is_dry_run=is_dry_run)


def cancel_campaign(registry: Registry, name: str, now_ns: int, *, is_dry_run: bool = False) -> str:
    """Cancel a campaign, with its executions in flight, and return what was done; it may be cancelled already.

    Raises:
        ConfigError: there is none of that name, or it has ended by itself.
    """

    def plan() -> _CampaignChange:
        if campaigns.find(registry, name).state == "cancelled":
            return "already cancelled", None, ()
        campaign = _open_campaign(registry, name)
        cancelled = tuple(jobs.cancelled(executions_of_campaign(registry, name), now_ns))
        in_flight = sum(not execution.is_final for execution in cancelled)
        text = f"cancelled; {len(cancelled) - in_flight} executions not started, {in_flight} being cancelled"
        return text, replace(campaign, state="cancelled", reason="cancelled by hand", ended_ns=now_ns), cancelled

    return _make(registry, plan, is_dry_run=is_dry_run)


def _make(registry: Registry, plan: Callable[[], _CampaignChange], *, is_dry_run: bool) -> str:
    if is_dry_run:
        text, campaign, _ = plan()
        return f"would be {text}" if campaign else text
    with registry.transaction() as connection:
        text, campaign, executions = plan()
        if campaign is not None:
            campaigns.write(connection, campaign)
            update_executions(connection, executions)
    return text


def _released(registry: Registry, campaign: str, wave: int) -> tuple[Execution, ...]:
    executions = executions_of_campaign(registry, campaign)
    return tuple(
        replace(execution, state="queued") for execution in executions if execution.state == "held" and (execution.wave or 0) <= wave
    )


def _held(registry: Registry, campaign: str) -> tuple[Execution, ...]:
    return tuple(
        replace(execution, state="held") for execution in executions_of_campaign(registry, campaign) if execution.state == "queued"
    )


def _open_campaign(registry: Registry, name: str) -> Campaign:
    campaign = campaigns.find(registry, name)
    if campaign.state in IS_OVER:
        raise ConfigError(f"campaign {name!r} is over ({campaign.state}): start another")
    return campaign


def next_step(campaign: Campaign, counts: Counts, judged: Counts, now_ns: int) -> Campaign | None:
    """Return a running campaign after its next step, None where nothing changes; while it runs, its group may start.

    `counts` are all of its executions, `judged` those that the abort rules apply to.
    """
    if campaign.state != "running":
        return None
    if why := why_abort(campaign.rules.abort, judged):
        return replace(campaign, state="aborted", reason=why)
    if campaign.wave + 1 >= campaign.waves:
        is_over = not any(count for (_, state), count in counts.items() if state not in FINAL)
        return replace(campaign, state="done", reason=None, ended_ns=now_ns) if is_over else None
    # Cancelled executions do not count, nor failures before it was resumed.
    group = {state: count for (wave, state), count in counts.items() if wave == campaign.wave}
    done_count, open_count = group.get("done", 0), sum(count for state, count in group.items() if state not in FINAL)
    failed_count = sum(judged.get((campaign.wave, state), 0) for state in FAILURES)
    total = done_count + open_count + failed_count
    least = campaign.rules.success_ratio * total - _EPSILON
    if done_count >= least:
        return replace(campaign, wave=campaign.wave + 1)
    if done_count + open_count < least:
        why = f"group {campaign.wave + 1} of {campaign.waves}: {done_count} of {total} done, {campaign.rules.success_ratio:.0%} needed"
        return replace(campaign, state="aborted", reason=why)
    return None


def why_abort(rule: AbortRules, counts: Counts) -> str | None:
    """Return which abort rule is violated, None when none is."""
    ended = {state: sum(count for (_, ended_state), count in counts.items() if ended_state == state) for state in FINAL}
    executed = sum(ended.values()) - ended["cancelled"]
    if executed < rule.min_executed:
        return None
    for state, limit in zip(FAILURES, (rule.failed_ratio, rule.rejected_ratio, rule.timed_out_ratio), strict=True):
        if ended[state] / executed > limit + _EPSILON:
            return f"{ended[state]} of {executed} {state.replace('_', ' ')}, at most {limit:.0%}"
    return None


class CampaignHandler:
    """Takes running campaigns a step further and reports their progress; `serve/handler.py` documents how it is called."""

    topics: Sequence[str] = ()

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:  # noqa: ARG002 - a handler's signature
        self._registry = registry
        self._reports = ProgressReports(registry, publish)
        self._step_ns = 0
        self._report_ns = 0
        self._seen: tuple[object, ...] = ()

    def received(self, message: Message) -> None:
        """Ignore messages: it reads the registry."""

    def poll(self, now_ns: int) -> None:
        """Take every campaign a step further, when anything changed since the last poll; report how far they are."""
        if now_ns >= self._step_ns:
            self._step_ns = now_ns + POLL_NS
            self._advance(now_ns)
        if now_ns >= self._report_ns:
            self._report_ns = now_ns + REPORT_NS
            self._reports.publish(now_ns)

    def close(self) -> None:
        """Hold nothing."""

    def _advance(self, now_ns: int) -> None:
        unfinished = campaigns.read_open(self._registry)
        if not unfinished:
            return
        progress = (
            last_serial(self._registry),
            *((campaign.campaign, campaign.state, campaign.wave, campaign.judged_from) for campaign in unfinished),
        )
        if progress == self._seen:
            return
        for campaign in unfinished:
            self._step(campaign.campaign, now_ns)
        self._seen = progress

    def _step(self, name: str, now_ns: int) -> None:
        with self._registry.transaction() as connection:
            # It may have been paused since.
            campaign = campaigns.find(self._registry, name)
            if campaign.state != "running":
                # What was in flight and is to be retried waits too.
                update_executions(connection, _held(self._registry, name))
                return
            counts = campaigns.count_by_group(self._registry, name)
            judged = campaigns.count_by_group(self._registry, name, campaign.judged_from)
            after = next_step(campaign, counts, judged, now_ns)
            if after is None:
                return
            campaigns.write(connection, after)
            if after.state == "running":
                release_group(self._registry, connection, name, after.wave)
            elif after.state == "aborted":
                update_executions(connection, _held(self._registry, name))
        if after.state == "running":
            logger.info("campaign %s: group %d of %d starts", name, after.wave + 1, after.waves)
        elif after.state == "aborted":
            logger.warning("campaign %s: aborted: %s", name, after.reason)
        else:
            logger.info("campaign %s: %s", name, after.state)
