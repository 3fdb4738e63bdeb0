"""The broker's files: mosquitto's configuration, and what changes while it runs: who may do what, tokens, revoked certificates."""

import os
import pwd
from datetime import datetime
from pathlib import Path

from edgemeter.agent import durable_file
from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.identity import acl, certificates, claims
from edgemeter.provisioning.identity.authority import Authority, Pair, revoked_numbers
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import Server
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry

_CONFIGURATION = """\
## Written by `edgemeter fleet init`, which puts its own back: settings of yours go into a file in {broker}/conf.d.
## Start it as the owner of this folder, or as root, which then becomes that owner: mosquitto -c {broker}/mosquitto.conf

{user}pid_file {broker}/mosquitto.pid
per_listener_settings true

## Devices and services. Every client shows a certificate; its common name is who it is.
listener {port}
cafile {ca}
certfile {broker}/broker.crt
keyfile {broker}/broker.key
crlfile {crl}
tls_version tlsv1.2
require_certificate true
use_identity_as_username true
allow_anonymous false
acl_file {broker}/acl

## Devices that have a token and no certificate yet. The user's name is the claim, and the client's id too: nobody takes another's session.
listener {enrol_port}
certfile {broker}/broker.crt
keyfile {broker}/broker.key
tls_version tlsv1.2
require_certificate false
use_username_as_clientid true
allow_anonymous false
password_file {broker}/passwords
acl_file {broker}/enrol.acl

## Without it the acknowledgements of collector and service wait for the kernel's.
set_tcp_nodelay true

## What a collector that is behind or away has to come is kept, up to a bound of memory; beyond that bound devices send again.
max_inflight_messages 2000
max_queued_messages 100000
max_queued_bytes 268435456

## The largest record with its raw samples; both ends refuse more.
max_packet_size 16777216

## Results do not depend on it (they stay on the device until a collector's receipt): it saves devices from sending again.
persistence true
persistence_location {broker}/data/
autosave_interval 60

## No persistent_client_expiration: 2.0.11 may die of a reload (SIGHUP) while a session that will expire waits for its client. Edgemeter's
## sessions never expire where certificates are names. A device that never comes back leaves some kilobytes, a collector up to
## max_queued_bytes: connect once with its client id (collector-...) and a clean session to end that.

log_dest stderr
log_type error
log_type warning
log_type notice

include_dir {broker}/conf.d
"""


def authority(folder: FleetFolder) -> Authority:
    """Return the fleet's authority.

    Raises:
        ConfigError: its files are not there, or damaged.
        UnavailableError: the library for certificates is not installed.
    """
    return Authority(Pair(_read(folder.ca_certificate), _read(folder.ca_key)))


def configuration(folder: FleetFolder, server: Server) -> str:
    """Return mosquitto's configuration.

    Raises:
        ConfigError: the folder has a name that mosquitto's configuration cannot hold.
    """
    broker = str(folder.broker.absolute())
    if "\n" in broker or broker != broker.strip():
        message = f"the fleet's folder {broker!r} has a line break or a space at its end in its name: give it another name"
        raise ConfigError(message)
    return _CONFIGURATION.format(
        broker=broker,
        user=_user(),
        port=server.broker_port,
        enrol_port=server.enrol_port,
        ca=folder.ca_certificate.absolute(),
        crl=folder.revoked.absolute(),
    )


def renew(folder: FleetFolder, registry: Registry, signing: Authority, now: datetime) -> list[Path]:
    """Write what the broker reads anew as the registry has it at `now`; return the files that changed.

    Raises:
        ConfigError: the registry, the list of revoked certificates or fleet.toml is damaged.
        UnavailableError: a file cannot be written.
    """
    now_ns = int(now.timestamp() * 1_000_000_000)
    with registry.transaction():
        # Within it, so that of two processes the later one writes what the registry holds last.
        known, tokens = devices.read(registry), claims.open_at(registry, now_ns)
        out = [one.device for one in known if one.standing == "revoked"]
        # A fleet that was renamed has devices that still have its former name.
        fleets = {fleet_file.read(folder.fleet_file).fleet, *(one.fleet for one in known), *(one.fleet for one in tokens)}
        wanted = {
            folder.broker / "acl": acl.with_certificate(out, fleets).encode(),
            folder.broker / "enrol.acl": acl.with_token().encode(),
            folder.broker / "passwords": "".join(f"{one.claim}:{one.password}\n" for one in tokens).encode(),
        }
        changed = [path for path, content in wanted.items() if not holds(path, content)]
        for path in changed:
            durable_file.write(path, wanted[path])
        previous = folder.revoked.read_bytes() if folder.revoked.exists() else None
        listed = revoked_numbers(previous) if previous is not None else set()
        # Whoever is out stays out, also when the registry was lost and made anew.
        revoked = certificates.revoked(registry) | listed
        if previous is None or revoked != listed:
            durable_file.write(folder.revoked, signing.revoked_list(revoked, now, previous))
            changed.append(folder.revoked)
    return changed


def holds(path: Path, content: bytes) -> bool:
    """Return whether the file is there and holds exactly that."""
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"cannot read {str(path)!r} ({error.strerror}): `edgemeter fleet init` makes it; name the fleet's folder with --folder"
        raise ConfigError(message) from error


def _user() -> str:
    # After a reload mosquitto reads its files as the user it became, who has to own them.
    try:
        return f"user {pwd.getpwuid(os.getuid()).pw_name}\n"
    except KeyError:
        return ""
