"""A desk: one part of the fleet's service, which hears some topics and acts by itself every so often."""

from collections.abc import Callable, Sequence
from typing import Protocol

from edgemeter.agent.delivery.mqtt_session import Message

# Hands a message to the broker: topic, payload; QoS 1, not retained.
Publish = Callable[[str, bytes], None]


class Desk(Protocol):
    """Made once with (FleetFolder, Registry, Publish); every method is called from the service's one thread, in turn.

    What raises EdgemeterError is logged and goes on; nothing may block longer than a second, or the other desks wait.
    """

    topics: Sequence[str]
    """What it subscribes to, MQTT wildcards allowed."""

    def received(self, message: Message) -> None:
        """Take one message whose topic fits `topics`."""
        ...

    def look(self, now_ns: int) -> None:
        """Do what is due at `now_ns` (UTC): what commands have written into the registry, time limits.

        Called about twice a second while the broker is there.
        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...
