"""Which devices `apply` goes to, and what fleet.toml says of each."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.apply.applying import Wish
from edgemeter.provisioning.apply.ssh import Target
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile

SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class Login:
    """What the command says of logging in; None: as fleet.toml says, else as ssh's own configuration does."""

    user: str | None = None
    port: int | None = None


def of_fleet(names: Sequence[str], said: FleetFile | None, login: Login) -> list[Wish]:
    """Return the devices of those names, as fleet.toml describes them.

    Raises:
        ConfigError: it does not name one, or not its host.
    """
    wishes = []
    for name in dict.fromkeys(names):
        entry = said.device.get(name) if said else None
        if entry is None or entry.host is None:
            lacking = f'`host = "..."` to [device.{name}]' if entry else f'[device.{name}] with `host = "..."`'
            message = f"fleet.toml does not say where {name!r} is: add {lacking}, or give --host"
            raise ConfigError(message)
        wishes.append(_wish(name, entry.host, entry, login))
    return wishes


def of_host(host: str, name: str | None, said: FleetFile | None, login: Login) -> Wish:
    """Return the device at `host`; `name` is what it is to be called, otherwise what the host is called.

    Raises:
        ConfigError: the host is an address, which is no name.
    """
    if name is None:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            name = host.split(".", 1)[0]
        else:
            message = f"{host!r} is no name for a device: `edgemeter fleet apply NAME --host {host}`"
            raise ConfigError(message)
    return _wish(name, host, said.device.get(name) if said else None, login)


def _wish(name: str, host: str, entry: DeviceEntry | None, login: Login) -> Wish:
    entry = entry or DeviceEntry()
    # 22 is what everybody means who says nothing; ssh's configuration may know better.
    port = login.port or (entry.port if entry.port != SSH_PORT else None)
    return Wish(Target(name, host, login.user or entry.user, port), entry.power_mode, entry.governor)
