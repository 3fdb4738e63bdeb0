"""How campaigns begin, in groups, and proceed: by the handler, which aborts by rule, and by hand; and how far they and jobs are."""

import logging
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Literal, TypeAlias

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.messages import CAMPAIGN_STATE, CampaignProgress, ExecutionProgress, encode_message
from edgemeter.agent.contract.orders import FINAL
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import plain
from edgemeter.provisioning.registry import campaigns, jobs
from edgemeter.provisioning.registry.campaigns import IS_OVER, AbortRules, Campaign, CampaignCell, CampaignState, GroupEnd, GroupRules
from edgemeter.provisioning.registry.jobs import FAILURES, IN_FLIGHT, Execution, Job, NewJob, Owner
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetHandler, FleetPublish

logger = logging.getLogger(__name__)

# With ten thousand devices and many cells the counts take a tenth of a second.
POLL_NS = NS_PER_S
# The progress of campaigns and jobs is retained for the collector and its page, at most one message of each in this time.
REPORT_NS = 5 * NS_PER_S
_EPSILON = 1e-9

# By (group, state).
Counts = Mapping[tuple[int, str], int]
ChangeByHand: TypeAlias = Literal["pause", "resume", "cancel"]

# A change by hand: what it does in words, and what is written (nothing where the campaign is None).
_CampaignChange = tuple[str, Campaign | None, tuple[Execution, ...]]
# The newest jobs are reported; the topics of as many older ones are cleared, which an earlier life of the service may have left.
MOST_JOBS = 50


def change_campaign(registry: Registry, name: str, change: ChangeByHand, now_ns: int) -> str:
    """Pause, resume or cancel a campaign by hand; return what was done. Raises ConfigError if it is over."""
    plan: Callable[[Registry, Campaign, int], _CampaignChange] = {"pause": _pause, "resume": _resume, "cancel": _cancel}[change]
    with registry.transaction() as statements:
        campaign = campaigns.find(registry, name)
        if campaign.state in IS_OVER and (change, campaign.state) != ("cancel", "cancelled"):
            raise ConfigError(f"campaign {name!r} is over ({campaign.state}): start another")
        text, after, executions = plan(registry, campaign, now_ns)
        if after is not None:
            campaigns.write(statements, after)
            jobs.update_executions(statements, executions)
    return text


def _pause(registry: Registry, campaign: Campaign, _now_ns: int) -> _CampaignChange:
    executions = _held(registry, campaign.campaign)
    text = f"paused; {len(executions)} executions held, those in flight continue"
    return text, replace(campaign, state="paused", reason="paused by hand"), executions


def _resume(registry: Registry, campaign: Campaign, _now_ns: int) -> _CampaignChange:
    """Failures so far count for no abort rule any more."""
    if campaign.state == "running":
        return "already running", None, ()
    released = _released(registry, campaign.campaign, campaign.wave)
    text = f"resumed with group {campaign.wave + 1} of {campaign.waves}, {len(released)} executions queued"
    return text, replace(campaign, state="running", reason=None, judged_from=jobs.last_serial(registry)), released


def _cancel(registry: Registry, campaign: Campaign, now_ns: int) -> _CampaignChange:
    if campaign.state == "cancelled":
        return "already cancelled", None, ()
    cancelled = tuple(jobs.cancelled(jobs.executions_of_campaign(registry, campaign.campaign), now_ns))
    in_flight = sum(not execution.is_final for execution in cancelled)
    text = f"cancelled; {len(cancelled) - in_flight} executions not started, {in_flight} being cancelled"
    return text, replace(campaign, state="cancelled", reason="cancelled by hand", ended_ns=now_ns), cancelled


def release_group(registry: Registry, connection: Statements, campaign: str, wave: int) -> None:
    """Queue the executions of every group up to `wave`, within the caller's transaction."""
    jobs.update_executions(connection, _released(registry, campaign, wave))


def _released(registry: Registry, campaign: str, wave: int) -> tuple[Execution, ...]:
    executions = jobs.executions_of_campaign(registry, campaign)
    return tuple(
        replace(execution, state="queued") for execution in executions if execution.state == "held" and (execution.wave or 0) <= wave
    )


def _held(registry: Registry, campaign: str) -> tuple[Execution, ...]:
    executions = jobs.executions_of_campaign(registry, campaign)
    return tuple(replace(execution, state="held") for execution in executions if execution.state == "queued")


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


# What has ended is reported for this long; then its topic is cleared.
KEPT_NS = NS_PER_DAY
# A message of so many is far below what a collector accepts.
MOST_EXECUTIONS, MOST_JOBS_NAMED, LONGEST_NOTE = 50, 200, 120


class ProgressReports:
    """Publishes the progress of each campaign, and of each job outside of one, when it changed, retained for the collector's page."""

    def __init__(self, registry: Registry, publish: FleetPublish) -> None:
        self._registry = registry
        self._publish = publish
        self._published: dict[str, bytes] = {}
        # When a job ended: it changes no more.
        self._ended_ns: dict[str, int] = {}

    def publish(self, now_ns: int) -> None:
        """Publish what has changed, and clear the topics of what ended a day ago or was followed by many others."""
        for name, payload in (*self._of_campaigns(now_ns), *self._of_jobs(now_ns)):
            # Also what ended while the service was away: its message may still be there.
            if self._published.get(name) != payload:
                self._publish(CAMPAIGN_STATE.format(campaign=name), payload, lasting="retained")
                self._published[name] = payload

    def _of_campaigns(self, now_ns: int) -> Iterator[tuple[str, bytes]]:
        for campaign in campaigns.read(self._registry):
            is_past = campaign.ended_ns is not None and now_ns - campaign.ended_ns > KEPT_NS
            yield campaign.campaign, b"" if is_past else encode_message(campaign_progress(self._registry, campaign))

    def _of_jobs(self, now_ns: int) -> Iterator[tuple[str, bytes]]:
        for index, job in enumerate(jobs.latest_ordered(self._registry, 2 * MOST_JOBS)):
            ended_ns = self._ended_ns.get(job.job)
            if index >= MOST_JOBS or (ended_ns is not None and now_ns - ended_ns > KEPT_NS):
                yield job.job, b""
            elif ended_ns is None:
                progress = job_progress(self._registry, job)
                if progress.state != "running":
                    self._ended_ns[job.job] = now_ns
                yield job.job, encode_message(progress)


def campaign_progress(registry: Registry, campaign: Campaign) -> CampaignProgress:
    """Return how far a campaign is."""
    states: Counter[str] = Counter()
    for (_, state), count in campaigns.count_by_group(registry, campaign.campaign).items():
        states[state] += count
    return msgspec.structs.replace(
        _progress(registry, "campaign", campaign.campaign, states, campaign.state),
        reason=campaign.reason,
        group=campaign.wave + 1,
        groups=campaign.waves,
        impossible=campaigns.count_impossible(registry, campaign.campaign),
        jobs=tuple(campaigns.jobs_of(registry, campaign.campaign)[:MOST_JOBS_NAMED]),
    )


def job_progress(registry: Registry, job: Job) -> CampaignProgress:
    """Return how far a job is: a campaign of one group."""
    states = Counter(jobs.count_states(registry, job.job))
    state: CampaignState = "running" if set(states) - FINAL else "cancelled" if set(states) == {"cancelled"} else "done"
    progress = _progress(registry, "job", job.job, states, state)
    return msgspec.structs.replace(progress, title=plain(job.title)[:LONGEST_NOTE], jobs=(job.job,))


def _progress(registry: Registry, owner: Owner, name: str, states: Counter[str], state: CampaignState) -> CampaignProgress:
    return CampaignProgress(
        campaign=name,
        state=state,
        group=1,
        groups=1,
        done=states["done"],
        failed=sum(states[failure] for failure in FAILURES),
        cancelled=states["cancelled"],
        running=sum(states[busy] for busy in IN_FLIGHT),
        waiting=states["held"] + states["queued"],
        executions=tuple(
            ExecutionProgress(
                fleet=execution.fleet,
                device=execution.device,
                state=execution.state,
                done_ratio=execution.done_ratio,
                note=plain(execution.doing or execution.reason or "")[:LONGEST_NOTE] or None,
            )
            for execution in jobs.busy_or_failed(registry, owner, name, MOST_EXECUTIONS)
        ),
    )


class CampaignHandler(FleetHandler):
    """Takes running campaigns a step further and reports their progress; `serve/handler.py` documents how it is called."""

    topics: Sequence[str] = ()

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:  # noqa: ARG002 - a handler's signature
        self._registry = registry
        self._reports = ProgressReports(registry, publish)
        self._step_ns = 0
        self._report_ns = 0
        self._seen: tuple[object, ...] = ()

    def poll(self, now_ns: int) -> None:
        """Take every campaign a step further, when anything changed since the last poll; report how far they are."""
        if now_ns >= self._step_ns:
            self._step_ns = now_ns + POLL_NS
            self._advance(now_ns)
        if now_ns >= self._report_ns:
            self._report_ns = now_ns + REPORT_NS
            self._reports.publish(now_ns)

    def _advance(self, now_ns: int) -> None:
        unfinished = campaigns.read_open(self._registry)
        if not unfinished:
            return
        progress = (
            jobs.last_serial(self._registry),
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
                jobs.update_executions(connection, _held(self._registry, name))
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
                jobs.update_executions(connection, _held(self._registry, name))
        if after.state == "running":
            logger.info("campaign %s: group %d of %d starts", name, after.wave + 1, after.waves)
        elif after.state == "aborted":
            logger.warning("campaign %s: aborted: %s", name, after.reason)
        else:
            logger.info("campaign %s: %s", name, after.state)
