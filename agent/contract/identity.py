"""Messages between a device and the fleet's service over HTTPS.

They are the join file, requests for certificates and their answers.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.base.types import Hex, Name, TimeNs
from edgemeter.agent.contract.messages import decoder_of

LARGEST_BYTES = 16 << 10
RESERVED_PREFIX = "edgemeter-"  # Names of services: no device may have one.
Serial = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=200)]
Pem = Annotated[str, msgspec.Meta(max_length=4096)]
# The source of a serial number, the most reliable first; `installation` does not outlive a
# re-flash, `made` is drawn at random.
SerialSource = Literal["device-tree", "emmc", "dmi", "installation", "made"]


class CertificateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a certificate for the key in `csr`, on the board with that `serial`.

    A board without a certificate has a `token`.
    """

    csr: Pem
    serial: Serial
    serial_source: SerialSource
    board: Text | None = None
    token: Annotated[str, msgspec.Meta(max_length=200)] | None = None

    def __repr__(self) -> str:
        return f"CertificateRequest(serial={self.serial!r}, board={self.board!r})"


class EnrolmentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a request for a certificate; `now_ns` is the server's clock.

    pending: needs approval; refused: for good; again: this key belongs to another board, make a new
    one and request again.
    """

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
    return hashlib.sha256(token.encode()).hexdigest()


encode_identity: Callable[[CertificateRequest | EnrolmentAnswer], bytes] = msgspec.json.encode
decode_request = decoder_of(CertificateRequest, "a request for a certificate", LARGEST_BYTES)
decode_answer = decoder_of(EnrolmentAnswer, "an answer of the enrolment service", LARGEST_BYTES)


class JoinFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the join file.

    A board asks for its certificate at `service` (https://HOST:PORT).
    """

    fleet: Name
    device: Name | None = None
    broker: str
    service: str
    ca: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"JoinFile(fleet={self.fleet!r}, device={self.device!r}, broker={self.broker!r})"


def read_join_file(path: Path) -> JoinFile:
    """Return the join file.

    Raises:
        ConfigError: it cannot be read or has a wrong or unknown key; the message has none of its
            values.
    """
    try:
        return decode_toml(path.read_bytes(), JoinFile)
    except OSError as error:
        raise ConfigError(
            f"cannot read the join file {str(path)!r} ({error.strerror}): `edgemeter fleet token "
            "DEVICE` writes one"
        ) from error
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"join file {str(path)!r}: {error}: write a new one with `edgemeter fleet token DEVICE`"
        ) from error


def join_file_text(join: JoinFile) -> str:
    fields = {
        name: getattr(join, name) for name in ("fleet", "device", "broker", "service", "token")
    }
    # Only the certificate has several lines: `wipe_secrets` searches line by line.
    return toml_document(fields) + f"ca = '''\n{join.ca.strip()}\n'''\n"
