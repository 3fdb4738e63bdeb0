"""Which switch gives a device its power, as fleet.toml says it, and who else hangs on it."""

import re
from dataclasses import dataclass
from importlib import import_module
from urllib.parse import urlsplit

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.fleet_file import FleetFile, SwitchEntry
from edgemeter.provisioning.rescue import SWITCHES, PowerSwitch

NO_ENTRY = SwitchEntry()
WRITTEN = (
    "shelly://HOST[/CHANNEL], tasmota://HOST[/CHANNEL], tasmota-mqtt://TOPIC[/CHANNEL], uhubctl://HUB/PORT, switch:NAME, external:NAME"
)
# Boards on one of these share it whole: the ports of many hubs go off together.
GANGED = frozenset({"uhubctl"})
DEVICE = "{device}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """One switch of one device: `kind` of SWITCHES, where it is (`place`: host and channel, hub and port, a name), and its settings."""

    text: str
    kind: str
    place: str
    part: str
    device: str
    entry: SwitchEntry
    folder: FleetFolder

    @property
    def shared(self) -> str:
        """What two devices have in common that lose their power together."""
        if self.kind == "external":
            own = any(DEVICE in word for word in (*self.entry.off, *self.entry.on))
            return f"external:{self.place}{f':{self.device}' if own else ''}"
        return f"{self.kind}://{self.place}" + ("" if self.kind in GANGED else f"/{self.part}")

    @property
    def host(self) -> str | None:
        """The address of a plug that may also be somebody's power meter, None of anything else."""
        return urlsplit(f"//{self.place}").hostname if self.kind in {"shelly", "tasmota"} else None


def wiring(device: str, said: FleetFile, folder: FleetFolder) -> Wiring | None:
    """Return how a device gets its power, None where fleet.toml names no switch.

    Raises:
        ConfigError: the switch is written wrong, or a name is not there.
    """
    entry = said.device.get(device)
    if entry is None or entry.switch is None:
        return None
    return parse(entry.switch, device, said, folder)


def parse(text: str, device: str, said: FleetFile, folder: FleetFolder) -> Wiring:
    """Return the switch that `text` writes down.

    Raises:
        ConfigError: as `wiring`.
    """
    kind, _, name = text.partition(":")
    if kind in {"external", "switch"} and not name.startswith("//"):
        if name not in said.switch:
            message = f"device {device!r}: switch = {text!r}: there is no [switch.{name}] in {str(folder.fleet_file)!r}: add it"
            raise ConfigError(message)
        entry = said.switch[name]
        if kind == "external" or entry.address is None:
            return Wiring(text, "external", name, "", device, entry, folder)
        text = entry.address
    else:
        entry = NO_ENTRY
    found = re.fullmatch(r"([a-z-]+)://([^/\s]+)(?:/([A-Za-z0-9_.-]+))?/?", text)
    if found is None or found[1] not in SWITCHES or found[1] == "external" or (found[1] in GANGED and found[3] is None):
        message = f"device {device!r}: {text!r} is no switch: write {WRITTEN}"
        raise ConfigError(message)
    return Wiring(text, found[1], found[2], found[3] or "", device, entry, folder)


def open_switch(wired: Wiring) -> PowerSwitch:
    """Return the switch, ready; nothing is asked yet.

    Raises:
        ConfigError: a setting of it is wrong.
    """
    module, _, name = SWITCHES[wired.kind].partition(":")
    switch: PowerSwitch = getattr(import_module(module), name)(wired)
    return switch
