"""Messages between a device and the fleet's enrolment service: the join file, requests for certificates and their answers."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.base.types import Hex, Name, TimeNs
from edgemeter.agent.contract.messages import decode_message, decoder_of

LARGEST_BYTES = 16 << 10
ENROL = "edgemeter/enrol"
CLAIM_DIGITS = 32
RESERVED_PREFIX = "edgemeter-"  # Names of services: no device may have one.
Serial = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=200)]
Pem = Annotated[str, msgspec.Meta(max_length=4096)]
# The source of a serial number, the most reliable first; `installation` does not outlive a re-flash, `made` is drawn at random.
SerialSource = Literal["device-tree", "emmc", "dmi", "installation", "made"]


class CertificateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a certificate for the key in `csr`; `device` is the desired name, `serial` the board's serial number."""

    csr: Pem
    serial: Serial
    serial_source: SerialSource
    board: Text | None = None
    device: Name | None = None


class CertificateHeld(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The device has the certificate of this number on its disk, so the token has served; or it has connected with it after a renewal."""

    held: Hex


class EnrolmentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on the request whose CSR has the sha256 `request`; `now_ns` is the server's clock.

    pending: needs approval; refused: for good; again: this key belongs to another board, make a new one and request again.
    """

    request: Hex
    state: Literal["accepted", "pending", "refused", "again"]
    now_ns: TimeNs
    reason: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    device: Name | None = None
    fleet: Name | None = None
    number: Hex | None = None
    certificate: Pem | None = None
    not_after_ns: TimeNs | None = None


def token_id(token: str) -> str:
    """Return the public id of `token`, which does not reveal it."""
    return hashlib.sha256(token.encode()).hexdigest()[:CLAIM_DIGITS]


def request_id(csr: str) -> str:
    """Return the name that an answer has for the request with that CSR."""
    return hashlib.sha256(csr.encode()).hexdigest()


def request_topic(token: str) -> str:
    """Return the topic of the requests with the token of that id."""
    return f"{ENROL}/{token}/request"


def answer_topic(token: str) -> str:
    """Return the topic of the answers to the token of that id."""
    return f"{ENROL}/{token}/answer"


encode_identity: Callable[[CertificateRequest | CertificateHeld | EnrolmentAnswer], bytes] = msgspec.json.encode


def decode_request(payload: bytes) -> CertificateRequest | CertificateHeld:
    """Return the message of a device; raises ConfigError if it is too long, no such message, or has an unknown field."""
    if payload.startswith(b'{"held"'):
        return decode_message(payload, CertificateHeld, "a device's confirmation of its certificate", LARGEST_BYTES)
    return decode_message(payload, CertificateRequest, "a request for a certificate", LARGEST_BYTES)


decode_answer = decoder_of(EnrolmentAnswer, "an answer of the enrolment service", LARGEST_BYTES)


class JoinFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the join file; `enrol` is the broker for devices with a `token` and no certificate, `wifi` is for the first boot."""

    fleet: Name
    device: Name | None = None
    broker: str
    enrol: str
    ca: str
    token: str | None = None
    content_url: str | None = None
    wifi: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"JoinFile(fleet={self.fleet!r}, device={self.device!r}, broker={self.broker!r})"


def read_join_file(path: Path) -> JoinFile:
    """Return the join file at `path`.

    Raises:
        ConfigError: it cannot be read, or has a wrong or unknown key; no value of it is repeated.
    """
    try:
        return decode_toml(path.read_bytes(), JoinFile)
    except OSError as error:
        raise ConfigError(
            f"cannot read the join file {str(path)!r} ({error.strerror}): `edgemeter fleet token DEVICE` writes one"
        ) from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"join file {str(path)!r}: {error}: write a new one with `edgemeter fleet token DEVICE`") from error


def join_file_text(join: JoinFile) -> str:
    """Return the file's text."""
    fields = {name: getattr(join, name) for name in ("fleet", "device", "broker", "enrol", "content_url", "token")}
    # Only the certificate is on several lines: `wipe_secrets` looks for secrets on one.
    ca = f"ca = '''\n{join.ca.strip()}\n'''\n"
    return toml_document(fields) + ca + (f"\n{toml_document({'wifi': join.wifi})}" if join.wifi else "")
