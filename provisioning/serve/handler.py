"""The handler protocol: a handler is a part of the fleet's service.

It receives some topics and does its own work at intervals.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from edgemeter.agent.base.mqtt_session import Message

HANDLERS: Mapping[str, str] = {
    "access": "edgemeter.provisioning.identity.enforcement:AccessHandler",
    "jobs": "edgemeter.provisioning.jobs.job_handler:JobHandler",
    "progress": "edgemeter.provisioning.jobs.job_progress:JobProgressHandler",
    "content": "edgemeter.provisioning.serve.content_store:ContentCollector",
    "health": "edgemeter.provisioning.health.health_handler:FleetHealthHandler",
    "status": "edgemeter.provisioning.health.server_status:StatusHandler",
}


class FleetPublish(Protocol):
    """Publishes a message at QoS 1."""

    def __call__(
        self, topic: str, payload: bytes, *, lasting: Literal["passing", "retained"] = "passing"
    ) -> None:
        """Send one message."""


class FleetHandler(Protocol):
    """A handler, created once with (FleetFolder, Registry, FleetPublish).

    Every method is called from the service's one thread, in turn. An EdgemeterError is logged, and
    the service continues. Nothing may block longer than a second, or the other handlers wait. The
    default of every method does nothing.
    """

    topics: Sequence[str]
    """The topics that it subscribes to; `+` stands for any level."""

    def received(self, message: Message) -> None:  # noqa: ARG002 - ignored here
        """Handle one message whose topic matches `topics`."""
        return

    def poll(self, now_ns: int) -> None:
        """Do the work that is due at `now_ns` (UTC).

        Such work is changes that commands wrote to the registry, and time limits. Called about
        twice a second while the broker is connected.
        """

    def close(self) -> None:
        """Release what it holds."""
        return


def subscription(pattern: str) -> re.Pattern[str]:
    """Return the expression that topics of a subscription match; `+` matches one level."""
    return re.compile(re.escape(pattern).replace(r"\+", "[^/]+"))
