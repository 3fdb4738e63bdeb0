"""The handler for health, which stores the devices' reports.

They are stored in one transaction a poll, as ten thousand devices may reconnect together.
"""

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.health import decode_report
from edgemeter.agent.contract.messages import DeviceState, parse_topic, topics_of
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import DeviceReport
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

# This many take less than half a second.
MOST_REPORTS = 5000


class FleetHealthHandler:
    """Stores reports; `serve/handler.py` documents how it is called."""

    topics = tuple(topics_of(kind) for kind in ("health", "state", "activity"))

    def __init__(
        self,
        _folder: FleetFolder,
        registry: Registry,
        _publish: FleetPublish,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock = clock
        self._registry = registry
        # The last report of each kind; a state may be followed by that of another session. Late
        # ones are limited, also while nothing can be written.
        self._reports: OrderedDict[tuple[str, type, int | None], DeviceReport] = OrderedDict()

    def received(self, message: Message) -> None:
        """Receive a device's state, health or activity.

        An emptied topic and the server's own `revoked` are ignored.
        """
        if not message.payload:
            return
        topic = parse_topic(message.topic)
        report = decode_report(topic, message.payload)
        session = report.session if isinstance(report, DeviceState) else None
        if not (isinstance(report, DeviceState) and report.state == "revoked"):
            key = (topic.device, type(report), session)
            self._reports[key] = DeviceReport(topic.device, topic.fleet, report, self._clock())
            self._reports.move_to_end(key)

    def poll(self, now_ns: int) -> None:  # noqa: ARG002 - a handler's signature
        """Write the first reports; the others wait for the next poll."""
        reports = dict(itertools.islice(self._reports.items(), MOST_REPORTS))
        if not reports:
            return
        with self._registry.transaction() as statements:
            devices.put_reports(statements, reports.values())
        for key in reports:
            del self._reports[key]

    def close(self) -> None:
        """Write the last reports."""
        while self._reports:
            self.poll(self._clock())
