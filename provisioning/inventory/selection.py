"""The devices of a fleet for commands, and the language that selects them.

Examples are `board=pi5 & coral`, `pi5-* | !coral` and `all`.

    selection   one or more of these, joined by `|`
    all of      one or more of these, joined by `&`
    condition   KEY=PATTERN, TAG, a device's name, or `all`; with `!` before it, negated

KEY is board, device, fleet, tag or trust; a pattern, a tag and a name may contain `*` and `?`.

A device is its entry in the registry, overlaid with fleet.toml: the file decides board and tags,
the registry serial number and trust state. A device that is only in the file, or only reports, is
`expected`. Nothing is copied from the file into the registry.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.inventory.fleet_file import read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry

DeviceTest = Callable[[Device], bool]
# The values of each key; a device without a value matches no pattern.
KEYS: dict[str, Callable[[Device], tuple[str, ...]]] = {
    "board": lambda device: () if device.board is None else (device.board,),
    "device": lambda device: (device.device,),
    "fleet": lambda device: (device.fleet,),
    "tag": lambda device: device.tags,
    "trust": lambda device: (device.trust,),
}
# A name or a pattern of one; other special characters belong to no name.
_WORD = re.compile(r"[^&|!()='\"]+")


def parse(text: str) -> DeviceTest:
    """Return a selection as a function of a device.

    Raises:
        ConfigError: the selection is invalid; the message names the condition.
    """
    alternatives = [
        [_condition(text, part) for part in parts.split("&")] for parts in text.split("|")
    ]

    def fits(device: Device) -> bool:
        return any(
            all(condition(device) for condition in conditions) for conditions in alternatives
        )

    return fits


def _condition(text: str, part: str) -> DeviceTest:
    word = part.strip()
    condition = word.lstrip("! ")
    is_negated = word[: len(word) - len(condition)].count("!") % 2 == 1
    key, mark, value = (side.strip() for side in condition.partition("="))
    pattern = value if mark else key

    def fits(device: Device) -> bool:
        values = KEYS[key](device) if mark else (*device.tags, device.device, "all")
        return is_negated != any(fnmatchcase(value, pattern) for value in values)

    if mark and key not in KEYS:
        problem = f"{key!r} is not a key"
    elif _WORD.fullmatch(pattern) is None:
        problem = f"{word!r} is not a condition" if word else "a condition is missing"
    else:
        return fits
    raise ConfigError(
        f"selection {text!r}: {problem}; write a name, a tag, all, or KEY=PATTERN (keys: "
        f"{', '.join(KEYS)}), joined by & | !"
    )


def read_devices(folder: FleetFolder, registry: Registry) -> list[Device]:
    """Return every device, by fleet and name, also one that only reports.

    A restored registry does not know devices that joined since.

    Raises:
        ConfigError: fleet.toml has a wrong or unknown key.
    """
    named = {device.device: device for device in devices.read(registry)}
    if (written := read_if_present(folder)) is not None:
        for name, entry in written.device.items():
            registered = named.get(name) or Device(name, written.fleet)
            tags = tuple(dict.fromkeys((*entry.tags, *registered.tags)))
            serial, board = registered.serial or entry.serial, entry.board or registered.board
            named[name] = replace(registered, serial=serial, board=board, tags=tags)
    for name, fleet in registry.query("SELECT device, fleet FROM presence"):
        named.setdefault(name, Device(name, fleet))
    return sorted(named.values(), key=lambda device: (device.fleet, device.device))


def select_devices(folder: FleetFolder, registry: Registry, text: str) -> list[Device]:
    """Return the devices that match the selection, by fleet and name.

    Raises:
        ConfigError: it is invalid, or matches none.
    """
    fits = parse(text)
    everyone = read_devices(folder, registry)
    matching = [device for device in everyone if fits(device)]
    if not matching:
        boards = ", ".join(sorted({device.board for device in everyone if device.board})) or "none"
        tags = ", ".join(sorted({tag for device in everyone for tag in device.tags})) or "none"
        remedy = (
            f"`{folder.command} list` lists them"
            if everyone
            else f"`{folder.command} token DEVICE` lets one join"
        )
        raise ConfigError(
            f"no device matches {text!r} among {len(everyone)} (boards {boards}; "
            f"tags {tags}): {remedy}"
        )
    return matching


def select_accepted(
    folder: FleetFolder, registry: Registry, text: str
) -> tuple[list[Device], list[str]]:
    """Return the devices of a selection that accept orders, and notes on the others.

    Raises ConfigError also if none does.
    """
    devices = select_devices(folder, registry, text)
    accepted = [device for device in devices if device.trust == "accepted"]
    skipped = [device for device in devices if device.trust != "accepted"]
    if not accepted:
        states = ", ".join(sorted({device.trust for device in skipped}))
        remedy = (
            "they have to join first"
            if states == "expected"
            else "`edgemeter fleet accept` takes them back"
        )
        matching = "1 device matches" if len(devices) == 1 else f"{len(devices)} devices match"
        raise ConfigError(f"{matching} {text!r}, but none accepts orders ({states}): {remedy}")
    return accepted, [
        f"{device.device} is skipped: it is {device.trust}, and only accepted devices take orders"
        for device in skipped
    ]
