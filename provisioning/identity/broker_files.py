"""The broker's files: mosquitto's configuration, the access rules, and the list of refused certificates.

The rules below `edgemeter/v1` are those of a single lab's broker (`edgemeter collector deploy-files`); a test holds the two together. They
go by the name in a client's certificate, so that joining and leaving change nothing but the list.

mosquitto 2.0.11 (Debian 12) dies of reloads (SIGHUP) while sessions with an expiry of a few seconds come and go, so nothing here sends one:
OpenSSL reads a new list when the next client connects.
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

COLLECTOR_USER, SERVICE_USER, OPERATOR_USER = "edgemeter-collector", SERVICE_NAME, "edgemeter-operator"
MOST_CLIENTS = 50_000


def access_rules(fleets: Iterable[str]) -> str:
    """Return the ACL: devices in these `fleets`, and services."""
    of_devices, _, of_services = template("acl").partition("\n\n")
    return "\n".join([*(of_devices.format(fleet=fleet) for fleet in sorted(fleets)), "", of_services])


def authority(folder: FleetFolder) -> Authority:
    """Return the fleet's authority.

    Raises:
        ConfigError: its files are not there, or damaged.
        UnavailableError: the library for certificates is not installed.
    """
    return Authority(KeyPair(read(folder.ca_certificate), read(folder.ca_key)))


def configuration(folder: FleetFolder, server: ServerEntry) -> str:
    """Return mosquitto's configuration; raises ConfigError if the folder has a name that mosquitto's configuration cannot hold."""
    broker = str(folder.broker.absolute())
    if "\n" in broker or broker != broker.strip():
        raise ConfigError(f"the fleet's folder {broker!r} has a line break, or a space at the end, in its name: rename it")
    try:
        # After a reload mosquitto reads its files as the user it became, who has to own them.
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
    """Return the text of a file for the broker, as it is before anything is filled in."""
    return Path(__file__).with_name(f"{name}.in").read_text(encoding="utf-8")


def renew_list(folder: FleetFolder, registry: Registry, signing: Authority, now: datetime) -> None:
    """Write the list of refused certificates from the registry at `now`, if it changed, where a running broker finds it.

    Raises:
        ConfigError: the list that is there is damaged.
        UnavailableError: it cannot be written.
    """
    with registry.transaction():
        # In a transaction, so that of two processes the later one writes the latest state.
        previous = folder.revoked.read_bytes() if folder.revoked.exists() else None
        listed = revoked_numbers(previous) if previous is not None else set()
        refused = certificates.refused(registry, int(now.timestamp() * NS_PER_S))
        # A revoked certificate stays revoked, even if the registry was lost and recreated.
        refused |= {number for number in listed - refused if not registry.query("SELECT 1 FROM certificates WHERE number = ?", number)}
        if previous is None or refused != listed:
            durable_file.write(folder.revoked, signing.revoked_list(refused, now, previous))
        _announce_list(folder, signing)


def _announce_list(folder: FleetFolder, signing: Authority) -> None:
    """Give the list one more name in the folder where OpenSSL looks for lists that it has not read yet: HASH.r0, HASH.r1, ...

    Of a process that was killed before this, the next one does it. A hard link is one list for good, while a symbolic one that is copied to
    another machine before the list would be read there as the list before.
    """
    name, number = folder.revoked_lists / signing.name_hash(), 0
    with os_error_as(UnavailableError, f"cannot announce the list of revoked certificates in {str(folder.revoked_lists)!r}"):
        while (link := name.with_suffix(f".r{number}")).exists():
            if link.samefile(folder.revoked):
                return
            number += 1
        link.hardlink_to(folder.revoked)


def read(path: Path) -> bytes:
    """Return what a file of the fleet holds; raises ConfigError if it cannot be read."""
    with os_error_as(ConfigError, f"cannot read {str(path)!r}", "`edgemeter fleet init` makes it; name the fleet's folder with --folder"):
        return path.read_bytes()
