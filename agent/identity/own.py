"""Who this device is: the files of its identity, and whether they belong to this board.

`identity/` in the agent's home holds `device.key`, `device.crt`, `ca.crt` and `identity.json`. A card copied to another
board must not speak for the first one: see `moved_card`.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent import durable_file
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.identity import board_serial
from edgemeter.agent.identity.board_serial import BoardSerial
from edgemeter.agent.identity.messages import Hex, Serial, SerialSource
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.records import Name

FOLDER = "identity"
JOINED = "joined"
# A device asks for its next certificate when this part of the present one's life has passed.
RENEW_AT_RATIO = 2 / 3


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What the device knows of itself; `claim` is by which token it joined, times are the server's, `seen_ns` the last it heard of them."""

    device: Name
    fleet: Name
    serial: Serial
    serial_source: SerialSource
    serial_path: str | None
    broker: str
    number: Hex
    claim: Hex | None
    issued_ns: int
    not_after_ns: int
    seen_ns: int

    def board(self) -> BoardSerial:
        """Return the board that this identity was made on."""
        return BoardSerial(self.serial, self.serial_source, self.serial_path)

    def is_due(self, now_ns: int) -> bool:
        """Return whether it is time for the next certificate; a clock that is behind is taken forward to what the server said last."""
        life_ns = self.not_after_ns - self.issued_ns
        return max(now_ns, self.seen_ns) >= self.issued_ns + int(life_ns * RENEW_AT_RATIO)


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    """The files of an identity in the agent's `home`."""

    home: Path

    @property
    def folder(self) -> Path:
        """Their folder."""
        return self.home / FOLDER

    @property
    def key(self) -> Path:
        """The device's private key, PEM."""
        return self.folder / "device.key"

    @property
    def certificate(self) -> Path:
        """The device's certificate, PEM."""
        return self.folder / "device.crt"

    @property
    def ca(self) -> Path:
        """The fleet's authority, PEM."""
        return self.folder / "ca.crt"

    @property
    def identity(self) -> Path:
        """What the device knows of itself, JSON."""
        return self.folder / "identity.json"

    @property
    def next_key(self) -> Path:
        """The key for which a certificate was asked and has not come yet."""
        return self.folder / "next.key"

    @property
    def joined(self) -> Path:
        """The marker that the first boot waits for."""
        return self.home / JOINED


def read(home: Path) -> Identity | None:
    """Return the identity in the agent's home, None where it has joined no fleet.

    Raises:
        ConfigError: it cannot be read.
    """
    path = IdentityFiles(home).identity
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"cannot read who this device is from {str(path)!r} ({error}): join its fleet anew with `edgemeter agent join`"
        raise ConfigError(message) from error


def write(home: Path, identity: Identity) -> None:
    """Keep the identity.

    Raises:
        UnavailableError: it cannot be written.
    """
    durable_file.write(IdentityFiles(home).identity, msgspec.json.encode(identity))


def is_other_board(home: Path, machine: Machine = THIS_MACHINE) -> bool:
    """Return whether the identity in `home` was made on another board than this one: the card was copied or moved.

    Raises:
        ConfigError: it cannot be read.
    """
    identity = read(home)
    return identity is not None and board_serial.is_other_board(identity.board(), machine)
