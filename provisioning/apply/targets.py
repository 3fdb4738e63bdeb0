"""The devices that `apply` goes to, as fleet.toml describes them, and the join file of one that has not joined."""

import ipaddress
import time
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.identity import join_file_text
from edgemeter.provisioning.apply.applying import ApplyRequest
from edgemeter.provisioning.apply.ssh import SshTarget
from edgemeter.provisioning.identity.admission import invite
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile, read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry

SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class SshLogin:
    """The login of the command line; None: that of fleet.toml, else of ssh's own configuration."""

    user: str | None = None
    port: int | None = None


def of_fleet(names: Sequence[str], fleet: FleetFile | None, login: SshLogin) -> list[ApplyRequest]:
    """Return the devices of those names, as fleet.toml describes them.

    Raises:
        ConfigError: it does not name a device, or not its host.
    """
    requests = []
    for name in dict.fromkeys(names):
        entry = fleet.device.get(name) if fleet else None
        if entry is None or entry.host is None:
            lacking = f'`host = "..."` to [device.{name}]' if entry else f'[device.{name}] with `host = "..."`'
            raise ConfigError(f"fleet.toml has no host for {name!r}: add {lacking}, or give --host")
        requests.append(_request(name, entry.host, entry, login))
    return requests


def of_host(host: str, name: str | None, fleet: FleetFile | None, login: SshLogin) -> ApplyRequest:
    """Return the device at `host`, called `name`; without a name it is called as the host.

    Raises:
        ConfigError: the host is an address, which is not a name.
    """
    if name is None:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            name = host.split(".", 1)[0]
        else:
            raise ConfigError(f"{host!r} is not a name for a device: `edgemeter fleet apply NAME --host {host}`")
    return _request(name, host, fleet.device.get(name) if fleet else None, login)


def _request(name: str, host: str, entry: DeviceEntry | None, login: SshLogin) -> ApplyRequest:
    entry = entry or DeviceEntry()
    # 22 is the default: ssh's configuration may have another port.
    port = login.port or (entry.port if entry.port != SSH_PORT else None)
    return ApplyRequest(SshTarget(name, host, login.user or entry.user, port), entry.power_mode, entry.governor)


# The token is used within minutes; one that is left unused expires soon.
TOKEN_HOURS = 1.0


def make_join_file(folder: FleetFolder, device: str) -> str:
    """Return the text of join.toml for `device`, with a new token; its previous token expires.

    Raises:
        ConfigError: there is no fleet.toml, or it names no broker; the device's name is not allowed, or it was revoked.
    """
    inventory = read_if_present(folder)
    if inventory is None:
        raise ConfigError(f"{str(folder.fleet_file)!r} does not exist: `edgemeter fleet init` makes a fleet")
    registry = Registry(folder.registry)
    try:
        return join_file_text(invite(folder, registry, inventory, device, TOKEN_HOURS, time.time_ns()).join)
    finally:
        registry.close()
