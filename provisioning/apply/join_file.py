"""The join file of a device that has not joined yet: with a token that is made for it, now."""

import time

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.identity import join_file
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.identity import tokens
from edgemeter.provisioning.inventory import known
from edgemeter.provisioning.registry.registry import Registry

# It is used within minutes; what is left of a board that went away soon serves nobody.
HOURS = 1.0


def make(folder: FleetFolder, device: str) -> str:
    """Return the text of join.toml for `device`; the token it had before ends.

    Raises:
        ConfigError: there is no fleet.toml, or it names no broker; the device may not be called so, or was revoked.
    """
    inventory = known.written(folder)
    if inventory is None:
        message = f"there is no {str(folder.fleet_file)!r}: `edgemeter fleet init` makes the fleet"
        raise ConfigError(message)
    registry = Registry(folder.registry)
    try:
        return join_file.text(tokens.invite(folder, registry, inventory, device, HOURS, time.time_ns()).join)
    finally:
        registry.close()
