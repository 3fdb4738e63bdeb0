"""The broker's files: mosquitto's configuration, the access rules, and the revocation list.

The rules below `edgemeter/v1` are those of a single lab's broker (`edgemeter collector
deploy-files`); a test keeps them equal. They use the name in a client's certificate, so that
joining and leaving change only the list.

mosquitto 2.0.11 (Debian 12) crashes on reloads (SIGHUP) while sessions with an expiry of a few
seconds come and go, so none is sent: OpenSSL reads a new list when the next client connects.
"""

import os
import pwd
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract.sealed import SERVICE_NAME
from edgemeter.provisioning.identity.authority import Authority, KeyPair, revoked_numbers
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates
from edgemeter.provisioning.registry.registry import Registry

COLLECTOR_USER, SERVICE_USER, OPERATOR_USER = (
    "edgemeter-collector",
    SERVICE_NAME,
    "edgemeter-operator",
)
MOST_CLIENTS = 50_000


def access_rules(fleets: Iterable[str]) -> str:
    """Return the ACL: devices in these `fleets`, and services."""
    of_devices, _, of_services = template("acl").partition("\n\n")
    return "\n".join(
        [*(of_devices.format(fleet=fleet) for fleet in sorted(fleets)), "", of_services]
    )


def authority(folder: FleetFolder) -> Authority:
    """Return the fleet's authority.

    Raises:
        ConfigError: its files are missing or damaged.
        UnavailableError: the library for certificates is not installed.
    """
    return Authority(KeyPair(read(folder.ca_certificate), read(folder.ca_key)))


def configuration(folder: FleetFolder, server: ServerEntry) -> str:
    """Return mosquitto's configuration.

    Raises:
        ConfigError: the folder's name is not possible in it.
    """
    broker = str(folder.broker.absolute())
    if "\n" in broker or broker != broker.strip():
        raise ConfigError(
            f"the fleet's folder {broker!r} has a line break, or a space at the end, in its "
            "name: rename it"
        )
    try:
        # After a reload mosquitto reads its files as the unprivileged user, who has to own them.
        user = f"user {pwd.getpwuid(os.getuid()).pw_name}\n"
    except KeyError:
        user = ""
    return template("mosquitto.conf").format(
        broker=broker,
        user=user,
        port=server.broker_port,
        most_clients=MOST_CLIENTS,
        ca=folder.ca_certificate.absolute(),
        crl=folder.revoked.absolute(),
    )


def template(name: str) -> str:
    """Return the text of a file for the broker, before anything is filled in."""
    return Path(__file__).with_name(f"{name}.in").read_text(encoding="utf-8")


def renew_list(folder: FleetFolder, registry: Registry, signing: Authority, now: datetime) -> None:
    """Write the revocation list from the registry at `now`, if it changed.

    It is written where a running broker finds it.

    Raises:
        ConfigError: the existing list is damaged.
        UnavailableError: it cannot be written.
    """
    with registry.transaction():
        # In a transaction, so that the later of two processes writes the latest state.
        previous = folder.revoked.read_bytes() if folder.revoked.exists() else None
        listed = revoked_numbers(previous) if previous is not None else set()
        refused = certificates.refused(registry, int(now.timestamp() * NS_PER_S))
        # A revoked certificate stays revoked, even if the registry was lost and recreated.
        refused |= {
            number
            for number in listed - refused
            if not registry.query("SELECT 1 FROM certificates WHERE number = ?", number)
        }
        if previous is None or refused != listed:
            durable_file.write(folder.revoked, signing.revoked_list(refused, now, previous))
        _announce_list(folder, signing)


def _announce_list(folder: FleetFolder, signing: Authority) -> None:
    """Give the list one more name in the folder where OpenSSL looks for new lists.

    The names are HASH.r0, HASH.r1, ... If a process was killed before this, the next one does it. A
    hard link always names the same list; a symbolic one that is copied to another machine before
    the list would name the previous list there.
    """
    name, number = folder.revoked_lists / signing.name_hash(), 0
    with os_error_as(
        UnavailableError,
        f"cannot announce the list of revoked certificates in {str(folder.revoked_lists)!r}",
    ):
        while (link := name.with_suffix(f".r{number}")).exists():
            if link.samefile(folder.revoked):
                return
            number += 1
        link.hardlink_to(folder.revoked)


def read(path: Path) -> bytes:
    with os_error_as(
        ConfigError,
        f"cannot read {str(path)!r}",
        "`edgemeter fleet init` makes it; name the fleet's folder with --folder",
    ):
        return path.read_bytes()
