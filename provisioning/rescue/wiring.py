"""Which switch gives a device its power, as fleet.toml names it, and which other devices share it."""

import re
from collections import defaultdict
from dataclasses import dataclass
from importlib import import_module
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.inventory.fleet_file import FleetFile, SwitchEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.devices import Presence, presence_mentioning
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.rescue import SWITCHES, PowerSwitch

NO_ENTRY = SwitchEntry()
WRITTEN = "shelly://HOST[/CHANNEL], tasmota://HOST[/CHANNEL], tasmota-mqtt://TOPIC[/CHANNEL], switch:NAME, external:NAME"
DEVICE = "{device}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """One switch of one device: `kind` of SWITCHES, where it is (`place`: host and channel, or a name), and its settings."""

    text: str
    kind: str
    place: str
    part: str
    device: str
    entry: SwitchEntry
    folder: FleetFolder

    @property
    def who(self) -> str:
        """The switch as messages name it."""
        return f"switch {self.text!r} of {self.device!r}"

    @property
    def shared(self) -> str:
        """The power source as text: devices with the same text lose their power together."""
        if self.kind == "external":
            is_own = any(DEVICE in word for word in (*self.entry.off, *self.entry.on))
            return f"external:{self.place}{f':{self.device}' if is_own else ''}"
        return f"{self.kind}://{self.place}/{self.part}"

    @property
    def host(self) -> str | None:
        """The address of a plug that may also serve as a power meter, None for anything else."""
        return urlsplit(f"//{self.place}").hostname if self.kind in {"shelly", "tasmota"} else None


def wiring_of(device: str, written: FleetFile, folder: FleetFolder) -> Wiring | None:
    """Return how a device gets its power, None where fleet.toml names no switch; raises ConfigError if that is written wrong, or absent."""
    entry = written.device.get(device)
    if entry is None or entry.switch is None:
        return None
    return parse(entry.switch, device, written, folder)


def parse(text: str, device: str, written: FleetFile, folder: FleetFolder) -> Wiring:
    """Return the switch that `text` writes down; raises ConfigError as `wiring`."""
    kind, _, name = text.partition(":")
    if kind in {"external", "switch"} and not name.startswith("//"):
        if name not in written.switch:
            raise ConfigError(f"device {device!r}: switch = {text!r}: [switch.{name}] is missing in {str(folder.fleet_file)!r}: add it")
        entry = written.switch[name]
        if kind == "external" or entry.address is None:
            return Wiring(text, "external", name, "", device, entry, folder)
        text = entry.address
    else:
        entry = NO_ENTRY
    match = re.fullmatch(r"([a-z-]+)://([^/\s]+)(?:/([A-Za-z0-9_.-]+))?/?", text)
    if match is None or match[1] not in SWITCHES or match[1] == "external":
        raise ConfigError(f"device {device!r}: {text!r} is not a switch: write {WRITTEN}")
    return Wiring(text, match[1], match[2], match[3] or "", device, entry, folder)


def open_switch(wired: Wiring) -> PowerSwitch:
    """Return the switch, ready for use, without contacting it; raises ConfigError if a setting of it is wrong."""
    module, _, name = SWITCHES[wired.kind].partition(":")
    switch: PowerSwitch = getattr(import_module(module), name)(wired)
    return switch


class Neighbours:
    """Which devices share a switch, according to one version of fleet.toml."""

    def __init__(self, written: FleetFile, folder: FleetFolder) -> None:
        self._on: dict[str, set[str]] = defaultdict(set)
        for device in written.device:
            try:
                wired = wiring_of(device, written, folder)
            except ConfigError:
                # Reported when it is this device's turn.
                continue
            if wired is not None:
                self._on[wired.shared].add(device)

    def of(self, wired: Wiring, registry: Registry) -> tuple[str, ...]:
        """Return the other devices that hang on the same switch, and those that measure their power with it."""
        neighbours = set(self._on.get(wired.shared, ()))
        if wired.host is not None:
            neighbours |= {
                presence.device for presence in presence_mentioning(registry, wired.host) if _measures_with(presence, wired.host)
            }
        return tuple(sorted(neighbours - {wired.device}))


def _measures_with(presence: Presence, host: str) -> bool:
    """Return whether a sensor that the device names is the plug at `host`: its id is `shelly:HOST[:PORT][/CHANNEL]`."""
    ids = [sensor.id or "" for sensor in presence.health.sensors] if presence.health else []
    addresses = [text.partition(":")[2].removeprefix("http://").partition("/")[0] for text in ids]
    return any(address == host or address.startswith(f"{host}:") for address in addresses)
