"""Where a fleet's registry is: the file in its folder, or the PostgreSQL that fleet.toml names (`registry` of [server])."""

from pathlib import Path

from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.sqlite_file import Access
from edgemeter.provisioning.inventory.fleet_file import read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry


def registry_place(folder: FleetFolder) -> Path | PostgresAddress:
    """Return the file or the address of a fleet's registry; raises ConfigError if fleet.toml is wrong."""
    inventory = read_if_present(folder)
    address = inventory.server.registry if inventory and inventory.server else None
    return PostgresAddress(address) if address else folder.registry


def open_registry(folder: FleetFolder, access: Access = "write", *, owner: str | None = None) -> Registry:
    """Return a fleet's registry; `owner` is as in `Registry`.

    Raises:
        ConfigError: there is none, it is damaged, or fleet.toml is wrong.
        UnavailableError: its server does not answer.
    """
    return Registry(registry_place(folder), access, owner=owner)
