"""Delivery of a session's records: each is kept in the outbox before anything else, then sent, then forgotten on receipt."""

import logging
from typing import Literal

from edgemeter.agent.base import broker_address, config
from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.messages import Measuring
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.delivery import birth
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import OUTBOX
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.delivery.verdict_log import note_verdict
from edgemeter.agent.session.session import DeviceIdentity

logger = logging.getLogger(__name__)


class Delivery:
    """An outbox with its publisher, which may still be without a connection."""

    def __init__(self, outbox: Outbox, publisher: Publisher, device: str) -> None:
        self._outbox = outbox
        self._publisher = publisher
        self._device = device

    @property
    def address(self) -> BrokerAddress:
        """Where the records go."""
        return self._publisher.address

    def keep(self, record: RunRecord) -> RunRecord:
        """Return the record with its number in the outbox, once it is on disk; it is sent from then on."""
        kept = self._outbox.put(record)
        note_verdict(self._outbox.path.parent, kept.started_at_ns, kept.verdict.state)
        self._publisher.wake()
        return kept

    def report_activity(self, measuring: Measuring | None) -> None:
        """Report the current measurement, None when there is none; without a connection nothing is sent."""
        self._publisher.report_activity(measuring)

    def waiting(self) -> int:
        """Return how many records of this device have no receipt yet."""
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
        """Close the connection; records without a receipt stay in the outbox."""
        self._publisher.close()
        self._outbox.close()


def open_delivery(
    identity: DeviceIdentity, settings: config.Config, broker: str | None, if_no_broker: Literal["fail", "keep"]
) -> Delivery | None:
    """Return the delivery to the broker named by the option or the configuration, connected; None if neither names one.

    Raises:
        UnavailableError: no broker answers, and `if_no_broker` is "fail".
        ConfigError: the address, the password file or the outbox is wrong.
    """
    named = broker or settings.broker
    if named is None:
        return None
    address = broker_address.configured_address(named, settings)
    outbox = Outbox(config.home() / OUTBOX, settings.outbox_limit_mb << 20)
    publisher = Publisher(address, outbox, birth.read(identity.device, identity.fleet, outbox.session, settings))
    delivery = Delivery(outbox, publisher, identity.device)
    try:
        publisher.connect()
    except UnavailableError as error:
        if if_no_broker == "fail":
            delivery.close()
            raise
        logger.warning("%s; results are kept in %s", error, outbox.path)
        # From here on it connects by itself.
        publisher.start()
    return delivery
