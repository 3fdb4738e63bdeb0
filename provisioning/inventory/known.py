"""The devices of a fleet as commands see them: what the registry knows, with what people say in `fleet.toml` above it.

Nothing is copied from the file into the registry, so nothing there can be out of date: each command and the service read both. The file
has the last word on board, tags, circuit and watts; serial number and standing are the registry's. A device that only the file names is
`expected`.
"""

from dataclasses import replace

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory import fleet_file, selection
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry


def read(folder: FleetFolder, registry: Registry) -> list[Device]:
    """Return every device of the fleet, by fleet and name; a fleet folder without a file has those of the registry.

    Raises:
        ConfigError: the file has a wrong or unknown key.
    """
    return merged(devices.read(registry), written(folder))


def written(folder: FleetFolder) -> FleetFile | None:
    """Return what fleet.toml says, None where there is none.

    Raises:
        ConfigError: it has a wrong or unknown key.
    """
    return fleet_file.read(folder.fleet_file) if folder.fleet_file.exists() else None


def merged(registered: list[Device], said: FleetFile | None) -> list[Device]:
    """Return the devices of the registry with what the file says of them, and those that only the file names."""
    if said is None:
        return registered
    found = {one.device: one for one in registered}
    for name, entry in said.device.items():
        known = found.get(name) or Device(name, said.fleet, entry.serial, None, (), "expected", None, None, None, 0)
        found[name] = _with(known, entry)
    return sorted(found.values(), key=lambda one: (one.fleet, one.device))


def select(folder: FleetFolder, registry: Registry, text: str) -> list[Device]:
    """Return the devices that the selection fits, by fleet and name.

    Raises:
        ConfigError: it cannot be read, or fits none.
    """
    wanted = selection.parse(text)
    everyone = read(folder, registry)
    found = [one for one in everyone if wanted.fits(one)]
    if not found:
        boards = ", ".join(sorted({one.board for one in everyone if one.board})) or "none"
        tags = ", ".join(sorted({tag for one in everyone for tag in one.tags})) or "none"
        message = f"no device fits {text!r}: there are {len(everyone)} devices; boards: {boards}; tags: {tags}"
        raise ConfigError(message)
    return found


def _with(known: Device, entry: DeviceEntry) -> Device:
    return replace(
        known,
        serial=known.serial or entry.serial,
        board=entry.board or known.board,
        tags=tuple(dict.fromkeys((*entry.tags, *known.tags))),
        circuit=entry.circuit or known.circuit,
        power_w=known.power_w if entry.power_w is None else entry.power_w,
    )
