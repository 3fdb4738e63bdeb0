"""Decisions of people: who gets an enrolment token, who is accepted, rejected or revoked. `Enforcement` makes the broker apply them.

A device joins with a token, once; the server keeps the token's hashes, the join file the token itself.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_HOUR
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.base.types import Name
from edgemeter.agent.contract.identity import RESERVED_PREFIX, JoinFile, join_file_text, token_id
from edgemeter.provisioning.identity.authority import LONGEST_NAME
from edgemeter.provisioning.identity.broker_files import hash_password
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import EnrolmentRequest, EnrolmentToken
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry

TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Invitation:
    """The data that a device needs to join, and until when (by the server's clock)."""

    device: str
    expires_ns: int
    join: JoinFile


def check_device_name(device: str, registry: Registry) -> None:
    """Check a device's name; raises ConfigError if no certificate can hold it, it is a service's, or the device was revoked."""
    try:
        msgspec.convert(device, type=Name)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{device!r} cannot be a device's name: use letters, digits and ' ._:@-', a letter or digit first, at most {LONGEST_NAME}"
        ) from error
    if len(device) > LONGEST_NAME:
        raise ConfigError(f"{device!r} has {len(device)} characters, a certificate's name at most {LONGEST_NAME}: choose a shorter one")
    if device.startswith(RESERVED_PREFIX):
        raise ConfigError(f"{device!r} begins like the names of the fleet's services ({RESERVED_PREFIX}...): choose another")
    registered = devices.find(registry, device)
    if registered is not None and registered.trust == "revoked":
        raise ConfigError(f"device {device!r} was revoked: `edgemeter fleet requests accept {device!r}` re-admits it first")


def invite(
    folder: FleetFolder,
    registry: Registry,
    inventory: FleetFile,
    device: str,
    hours: float,
    now_ns: int,
    keep: Callable[[Invitation], object] = lambda _: None,
) -> Invitation:
    """Return a new token for `hours`; the previous one ends unless `keep` raises. Raises as `check_device_name`, and without a broker."""
    check_device_name(device, registry)
    if inventory.server is None:
        raise ConfigError(f"{str(folder.fleet_file)!r} names no broker: add [server] broker = ...")
    token = secrets.token_urlsafe(TOKEN_BYTES)
    expires_ns = now_ns + int(hours * NS_PER_HOUR)
    enrolment_token = EnrolmentToken(token_id(token), hash_password(token), device, inventory.fleet, now_ns, expires_ns)
    server = inventory.server
    host = f"[{server.broker}]" if ":" in server.broker else server.broker
    join = JoinFile(
        fleet=inventory.fleet,
        device=device,
        broker=f"mqtts://{host}:{server.broker_port}",
        enrol=f"mqtts://{host}:{server.enrol_port}",
        ca=_authority_certificate(folder.ca_certificate),
        token=token,
        content_url=server.content_url,
    )
    invitation = Invitation(device, expires_ns, join)
    with registry.transaction() as statements:
        certificates.put_token(statements, enrolment_token)
        if devices.find(registry, device) is None:
            devices.put(statements, _expected_device(device, inventory, now_ns))
        keep(invitation)
    return invitation


def join_file_path(device: str, folder: Path) -> Path:
    """Return the path of a device's join file in `folder`."""
    return folder / f"{device}.join.toml"


def write_join_file(invitation: Invitation, folder: Path) -> None:
    """Write the join file of a device into `folder`, for its owner alone; raises UnavailableError if it cannot be written."""
    durable_file.write(join_file_path(invitation.device, folder), join_file_text(invitation.join).encode())


def _expected_device(device: str, inventory: FleetFile, now_ns: int) -> Device:
    entry = inventory.device.get(device, DeviceEntry())
    return Device(device, inventory.fleet, entry.serial, entry.board, entry.tags, "expected", None, now_ns)


def _authority_certificate(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the authority's certificate {str(path)!r} ({error}): `edgemeter fleet init` makes it") from error


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """A decision to carry out: in words, and as a function."""

    what: str
    do: Callable[[Statements], None]


def request_document(request: EnrolmentRequest) -> dict[str, Any]:
    """Return a request as JSON shows it."""
    names = ("request", "device", "fleet", "serial", "serial_source", "board", "why", "asked_ns")
    return {name: getattr(request, name) for name in names}


def accept(registry: Registry, request_name: str, name: str | None) -> AdmissionDecision:
    """Return how to accept the pending request `request_name`, under `name` where that is given; or how to re-admit a revoked device.

    Raises:
        ConfigError: there is no such request, or the name is invalid or taken.
    """
    registered = devices.find(registry, request_name)
    if registered is not None and registered.trust == "revoked" and name is None:
        return AdmissionDecision(
            "re-admitted: give it a token (`edgemeter fleet token`)", lambda statements: _readmit(statements, registered)
        )
    waiting = certificates.find_request(registry, request_name)
    called = name or waiting.device
    check_device_name(called, registry)
    owner = devices.find(registry, called)
    if waiting.token_id is None and owner is not None and owner.serial not in {None, waiting.serial}:
        raise ConfigError(f"{called!r} is the board with serial {owner.serial!r}: give this one another name with --as NAME")
    outcome = f"accepted as {called!r}, serial {waiting.serial}: it gets its certificate from `edgemeter fleet serve`"
    return AdmissionDecision(outcome, lambda statements: certificates.decide_request(statements, waiting.request, "accepted", called))


def reject(registry: Registry, request_name: str) -> AdmissionDecision:
    """Return how to reject the pending request `request_name`; raises ConfigError if there is no such request."""
    waiting = certificates.find_request(registry, request_name)

    def refuse(statements: Statements) -> None:
        certificates.decide_request(statements, waiting.request, "rejected")
        if waiting.token_id is not None:
            certificates.close_token(statements, waiting.token_id, time.time_ns())

    return AdmissionDecision(f"rejected, serial {waiting.serial}", refuse)


def revoke(registry: Registry, device: str, reason: str, fleet: str) -> AdmissionDecision:
    """Return how to revoke a device of the `fleet`, known or not: its certificates and tokens end, and the broker refuses its name.

    Raises:
        ConfigError: no device can have this name.
    """
    now_ns = time.time_ns()
    registered = devices.find(registry, device)
    if registered is not None and registered.trust == "revoked":
        return AdmissionDecision("already revoked", lambda _statements: None)
    check_device_name(device, registry)
    heard = devices.find_presence(registry, device)
    before = registered or Device(device, heard.fleet if heard else fleet)

    def apply(statements: Statements) -> None:
        certificates.revoke(statements, device, now_ns, reason)
        certificates.close_tokens_of(statements, device, now_ns)
        devices.put(statements, replace(before, trust="revoked", changed_ns=now_ns))
        certificates.put_pending_disconnect(statements, device, now_ns)

    count = sum(certificate.revoked_ns is None for certificate in certificates.of_device(registry, device))
    known_text = f"with {count} certificate{'s' * (count != 1)}" if registered else "by its name: the registry did not know it"
    return AdmissionDecision(f"revoked, {known_text}", apply)


def _readmit(statements: Statements, device: Device) -> None:
    devices.put(statements, replace(device, trust="expected", changed_ns=time.time_ns()))
    certificates.delete_pending_disconnect(statements, device.device)
