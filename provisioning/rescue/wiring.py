"""Which switch gives a device its power, as fleet.toml names it, and which others share it; what all switches do."""

import http.client
import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.http_client import DeviceClient, json_object, password_from
from edgemeter.provisioning.inventory.fleet_file import FleetFile, SwitchEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.devices import Presence, presence_mentioning
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.rescue import SWITCHES, PowerSwitch

NO_ENTRY = SwitchEntry()
WRITTEN = "shelly://HOST[/CHANNEL], tasmota://HOST[/CHANNEL], tasmota-mqtt://TOPIC[/CHANNEL], switch:NAME, external:NAME"
DEVICE = "{device}"
# The wait beyond the switch's own timer, and the attempts to restore the power.
MARGIN_S = 2.0
TRIES = 5
PAUSE_S = 3.0
TIMEOUT_S = 5.0


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
    switch: PowerSwitch = resolve_name(SWITCHES[wired.kind])(wired)
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


Sleep = Callable[[float], None]


def wait_for_timer(switch: PowerSwitch, off_s: float, sleep: Sleep = time.sleep) -> None:
    """Wait until the switch's own timer has restored the power, and restore it where it has not; raises EdgemeterError as the switch."""
    sleep(off_s + MARGIN_S)
    if switch.state().is_on is not True:
        restore_power(switch, sleep)


def restore_power(switch: PowerSwitch, sleep: Sleep = time.sleep) -> None:
    """Switch on, and try again where that fails; raises UnavailableError if the board may be without power."""
    for tries_left in range(TRIES - 1, -1, -1):
        try:
            switch.turn("on")
        except EdgemeterError as error:
            if not tries_left:
                raise UnavailableError(f"the power is off and cannot be restored: {error}") from error
            sleep(PAUSE_S)
        else:
            return


class HttpSwitch:
    """The switch of a wiring, over HTTP."""

    def __init__(self, wired: Wiring) -> None:
        entry = wired.entry
        self.who = wired.who
        self.user, self.has_password = entry.user, entry.password_file is not None
        self._password_file = entry.password_file
        self._client = DeviceClient(self.who, wired.place, self.user, self.password, TIMEOUT_S)

    def password(self) -> str:
        """Return the password from its file; raises ConfigError if there is none, or it cannot be read."""
        if self._password_file is None:
            raise ConfigError(
                f"{self.who} requires a password: give it a [switch.NAME] with address and password_file, and write switch = 'switch:NAME'"
            )
        return password_from(self._password_file, self.who)

    def get(self, path: str) -> dict[str, Any]:
        """Return what it answers to GET `path`, a JSON object.

        Raises:
            TransientError: it does not answer, or not with a whole object.
            UnavailableError: it refuses, or is another kind of device.
            ConfigError: it requires a password that was not given.
        """
        try:
            status, body = self._client.get(path)
        finally:
            # Switches are used minutes apart: a connection would not stay.
            self._client.close()
        if status != http.client.OK:
            # Not the query: it may hold a password.
            text = body[:120].decode(errors="replace").strip()
            raise UnavailableError(
                f"{self.who} answers {status} to {path.partition('?')[0]} ({text!r}): check that it is such a device, with this channel"
            )
        return json_object(body, self.who)
