"""What a device and the fleet's enrolment desk say to each other, to join and to renew a certificate.

device -> desk   edgemeter/enrol/<claim>/request    an Ask, then a Held; with a token and no certificate yet
desk -> device   edgemeter/enrol/<claim>/answer     an Answer
device -> desk   edgemeter/v1/<fleet>/<device>/renew         an Ask; with the device's certificate
desk -> device   edgemeter/v1/<fleet>/<device>/certificate   an Answer
"""

import hashlib
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import Name

LARGEST_BYTES = 16 << 10
ENROL = "edgemeter/enrol"
EVERY_REQUEST = f"{ENROL}/+/request"
CLAIM_DIGITS = 32

Hex = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{1,64}\Z")]
Serial = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=200)]
Pem = Annotated[str, msgspec.Meta(max_length=4096)]
# Where a serial number was found, the surest first; `installation` does not outlive a re-flash, `made` is drawn at random.
SerialSource = Literal["device-tree", "emmc", "dmi", "installation", "made"]

_Part = TypeVar("_Part")


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A certificate for the key in `csr`, please; `device` is the wished name, `serial` that of the board."""

    csr: Pem
    serial: Serial
    serial_source: SerialSource
    board: Text | None = None
    device: Name | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The device has the certificate of this number on its disk: the token has served."""

    held: Hex


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The desk's word on the Ask whose CSR has the sha256 `request`; `now_ns` is the server's clock.

    pending: somebody has to say yes; refused: for good; again: this key belongs to another board, make a new one and ask again.
    """

    request: Hex
    state: Literal["accepted", "pending", "refused", "again"]
    now_ns: Annotated[int, msgspec.Meta(ge=0)]
    reason: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    device: Name | None = None
    fleet: Name | None = None
    number: Hex | None = None
    certificate: Pem | None = None
    not_after_ns: Annotated[int, msgspec.Meta(ge=0)] | None = None


Asking: TypeAlias = Ask | Held


def claim_of(token: str) -> str:
    """Return the name under which whoever has `token` may ask: no secret, the token cannot be told from it."""
    return hashlib.sha256(token.encode()).hexdigest()[:CLAIM_DIGITS]


def request_of(csr: str) -> str:
    """Return by what an Answer names the Ask with that CSR."""
    return hashlib.sha256(csr.encode()).hexdigest()


def request_topic(claim: str) -> str:
    """Return where a claim asks."""
    return f"{ENROL}/{claim}/request"


def answer_topic(claim: str) -> str:
    """Return where a claim hears the answer."""
    return f"{ENROL}/{claim}/answer"


def encode(message: Ask | Held | Answer) -> bytes:
    """Return the message as JSON."""
    return msgspec.json.encode(message)


def decode_asking(payload: bytes) -> Asking:
    """Return what a device said.

    Raises:
        ConfigError: it is too long, no such message, or has an unknown field.
    """
    if payload.startswith(b'{"held"'):
        return _decode(payload, Held, "a device's word on its certificate")
    return _decode(payload, Ask, "a request for a certificate")


def decode_answer(payload: bytes) -> Answer:
    """Return what the desk said.

    Raises:
        ConfigError: it is no answer.
    """
    return _decode(payload, Answer, "an answer of the enrolment desk")


def _decode(payload: bytes, kind: type[_Part], what: str) -> _Part:
    if len(payload) > LARGEST_BYTES:
        message = f"not {what}: {len(payload)} bytes, at most {LARGEST_BYTES}"
        raise ConfigError(message)
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        message = f"not {what}: {error}"
        raise ConfigError(message) from error
