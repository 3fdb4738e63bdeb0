"""The identity of this device.

It is its files, its own key, the serial number of its board, and the earliest possible time.
"""

import re
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.openssl import run_openssl
from edgemeter.agent.base.tls import TlsFiles
from edgemeter.agent.base.types import Hex, Name
from edgemeter.agent.contract.identity import Serial, SerialSource
from edgemeter.agent.machine.board import PLACEHOLDERS
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

# An SD card's number belongs to the card: only a soldered medium (type MMC) identifies the board.
_PLACES: tuple[tuple[SerialSource, str], ...] = (
    ("device-tree", "proc/device-tree/serial-number"),
    ("device-tree", "sys/firmware/devicetree/base/serial-number"),
    ("emmc", "sys/block/mmcblk*/device/cid"),
    ("dmi", "sys/class/dmi/id/product_uuid"),
    ("dmi", "sys/class/dmi/id/board_serial"),
    ("dmi", "sys/class/dmi/id/product_serial"),
    ("installation", "etc/machine-id"),
)
_LONGEST = 128


class BoardSerial(msgspec.Struct, frozen=True):
    """A serial number and its source: `path` below the root, None for a random one."""

    serial: Serial
    source: SerialSource
    path: str | None


def read_board_serial(machine: Machine = THIS_MACHINE) -> BoardSerial:
    """Return the most reliable serial number of this board; a random one if it has none."""
    for source, path in _places(machine):
        if (serial := _serial(machine, path)) is not None:
            return BoardSerial(serial, source, path)
    return BoardSerial(f"made-{secrets.token_hex(16)}", "made", None)


def differs_from_board(board: BoardSerial, machine: Machine = THIS_MACHINE) -> bool:
    """Return whether this board is certainly another than `board`.

    A number that cannot be read (some need root) or is random proves nothing: then the board counts
    as the same.
    """
    if board.path is None:
        return False
    serial = _serial(machine, board.path)
    if serial is not None:
        return serial != board.serial
    # The number is absent, not unreadable: a Pi's card in a board without a device tree, an eMMC's
    # image on a card.
    return not (machine.root / board.path).exists() and read_board_serial(machine).source not in {
        "made",
        "installation",
    }


def _places(machine: Machine) -> Iterator[tuple[SerialSource, str]]:
    for source, pattern in _PLACES:
        if "*" not in pattern:
            yield source, pattern
            continue
        for path in machine.find(pattern):
            if machine.line(path.parent / "type") == "MMC":
                yield source, str(path)


def _serial(machine: Machine, path: str | Path) -> str | None:
    """Return the number in a file; None if there is none, or a placeholder."""
    text = re.sub(r"[^A-Za-z0-9._:-]+", "-", machine.line(path) or "").strip("-._:")
    if (
        not text
        or set(text) <= set("0-.:")
        or set(text.lower()) <= set("f-")
        or PLACEHOLDERS.match(text.replace("-", " "))
    ):
        return None
    return text.lower()[:_LONGEST]


class _Built(msgspec.Struct):
    built_ns: Annotated[int, msgspec.Meta(ge=0)]


def clock_floor_ns(issued_ns: int | None, release: Path = Path(sys.prefix)) -> int:
    """Return when the installed release was built, or the certificate issued (`issued_ns`).

    It is whichever is later; 0 if unknown.
    """
    built = durable_file.read_if_any(release / "manifest.json", _Built)
    return max(built.built_ns if built else 0, issued_ns or 0)


def make_key(path: Path) -> None:
    """Write a new P-256 key to `path`, readable only by its owner.

    Raises:
        UnavailableError: there is no openssl, it fails, or the file cannot be written.
    """
    durable_file.write(
        path, run_openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    )


def certificate_request(path: Path, common_name: str | None) -> str:
    """Return a certificate signing request, PEM, for the key in `path`.

    `common_name` is None before the fleet has given a name.

    Raises:
        UnavailableError: there is no openssl, it fails, or the key cannot be read.
    """
    # Our own configuration: the board's may be missing, or ask for countries and cities.
    with tempfile.NamedTemporaryFile("w", suffix=".cnf") as settings:
        escaped = (common_name or "").replace("\\", "\\\\").replace("$", "\\$").replace("#", "\\#")
        name, subject = (f'CN = "{escaped}"\n', []) if common_name else ("", ["-subj", "/"])
        settings.write(
            "[req]\nprompt = no\nutf8 = yes\nstring_mask = utf8only\ndistinguished_name = name\n"
            f"[name]\n{name}"
        )
        settings.flush()
        request = run_openssl(
            "req",
            "-new",
            "-batch",
            "-sha256",
            "-key",
            str(path),
            "-config",
            settings.name,
            *subject,
        )
    return request.decode("ascii")


def belong_together(certificate: Path, key: Path) -> bool:
    """Return whether the certificate is for that key; False if either cannot be read."""
    try:
        return run_openssl("x509", "-in", str(certificate), "-noout", "-pubkey") == run_openssl(
            "pkey", "-in", str(key), "-pubout"
        )
    except UnavailableError:
        return False


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The stored identity of a device.

    `claim` is the id of its enrolment token; times are the server's.

    `board` is the board that created it; `service` is where it renews its certificate and fetches
    content, https://HOST:PORT.
    """

    device: Name
    fleet: Name
    board: BoardSerial
    broker: str
    service: str
    number: Hex
    claim: Hex | None
    issued_ns: int
    not_after_ns: int


class IdentityFiles:
    """The files of an identity in the agent's `home`.

    `key`, `certificate` and `ca` (the fleet's authority) are PEM, `identity` is JSON. `next_key` is
    the key of a certificate that was requested and has not arrived; `joined` is the marker that the
    first boot waits for.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "identity"
        self.key = self.folder / "device.key"
        self.certificate = self.folder / "device.crt"
        self.ca = self.folder / "ca.crt"
        self.identity = self.folder / "identity.json"
        self.next_key = self.folder / "next.key"
        self.joined = home / "joined"

    @property
    def tls(self) -> TlsFiles:
        """The files for TLS between this device and its fleet's servers."""
        return TlsFiles(self.ca, self.certificate, self.key)


def read_identity(home: Path) -> Identity | None:
    """Return the identity in the agent's home, None if it has joined no fleet.

    Raises:
        ConfigError: it cannot be read.
    """
    remedy = "join its fleet again with `edgemeter agent join`"
    return durable_file.read_struct(
        IdentityFiles(home).identity, Identity, "identity of this device", remedy
    )
