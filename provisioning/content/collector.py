"""The handler that removes content which nothing refers to any more."""

import logging

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_HOUR
from edgemeter.agent.contract.orders import Work, contents_of
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetHandler, FleetPublish

logger = logging.getLogger(__name__)

COLLECT_NS = NS_PER_HOUR
# Also those that devices repeat: one fetches their content whenever it needs it again, however long ago it was ordered.
_WORKS = """SELECT works FROM jobs WHERE EXISTS (SELECT 1 FROM executions WHERE executions.job = jobs.job AND ended_ns IS NULL)"""


class ContentCollector(FleetHandler):
    """Keeps the contents that open jobs and releases refer to."""

    topics = ()

    def __init__(self, folder: FleetFolder, registry: Registry, _publish: FleetPublish) -> None:
        self._store = ContentStore(folder.content)
        self._registry = registry
        self._collected_ns: int | None = None

    def poll(self, now_ns: int) -> None:
        """Remove unreferenced content, once an hour."""
        if self._collected_ns is not None and now_ns - self._collected_ns < COLLECT_NS:
            return
        self._collected_ns = now_ns
        referenced = {row["sha256"] for row in self._registry.query("SELECT sha256 FROM releases")}
        for row in self._registry.query(_WORKS):
            for work in msgspec.json.decode(row["works"], type=tuple[Work, ...]):
                referenced.update(content.sha256 for content in contents_of(work))
        if removed := self._store.collect(referenced, now_ns):
            logger.info("removed %d contents that no open job or release refers to", len(removed))
