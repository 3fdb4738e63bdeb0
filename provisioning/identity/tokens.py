"""Tokens: a device joins with one, once; the server keeps its hashes, the join file the token itself."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent import durable_file
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.identity import join_file, messages
from edgemeter.agent.identity.join_file import JoinFile
from edgemeter.agent.records import Name
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.identity import acl, broker_password, claims
from edgemeter.provisioning.identity.authority import LONGEST_NAME
from edgemeter.provisioning.identity.claims import Claim
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry

TOKEN_BYTES = 32
_HOUR_NS = 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a device needs to join, and until when by the server's clock."""

    device: str
    expires_ns: int
    join: JoinFile


def check_name(device: str, registry: Registry) -> None:
    """Find out whether a device may be called so and may join.

    Raises:
        ConfigError: the name cannot stand in a certificate or belongs to a service, or the device was revoked.
    """
    try:
        msgspec.convert(device, type=Name)
    except msgspec.ValidationError as error:
        message = f"{device!r} cannot be a device's name: letters, digits and ' ._:@-', a letter or digit first, at most {LONGEST_NAME}"
        raise ConfigError(message) from error
    if len(device) > LONGEST_NAME:
        message = f"{device!r} has {len(device)} characters, a certificate's name at most {LONGEST_NAME}: choose a shorter one"
        raise ConfigError(message)
    if device.startswith(acl.RESERVED):
        message = f"{device!r} begins like the names of the fleet's services ({acl.RESERVED}...): choose another"
        raise ConfigError(message)
    known = devices.find(registry, device)
    if known is not None and known.standing == "revoked":
        message = f"device {device!r} was revoked: `edgemeter fleet accept {device!r}` takes it back first"
        raise ConfigError(message)


def invite(
    folder: FleetFolder,
    registry: Registry,
    inventory: FleetFile,
    device: str,
    hours: float,
    now_ns: int,
    keep: Callable[[Invitation], object] = lambda _: None,
) -> Invitation:
    """Return a new token for `device`, good for `hours`; the one it had before ends, unless `keep` cannot keep it and raises.

    Raises:
        ConfigError: as `check_name`, or the inventory names no broker.
    """
    check_name(device, registry)
    if inventory.server is None:
        message = f"{str(folder.fleet_file)!r} names no broker: add [server] broker = ..."
        raise ConfigError(message)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    expires_ns = now_ns + int(hours * _HOUR_NS)
    claim = Claim(messages.claim_of(token), broker_password.hashed(token), device, inventory.fleet, now_ns, expires_ns)
    server = inventory.server
    host = f"[{server.broker}]" if ":" in server.broker else server.broker
    join = JoinFile(
        fleet=inventory.fleet,
        device=device,
        broker=f"mqtts://{host}:{server.broker_port}",
        enrol=f"mqtts://{host}:{server.enrol_port}",
        ca=_certificate(folder.ca_certificate),
        token=token,
        content_url=server.content_url,
    )
    invitation = Invitation(device, expires_ns, join)
    with registry.transaction() as connection:
        claims.put(connection, claim)
        if devices.find(registry, device) is None:
            devices.put(connection, _expected(device, inventory, now_ns))
        keep(invitation)
    return invitation


def place(device: str, folder: Path) -> Path:
    """Return where the join file of a device stands in `folder`."""
    return folder / f"{device}.join.toml"


def write(invitation: Invitation, folder: Path) -> None:
    """Write the join file of a device into `folder`, for its owner alone.

    Raises:
        UnavailableError: it cannot be written.
    """
    durable_file.write(place(invitation.device, folder), join_file.text(invitation.join).encode())


def _expected(device: str, inventory: FleetFile, now_ns: int) -> Device:
    entry = inventory.device.get(device, DeviceEntry())
    return Device(device, inventory.fleet, entry.serial, entry.board, entry.tags, "expected", entry.circuit, entry.power_w, None, now_ns)


def _certificate(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the authority's certificate {str(path)!r} ({error}): `edgemeter fleet init` makes it"
        raise ConfigError(message) from error
