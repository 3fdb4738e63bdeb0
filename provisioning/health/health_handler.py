"""The handler for health: keeps what devices report.

Reports are kept in memory until the next poll, and then written in one transaction: ten thousand devices that reconnect together cost a
few of those.
"""

import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.health import Health, decode_health
from edgemeter.agent.contract.messages import parse_topic, topics_of
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import plain
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import DeviceReport
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

MOST_REPORTS = 5000


class FleetHealthHandler:
    """Keeps reports; `serve/handler.py` documents how it is called."""

    topics = (topics_of("health"), topics_of("state"), topics_of("birth"), topics_of("activity"))

    def __init__(
        self,
        folder: FleetFolder,  # noqa: ARG002 - a handler's signature
        registry: Registry,
        publish: FleetPublish,  # noqa: ARG002 - a handler's signature
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock = clock
        self._registry = registry
        # The last of each kind; a state is followed by that of another session. Late ones are bounded, also while nothing can be written.
        self._reports: OrderedDict[tuple[str, type, int | None], DeviceReport] = OrderedDict()
        self._refused: dict[str, int] = {}

    def received(self, message: Message) -> None:
        """Take a device's state, birth, health or activity; an emptied topic and the server's own `revoked` are ignored."""
        if not message.payload:
            return
        topic = parse_topic(message.topic)
        if topic.kind == "state":
            report: messages.DeviceState | messages.Birth | messages.Activity | Health = messages.decode_state(message.payload)
        elif topic.kind == "activity":
            report = messages.decode_activity(message.payload)
        else:
            decode = decode_health if topic.kind == "health" else messages.decode_birth
            named = report = decode(message.payload)
            if (named.fleet, named.device) != (topic.fleet, topic.device):
                raise ConfigError(
                    f"the {topic.kind} names device {named.device!r} of fleet {named.fleet!r}, but its topic is {message.topic!r}"
                )
            if isinstance(report, Health):
                self._log_refused(topic.device, report)
        if not (isinstance(report, messages.DeviceState) and report.state == "revoked"):
            session = report.session if isinstance(report, messages.DeviceState) else None
            key = (topic.device, type(report), session)
            self._reports[key] = DeviceReport(topic.device, topic.fleet, report, self._clock())
            self._reports.move_to_end(key)

    def _log_refused(self, device: str, health: Health) -> None:
        refused = health.refused_orders
        if refused and self._refused.get(device) != refused.count:
            self._refused[device] = refused.count
            logger.warning(
                "%s has refused %d orders, the last because: %s", device, refused.count, plain(refused.reason), extra=about(device)
            )

    def poll(self, now_ns: int) -> None:
        """Write the reports."""
        if self._reports:
            self._keep(now_ns)

    def close(self) -> None:
        """Write the last reports."""
        while self._reports:
            self._keep(self._clock())

    def _keep(self, now_ns: int) -> None:
        # This many take less than half a second; the rest waits for the next poll.
        reports = dict(itertools.islice(self._reports.items(), MOST_REPORTS))
        with self._registry.transaction() as connection:
            devices.put_reports(connection, reports.values())
            devices.put_revoked_offline(connection, now_ns)
        for key in reports:
            del self._reports[key]
