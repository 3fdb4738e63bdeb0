"""Messages that the fleet's service signs.

So a board obeys the service and not the broker between them.

The signature is over the exact bytes of `message`; `certificate` is the service's, signed by the
fleet's authority, which each board has.
"""

from typing import Annotated

import msgspec

from edgemeter.agent.base.types import Hex, Name
from edgemeter.agent.contract.identity import Pem
from edgemeter.agent.contract.messages import decode_message, decoder_of

# The common name of the service's certificate; no device may have a name like it.
SERVICE_NAME = "edgemeter-fleet"
ENVELOPE_BYTES = 8 << 10  # Room for the envelope around a message.


class SealedMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed message; `signature` is ECDSA on P-256 with SHA-256, DER, in base64."""

    signature: Annotated[bytes, msgspec.Meta(max_length=200)]
    certificate: Pem
    message: msgspec.Raw


class AddressedCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An [Order](#order) or a [ReportReceipt](#reportreceipt) for one board of one fleet.

    It is in answer to the `challenge` of its last state.

    Without a challenge it is no command: the service asks the board to report its state again.
    """

    fleet: Name
    device: Name
    challenge: Hex | None
    command: msgspec.Raw


def decode_sealed(payload: bytes, title: str, largest_bytes: int) -> SealedMessage:
    """Return the envelope; nothing of it is verified yet. `title` names the message in errors.

    Raises:
        ConfigError: it is longer than `largest_bytes` and the envelope, or not signed at all.
    """
    return decode_message(
        payload, SealedMessage, f"{title} that is signed", largest_bytes + ENVELOPE_BYTES
    )


def encode_addressed(fleet: str, device: str, challenge: str | None, command: bytes) -> bytes:
    """Return the bytes that the service signs for an order or a receipt in JSON."""
    return msgspec.json.encode(
        AddressedCommand(
            fleet=fleet, device=device, challenge=challenge, command=msgspec.Raw(command)
        )
    )


decode_addressed = decoder_of(AddressedCommand, "a command for a device", None)
