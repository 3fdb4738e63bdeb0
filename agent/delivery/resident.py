"""The agent that stays: connected for months, it delivers what other processes of the device put into the outbox.

It speaks for the device: birth, state and Will are its own, and its attendants hear what the device is told. It shares a small board
with what is measured there, so it is a program of its own (`python -m edgemeter.agent.delivery.lean ORDERS`), which holds neither
the command line nor what only a measurement needs.
"""

import logging
import random
import signal
import sys
import time
from pathlib import Path

import msgspec

from edgemeter.agent import config as configuration
from edgemeter.agent.delivery import attendants, birth, broker_address, service_manager
from edgemeter.agent.delivery.attendance import Attendance
from edgemeter.agent.delivery.attendant import Post
from edgemeter.agent.delivery.last_words import LastWords
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.errors import EdgemeterError

logger = logging.getLogger(__name__)

OUTBOX = "outbox.sqlite"
LOOK_S = 5.0
# Boards that get their power back at the same moment connect within this time, not at once.
FIRST_SPREAD_S = 5.0
LAST_WORDS = LastWords()


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
        self._attendance = Attendance()
        self._publisher = Publisher(self.address, self._outbox, born, lasting="persistent", listener=self._attendance)
        self._is_over = False
        self._attendance.attendants = attendants.make(self._post(orders, settings))

    def _post(self, orders: Orders, settings: configuration.Config) -> Post:
        return Post(
            device=orders.device,
            fleet=orders.fleet,
            session=self._outbox.session,
            settings=settings,
            home=configuration.home(),
            config=Path(orders.config) if orders.config else None,
            publish=self._publisher.publish,
            is_connected=self._publisher.is_connected,
            wake=self._attendance.wake,
            restart=self.end,
            log=LAST_WORDS.lines,
        )

    def waiting(self) -> int:
        """Return how many of this device's records no receipt has named yet."""
        return self._outbox.count(self._device)

    def run(self, first_spread_s: float = FIRST_SPREAD_S) -> None:
        """Stay until `end`; a broker that is not there is looked for again and again."""
        service_manager.notify("READY=1")
        connect_s = time.monotonic() + random.uniform(0, first_spread_s)  # noqa: S311 - spreads connections over time, no secret
        while not self._is_over:
            if time.monotonic() >= connect_s:
                self._publisher.start()
                # Another process may have put something there.
                self._publisher.wake()
            self._attendance.serve(LOOK_S)
            if self._publisher.is_alive():
                service_manager.notify("WATCHDOG=1")

    def end(self) -> None:
        """Let `run` return; may be called from a signal."""
        self._is_over = True
        self._attendance.wake()

    def close(self) -> None:
        """Say goodbye; what no receipt has named stays in the outbox."""
        service_manager.notify("STOPPING=1")
        self._attendance.close()
        self._publisher.close()
        self._outbox.close()


def main(document: str) -> int:
    """Stay as `document` (orders as JSON) says, until SIGTERM or SIGINT; return the exit status."""
    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    logging.getLogger().addHandler(LAST_WORDS)
    # Told to end before there is anything to end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    orders = msgspec.json.decode(document, type=Orders)
    try:
        resident = Resident(orders)
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: resident.end())
            logger.info("agent of %r, broker %s, %d records wait", orders.device, resident.address, resident.waiting())
            # Somebody who looks on has started it by hand, and it alone.
            resident.run(0.0 if sys.stderr.isatty() else FIRST_SPREAD_S)
        finally:
            resident.close()
    except EdgemeterError as error:
        logger.error("%s", error)  # noqa: TRY400 - no traceback for what is known
        return error.exit_status
    return 0
