"""The agent that stays: connected for months, it delivers what other processes of the device put into the outbox.

It speaks for the device: birth, state and Will are its own. It shares a small board with what is measured there, so it is a program of
its own (`python -m edgemeter.agent.delivery.resident ORDERS`), which holds neither the command line nor what only a measurement needs.
"""

import logging
import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import msgspec

from edgemeter.agent import config as configuration
from edgemeter.agent.delivery import birth, broker_address
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.errors import EdgemeterError

logger = logging.getLogger(__name__)

OUTBOX = "outbox.sqlite"
LOOK_S = 5.0
# Boards that get their power back at the same moment connect within this time, not at once.
FIRST_SPREAD_S = 5.0


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to stay, at which broker, and with which files; `config` is where the rest stands."""

    device: str
    fleet: str
    broker: str
    config: str | None
    files: dict[str, str]

    def settings(self) -> configuration.Config:
        """Return the configuration.

        Raises:
            ConfigError: it cannot be read.
        """
        return configuration.said({"config": Path(self.config) if self.config else None, **self.files})


class Resident:
    """One device's staying agent; `run` once, `close` once or more."""

    def __init__(self, orders: Orders) -> None:
        settings = orders.settings()
        self.address = broker_address.configured(orders.broker, settings)
        self._device = orders.device
        self._outbox = Outbox(configuration.home() / OUTBOX, settings.outbox_limit_mb << 20)
        born = birth.read_apart(orders.device, orders.fleet, self._outbox.session, orders.config)
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


def main(document: str) -> int:
    """Stay as `document` (orders as JSON) says, until SIGTERM or SIGINT; return the exit status."""
    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    orders = msgspec.json.decode(document, type=Orders)
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        resident = Resident(orders)
        try:
            logger.info("agent of %r, broker %s, %d records wait", orders.device, resident.address, resident.waiting())
            # Somebody who looks on has started it by hand, and it alone.
            resident.run(stop, 0.0 if sys.stderr.isatty() else FIRST_SPREAD_S)
        finally:
            resident.close()
    except EdgemeterError as error:
        logger.error("%s", error)  # noqa: TRY400 - no traceback for what is known
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
