"""How far campaigns are, for the collector and its page: retained messages, at most one of a campaign every few seconds."""

from collections import Counter

from edgemeter.agent.contract.messages import CAMPAIGN_STATE, CampaignProgress, encode_message
from edgemeter.provisioning.registry import campaigns
from edgemeter.provisioning.registry.campaigns import Campaign, count_by_group, count_impossible
from edgemeter.provisioning.registry.jobs import IN_FLIGHT
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

_NS = 1_000_000_000
REPORT_NS = 5 * _NS
# What has ended is told for so long; then its topic is cleared.
KEPT_NS = 24 * 3600 * _NS


class CampaignReports:
    """Publishes the progress of each campaign when it has changed; `poll` as often as you like."""

    def __init__(self, registry: Registry, publish: FleetPublish) -> None:
        self._registry = registry
        self._publish = publish
        self._due_ns = 0
        self._published: dict[str, bytes] = {}

    def poll(self, now_ns: int) -> None:
        """Publish what has changed since the last time."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + REPORT_NS
        for one in campaigns.read(self._registry):
            is_past = one.ended_ns is not None and now_ns - one.ended_ns > KEPT_NS
            payload = b"" if is_past else encode_message(progress_of(self._registry, one))
            # Also what ended while the service was away: its message may still be there.
            if self._published.get(one.campaign) != payload:
                self._publish(CAMPAIGN_STATE.format(campaign=one.campaign), payload, lasting="retained")
                self._published[one.campaign] = payload


def progress_of(registry: Registry, campaign: Campaign) -> CampaignProgress:
    """Return how far a campaign is, as the registry has it."""
    states: Counter[str] = Counter()
    for (_, state), count in count_by_group(registry, campaign.campaign).items():
        states[state] += count
    return CampaignProgress(
        campaign=campaign.campaign,
        state=campaign.state,
        reason=campaign.reason,
        group=campaign.wave + 1,
        groups=campaign.waves,
        done=states["done"],
        failed=states["failed"] + states["rejected"] + states["timed_out"],
        cancelled=states["cancelled"],
        running=sum(states[state] for state in IN_FLIGHT),
        waiting=states["held"] + states["queued"],
        impossible=count_impossible(registry, campaign.campaign),
    )
