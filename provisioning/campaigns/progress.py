"""How far campaigns and jobs are, as retained messages for the collector and its page."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.messages import CAMPAIGN_STATE, CampaignProgress, ExecutionProgress, encode_message
from edgemeter.agent.contract.orders import FINAL
from edgemeter.provisioning.inventory.formatting import plain
from edgemeter.provisioning.registry import campaigns, jobs
from edgemeter.provisioning.registry.campaigns import Campaign, CampaignState
from edgemeter.provisioning.registry.jobs import FAILURES, IN_FLIGHT, Job, Owner, busy_or_failed
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

# What has ended is reported for this long; then its topic is cleared.
KEPT_NS = NS_PER_DAY
# The newest jobs are reported; the topics of as many older ones are cleared, which an earlier life of the service may have left.
MOST_JOBS = 50
# A message of so many is far below what a collector accepts.
MOST_EXECUTIONS, MOST_JOBS_NAMED, LONGEST_NOTE = 50, 200, 120


class ProgressReports:
    """Publishes the progress of each campaign, and of each job that is part of none, when it has changed."""

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
            for execution in busy_or_failed(registry, owner, name, MOST_EXECUTIONS)
        ),
    )
