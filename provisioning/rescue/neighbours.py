"""Who else loses power, or a power meter, when the power of one device is cut."""

from collections.abc import Mapping

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.health.presence import Presence
from edgemeter.provisioning.inventory.fleet_file import FleetFile
from edgemeter.provisioning.rescue import wiring
from edgemeter.provisioning.rescue.wiring import Wiring


def of(wired: Wiring, said: FleetFile, folder: FleetFolder, heard: Mapping[str, Presence]) -> tuple[str, ...]:
    """Return the other devices that hang on the same switch, and those that measure their power with it."""
    found = set()
    for device in said.device:
        try:
            other = wiring.wiring(device, said, folder)
        except ConfigError:
            continue
        if other is not None and other.shared == wired.shared:
            found.add(device)
    if wired.host is not None:
        found |= {device for device, one in heard.items() if _measures_with(one, wired.host)}
    return tuple(sorted(found - {wired.device}))


def _measures_with(one: Presence, host: str) -> bool:
    """Return whether a sensor that the device names is the plug at `host`: its id is `shelly:HOST[:PORT][/CHANNEL]`."""
    for sensor in one.health.sensors if one.health else ():
        where = (sensor.id or "").partition(":")[2].removeprefix("http://").partition("/")[0]
        if where == host or where.startswith(f"{host}:"):
            return True
    return False
