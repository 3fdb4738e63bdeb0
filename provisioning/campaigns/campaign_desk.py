"""The desk for campaigns: lets group after group begin, and stops one whose rules say so. It hears nothing; it reads what was decided."""

import logging
from collections.abc import Sequence

from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.provisioning.campaigns import campaigns, changes, steps
from edgemeter.provisioning.campaigns.campaigns import Campaign
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.desk import Publish

logger = logging.getLogger(__name__)

NS_PER_S = 1_000_000_000
# Of ten thousand devices with many cells the counts take a tenth of a second.
LOOK_S = 1.0


class CampaignDesk:
    """Takes campaigns a step further; see `provisioning/serve/desk.py` for how it is called."""

    topics: Sequence[str] = ()

    def __init__(self, folder: FleetFolder, registry: Registry, publish: Publish) -> None:  # noqa: ARG002 - a desk's signature
        self._registry = registry
        self._due_ns = 0
        self._seen: tuple[object, ...] = ()

    def received(self, message: Message) -> None:
        """Hear nothing."""

    def look(self, now_ns: int) -> None:
        """Take every running campaign a step further, when anything changed since the last look."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + int(LOOK_S * NS_PER_S)
        running = [one for one in campaigns.open_ones(self._registry) if one.state == "running"]
        if not running:
            return
        serial = self._registry.query("SELECT MAX(serial) AS serial FROM executions")[0]["serial"]
        seen = (serial, *((one.campaign, one.wave, one.judged_from) for one in running))
        if seen == self._seen:
            return
        for campaign in running:
            self._step(campaign.campaign, now_ns)
        self._seen = seen

    def close(self) -> None:
        """Hold nothing."""

    def _step(self, name: str, now_ns: int) -> None:
        with self._registry.transaction() as connection:
            # Somebody may have paused it since.
            campaign = campaigns.find(self._registry, name)
            taken = self._next(campaign, now_ns)
            if taken is None:
                return
            campaigns.write(connection, taken.campaign)
            if taken.releases is not None:
                changes.release(self._registry, connection, name, taken.releases)
            elif taken.campaign.state == "aborted":
                changes.hold(self._registry, connection, name)
        _say(taken)

    def _next(self, campaign: Campaign, now_ns: int) -> steps.Step | None:
        counts = campaigns.counts(self._registry, campaign.campaign)
        judged = campaigns.counts(self._registry, campaign.campaign, campaign.judged_from)
        return steps.step(campaign, counts, judged, now_ns)


def _say(taken: steps.Step) -> None:
    campaign = taken.campaign
    if taken.releases is not None:
        logger.info("campaign %s: group %d of %d begins", campaign.campaign, taken.releases + 1, campaign.waves)
    elif campaign.state == "aborted":
        logger.warning("campaign %s: aborted: %s", campaign.campaign, campaign.reason)
    else:
        logger.info("campaign %s: %s", campaign.campaign, campaign.state)
