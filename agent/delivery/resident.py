"""The agent that stays: connected for months, it delivers what other processes of the device put into the outbox.

It speaks for the device: birth, state and Will are its own. Light, because it shares a small board with what is measured there.
"""

import logging
import random
import threading
from pathlib import Path

from edgemeter.agent import config
from edgemeter.agent.delivery import birth, broker_address
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.errors import ConfigError

logger = logging.getLogger(__name__)

OUTBOX = "outbox.sqlite"
LOOK_S = 5.0
# Boards that get their power back at the same moment connect within this time, not at once.
FIRST_SPREAD_S = 5.0


class Resident:
    """One device's staying agent, from the configuration at `path`; `run` once, `close` once or more."""

    def __init__(self, device: str, fleet: str, broker: str | None, settings: config.Config, path: Path | None = None) -> None:
        named = broker or settings.broker
        if named is None:
            message = "no broker is named: give --broker HOST, or set `broker` in the configuration"
            raise ConfigError(message)
        self.address = broker_address.configured(named, settings)
        self._device = device
        self._outbox = Outbox(config.home() / OUTBOX, settings.outbox_limit_mb << 20)
        born = birth.read_apart(device, fleet, self._outbox.session, path)
        self._publisher = Publisher(self.address, self._outbox, born, lasting="persistent")

    def waiting(self) -> int:
        """Return how many of this device's records no receipt has named yet."""
        return self._outbox.count(self._device)

    def run(self, stop: threading.Event, first_spread_s: float = FIRST_SPREAD_S) -> None:
        """Stay until `stop`; a broker that is not there is looked for again and again."""
        if stop.wait(random.uniform(0, first_spread_s)):  # noqa: S311 - spreads connections over time, no secret
            return
        self._publisher.start()
        while not stop.wait(LOOK_S):
            # Another process may have put something there.
            self._publisher.wake()

    def close(self) -> None:
        """Say goodbye; what no receipt has named stays in the outbox."""
        self._publisher.close()
        self._outbox.close()
