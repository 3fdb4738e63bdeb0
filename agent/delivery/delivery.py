"""Delivery of a session's records.

Each is stored in the outbox first, then sent, then deleted on receipt.
"""

import logging
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base import broker_address, config
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.delivery import birth
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import OUTBOX
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.delivery.verdict_log import note_verdict
from edgemeter.agent.session.session import DeviceIdentity

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outbox of a device with its publisher, which may not be connected yet."""

    outbox: Outbox
    publisher: Publisher
    device: str

    def keep(self, record: RunRecord) -> RunRecord:
        """Store the record durably, and return it with its number in the outbox.

        It is sent from then on.
        """
        numbered = self.outbox.put(record)
        note_verdict(self.outbox.path.parent, numbered.started_at_ns, numbered.verdict.state)
        self.publisher.wake()
        return numbered

    def waiting(self) -> int:
        """Return the number of this device's records without a receipt."""
        return self.outbox.count(self.device)

    def others(self) -> dict[str, int]:
        """Return the number of waiting records of other devices in the same outbox, by device."""
        return {name: count for name, count in self.outbox.waiting().items() if name != self.device}

    def close(self) -> None:
        """Close the connection; records without a receipt stay in the outbox."""
        self.publisher.close()
        self.outbox.close()


def open_delivery(
    identity: DeviceIdentity,
    settings: config.Config,
    broker: str,
    if_no_broker: Literal["fail", "keep"],
) -> Delivery:
    """Return the delivery to the broker, connected.

    Raises:
        UnavailableError: no broker answers, and `if_no_broker` is "fail".
        ConfigError: the address, the password file or the outbox is wrong.
    """
    address = broker_address.parse_address(broker)
    outbox = Outbox(config.home() / OUTBOX, settings.outbox_limit_mb << 20)
    publisher = Publisher(
        address, outbox, birth.read(identity.device, identity.fleet, outbox.session, settings)
    )
    delivery = Delivery(outbox, publisher, identity.device)
    try:
        publisher.connect()
    except UnavailableError as error:
        if if_no_broker == "fail":
            delivery.close()
            raise
        logger.warning("%s; results are kept in %s", error, outbox.path)
        # From here on it reconnects automatically.
        publisher.start()
    return delivery
