"""The way out of the device: a record is kept in the outbox before anything else, then sent, then forgotten on receipt."""

import logging
from typing import Literal

from edgemeter.agent import config
from edgemeter.agent.delivery import birth, broker_address
from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.engine.session import Identity
from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.health import verdict_log
from edgemeter.agent.records import RunRecord

logger = logging.getLogger(__name__)

OUTBOX = "outbox.sqlite"


class Way:
    """An outbox with its publisher; `publisher` has no connection yet where none could be had and that was allowed."""

    def __init__(self, outbox: Outbox, publisher: Publisher, device: str) -> None:
        self._outbox = outbox
        self._publisher = publisher
        self._device = device

    @property
    def address(self) -> BrokerAddress:
        """Where the records go."""
        return self._publisher.address

    def keep(self, record: RunRecord) -> RunRecord:
        """Return the record with the number that the outbox gave it, once it is on disk; it is sent from then on."""
        kept = self._outbox.put(record)
        verdict_log.note(self._outbox.path.parent, kept.started_at_ns, kept.verdict.state)
        self._publisher.wake()
        return kept

    def waiting(self) -> int:
        """Return how many of this device's records no receipt has named yet."""
        return self._outbox.count(self._device)

    def others(self) -> dict[str, int]:
        """Return how many records of other devices wait in the same outbox, by device."""
        return {name: count for name, count in self._outbox.waiting().items() if name != self._device}

    def drain(self, timeout_s: float) -> int:
        """Wait for the receipts of all records, at most `timeout_s`; return how many are missing."""
        return self._publisher.drain(timeout_s)

    def why_left(self) -> str:
        """Return why receipts are missing, as one line."""
        return self._publisher.why_left()

    def close(self) -> None:
        """End the connection; what no receipt has named stays in the outbox."""
        self._publisher.close()
        self._outbox.close()


def open_way(who: Identity, settings: config.Config, broker: str | None, if_no_broker: Literal["fail", "keep"]) -> Way | None:
    """Return the way to the broker that the option or the configuration names, connected; None where neither names one.

    Raises:
        UnavailableError: no broker answers, and `if_no_broker` is "fail".
        ConfigError: the address, the password file or the outbox is wrong.
    """
    named = broker or settings.broker
    if named is None:
        return None
    address = broker_address.configured(named, settings)
    outbox = Outbox(config.home() / OUTBOX, settings.outbox_limit_mb << 20)
    publisher = Publisher(address, outbox, birth.read(who.device, who.fleet, outbox.session, settings))
    way = Way(outbox, publisher, who.device)
    try:
        publisher.connect()
    except UnavailableError as error:
        if if_no_broker == "fail":
            way.close()
            raise
        logger.warning("%s; results are kept in %s", error, outbox.path)
        # From here on it looks for a broker by itself.
        publisher.start()
    return way
