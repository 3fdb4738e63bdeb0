"""Messages between a device and the fleet's enrolment service: the join file, requests for certificates and their answers."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.base.types import Hex, Name, TimeNs
from edgemeter.agent.contract.messages import decode_message, decoder_of

LARGEST_BYTES = 16 << 10
ENROL = "edgemeter/enrol"
EVERY_REQUEST = f"{ENROL}/+/request"
CLAIM_DIGITS = 32
RESERVED_PREFIX = "edgemeter-"  # Names of services: no device may have one.
Serial = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=200)]
Pem = Annotated[str, msgspec.Meta(max_length=4096)]
# Where a serial number was found, the surest first; `installation` does not outlive a re-flash, `made` is drawn at random.
SerialSource = Literal["device-tree", "emmc", "dmi", "installation", "made"]


class CertificateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A certificate for the key in `csr`, please; `device` is the wished name, `serial` that of the board."""

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


EnrolmentMessage: TypeAlias = CertificateRequest | CertificateHeld


def token_id(token: str) -> str:
    """Return the public id of `token`, which does not reveal it."""
    return hashlib.sha256(token.encode()).hexdigest()[:CLAIM_DIGITS]


def request_id(csr: str) -> str:
    """Return by what an Answer names the Ask with that CSR."""
    return hashlib.sha256(csr.encode()).hexdigest()


def request_topic(token: str) -> str:
    """Return the topic of the requests with the token of that id."""
    return f"{ENROL}/{token}/request"


def answer_topic(token: str) -> str:
    """Return the topic of the answers to the token of that id."""
    return f"{ENROL}/{token}/answer"


encode_identity: Callable[[EnrolmentMessage | EnrolmentAnswer], bytes] = msgspec.json.encode


def decode_request(payload: bytes) -> EnrolmentMessage:
    """Return the message of a device; raises ConfigError if it is too long, no such message, or has an unknown field."""
    if payload.startswith(b'{"held"'):
        return decode_message(payload, CertificateHeld, "a device's confirmation of its certificate", LARGEST_BYTES)
    return decode_message(payload, CertificateRequest, "a request for a certificate", LARGEST_BYTES)


decode_answer = decoder_of(EnrolmentAnswer, "an answer of the enrolment service", LARGEST_BYTES)
# Keys whose values are secrets; a value is a string on one line, as `text` and people write it.
_SECRET = re.compile(rb"""^([ \t]*(?:token|psk|password|passphrase)[ \t]*=[ \t]*)("(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*')""", re.MULTILINE)
_LINE = re.compile(rb"^[ \t]*(?:token|psk|password|passphrase)[ \t]*=.*(?:\r?\n|\Z)", re.MULTILINE)


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


def wipe_secrets(path: Path) -> bool:
    """Overwrite the secrets in `path` where they stand on the disk, then take their lines out; return whether there were any.

    A file system may still hold copies elsewhere (flash moves what is rewritten): the token serves nobody after it has served.

    Raises:
        UnavailableError: the file cannot be written: its medium is read-only, or belongs to somebody else.
    """
    try:
        content = path.read_bytes()
        if not _LINE.search(content):
            return False
        filled = _SECRET.sub(lambda match: match[1] + match[2][:1] + b"x" * (len(match[2]) - 2) + match[2][-1:], content)
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, filled, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnavailableError(
            f"cannot wipe the secrets from {str(path)!r} ({error.strerror}): make its medium writable, or delete it yourself"
        ) from error
    durable_file.write(path, _LINE.sub(b"", filled))
    return True
