"""People's decisions: enrolment tokens, accepted and revoked devices.

`Enforcement` makes the broker apply them.

A device joins with a token, once; the server stores the token's hash, the join file the token
itself.
"""

import secrets
import time
from dataclasses import replace

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_HOUR
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.base.types import Name
from edgemeter.agent.contract.identity import RESERVED_PREFIX, JoinFile, token_id
from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.identity.authority import LONGEST_NAME
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import EnrolmentToken
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry

TOKEN_BYTES = 16


def check_device_name(device: str, registry: Registry) -> None:
    """Check a device's name.

    Raises:
        ConfigError: it does not fit into a certificate, is a service's, or the device was revoked.
    """
    try:
        msgspec.convert(device, type=Name)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{device!r} cannot be a device's name: use letters, digits and ' ._:@-', a letter "
            f"or digit first, at most {LONGEST_NAME}"
        ) from error
    if len(device) > LONGEST_NAME:
        raise ConfigError(
            f"{device!r} has {len(device)} characters, a certificate's name at most "
            f"{LONGEST_NAME}: choose a shorter one"
        )
    if device.startswith(RESERVED_PREFIX):
        raise ConfigError(
            f"{device!r} begins like the names of the fleet's services ({RESERVED_PREFIX}...): "
            "choose another"
        )
    registered = devices.find(registry, device)
    if registered is not None and registered.trust == "revoked":
        raise ConfigError(
            f"device {device!r} was revoked: `edgemeter fleet accept {device!r}` re-admits it first"
        )


def invite(
    folder: FleetFolder,
    registry: Registry,
    statements: Statements,
    inventory: FleetFile,
    device: str,
    hours: float,
    now_ns: int,
) -> tuple[JoinFile, int]:
    """Return a join file with a new token, and its expiry (by the server's clock).

    The device's previous token ends.

    Raises:
        ConfigError: as `check_device_name`; or the authority's certificate cannot be read.
    """
    check_device_name(device, registry)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    expires_ns = now_ns + int(hours * NS_PER_HOUR)
    join = JoinFile(
        fleet=inventory.fleet,
        device=device,
        broker=inventory.server.broker_url,
        service=inventory.server.service_url,
        ca=broker_files.read(folder.ca_certificate).decode(errors="replace"),
        token=token,
    )
    certificates.put_token(
        statements, EnrolmentToken(device, token_id(token), inventory.fleet, expires_ns)
    )
    if devices.find(registry, device) is None:
        entry = inventory.device.get(device, DeviceEntry())
        devices.put(
            statements,
            Device(
                device, inventory.fleet, entry.serial, entry.board, entry.tags, "expected", now_ns
            ),
        )
    return join, expires_ns


def accept(registry: Registry, statements: Statements, device: str, name: str | None) -> str:
    """Re-admit a revoked device, end a device's ban, or accept a pending request.

    The request is accepted under `name` if given. Return what was done.

    Raises:
        ConfigError: there is no such request, or the name is invalid or taken.
    """
    now_ns = time.time_ns()
    registered = devices.find(registry, device)
    if name is None and registered is not None and registered.trust == "revoked":
        devices.put(statements, replace(registered, trust="expected", changed_ns=now_ns))
        certificates.delete_pending_disconnect(statements, device)
        return "re-admitted: give it a token (`edgemeter fleet token`)"
    if name is None and device in certificates.active_bans(registry, now_ns):
        certificates.end_ban(statements, device)
        return "its ban is ended"
    waiting = certificates.waiting_request(registry, device)
    if waiting is None:
        raise ConfigError(
            f"no pending request matches {device!r}, and no device of that name is revoked or "
            "banned: see `edgemeter fleet requests`"
        )
    called = name or waiting.device
    check_device_name(called, registry)
    owner = devices.find(registry, called)
    if (
        waiting.token_id is None
        and owner is not None
        and owner.serial not in {None, waiting.serial}
    ):
        raise ConfigError(
            f"{called!r} is the board with serial {owner.serial!r}: give this one another name "
            "with --as NAME"
        )
    certificates.decide_request(statements, waiting.request, "accepted", called)
    return (
        f"accepted as {called!r}, serial {waiting.serial}: it gets its certificate when it asks "
        "again, within a minute"
    )


def revoke(registry: Registry, statements: Statements, device: str, reason: str, fleet: str) -> str:
    """Revoke a device of the `fleet`, or reject a pending request; return what was done.

    A revoked device may be known or not; its certificates and tokens end.

    Raises:
        ConfigError: no device can have this name, or more than one request matches it.
    """
    now_ns = time.time_ns()
    registered = devices.find(registry, device)
    waiting = (
        certificates.waiting_request(registry, device)
        if registered is None or registered.trust == "expected"
        else None
    )
    if waiting is not None:
        certificates.decide_request(statements, waiting.request, "rejected")
        if waiting.token_id is not None:
            certificates.end_token(statements, "token_id", waiting.token_id)
        return f"rejected, serial {waiting.serial}"
    if registered is not None and registered.trust == "revoked":
        return "already revoked"
    check_device_name(device, registry)
    heard = devices.find_presence(registry, device)
    before = registered or Device(device, heard.fleet if heard else fleet)
    count = certificates.revoke(statements, device, now_ns, reason)
    certificates.end_token(statements, "device", device)
    devices.put(statements, replace(before, trust="revoked", changed_ns=now_ns))
    certificates.put_pending_disconnect(statements, device, now_ns)
    known_text = (
        f"with {count} certificate{'s' * (count != 1)}"
        if registered
        else "by its name: the registry did not know it"
    )
    return f"revoked, {known_text}"
