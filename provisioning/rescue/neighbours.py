"""Who else loses power, or a power meter, when the power of one device is cut."""

from collections import defaultdict

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.health import presence
from edgemeter.provisioning.health.presence import Presence
from edgemeter.provisioning.inventory.fleet_file import FleetFile
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.rescue import wiring
from edgemeter.provisioning.rescue.wiring import Wiring


class Neighbours:
    """Who shares a switch with whom, as one reading of fleet.toml says it."""

    def __init__(self, said: FleetFile, folder: FleetFolder) -> None:
        self._on: dict[str, set[str]] = defaultdict(set)
        for device in said.device:
            try:
                wired = wiring.wiring(device, said, folder)
            except ConfigError:
                # Said when it is this device's turn.
                continue
            if wired is not None:
                self._on[wired.shared].add(device)

    def of(self, wired: Wiring, registry: Registry) -> tuple[str, ...]:
        """Return the other devices that hang on the same switch, and those that measure their power with it."""
        found = set(self._on.get(wired.shared, ()))
        if wired.host is not None:
            found |= {one.device for one in presence.mentioning(registry, wired.host) if _measures_with(one, wired.host)}
        return tuple(sorted(found - {wired.device}))


def _measures_with(one: Presence, host: str) -> bool:
    """Return whether a sensor that the device names is the plug at `host`: its id is `shelly:HOST[:PORT][/CHANNEL]`."""
    for sensor in one.health.sensors if one.health else ():
        where = (sensor.id or "").partition(":")[2].removeprefix("http://").partition("/")[0]
        if where == host or where.startswith(f"{host}:"):
            return True
    return False
