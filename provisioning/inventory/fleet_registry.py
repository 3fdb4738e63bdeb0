"""Where a fleet's registry is: the file in its folder, or the PostgreSQL that fleet.toml names (`registry` of [server])."""

from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.provisioning.inventory.fleet_file import read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry


def open_registry(folder: FleetFolder, *, read_only: bool = False, owner: str | None = None) -> Registry:
    """Return a fleet's registry, to be used in a `with` block; `owner` is as in `Registry`.

    Raises:
        ConfigError: there is none, it is damaged, or fleet.toml is wrong.
        UnavailableError: its server does not answer.
    """
    inventory = read_if_present(folder)
    address = inventory.server.registry if inventory and inventory.server else None
    return Registry(PostgresAddress(address) if address else folder.registry, "read" if read_only else "write", owner=owner)
