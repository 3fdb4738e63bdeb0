"""The devices of a fleet as commands see them, and the language that selects them: `board=pi5 & coral`, `device=pi5-* | fleet=lab`, `all`.

    selection   one or more of these, joined by `|`
    all of      one or more of these, joined by `&`
    condition   KEY=PATTERN | TAG | all | !condition | ( selection )

KEY is board, device, fleet, serial, tag or trust; PATTERN may hold `*` and `?`; a word alone is a tag, or a device's name.
Text with a space, or one of `&|!()=`, is quoted: `device="my board"`.

A device is what the registry knows of it, overlaid with fleet.toml: the file decides board and tags, the registry serial
number and trust state. A device that only the file names, or that only reports, is `expected`. Nothing is copied from the file into the
registry.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NoReturn

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile, read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry

# The values of each key; a device without a value matches no pattern.
KEYS: dict[str, Callable[[Device], tuple[str, ...]]] = {
    "board": lambda device: _each(device.board),
    "device": lambda device: (device.device,),
    "fleet": lambda device: (device.fleet,),
    "serial": lambda device: _each(device.serial),
    "tag": lambda device: device.tags,
    "trust": lambda device: (device.trust,),
}
EVERYTHING = frozenset({"all", "*"})
_TOKEN = re.compile(r"""\s*(?:(?P<mark>[&|!()=])|"(?P<quoted>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s&|!()="']+))""")
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Selection:
    """A parsed selection; `fits` returns whether a device matches."""

    text: str
    fits: Callable[[Device], bool]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    column: int
    is_mark: bool


def parse(text: str) -> Selection:
    """Parse a selection; raises ConfigError if it is invalid; the message names the column."""
    reader = _SelectionParser(text, _tokens(text))
    fits = reader.any_of(0)
    if reader.next is not None:
        reader.refuse("an & or | is missing before it")
    return Selection(text, fits)


class _SelectionParser:
    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._place = 0

    @property
    def next(self) -> _Token | None:
        """The next token, None at the end."""
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def any_of(self, depth: int) -> Callable[[Device], bool]:
        """Parse alternatives joined by `|`."""
        parts = [self._all_of(depth)]
        while self._takes("|"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else lambda device: any(part(device) for part in parts)

    def refuse(self, why: str) -> NoReturn:
        """Raise an error about the next token, with its column."""
        token = self.next
        where = f"column {token.column} ({token.text!r})" if token else "its end"
        keys = ", ".join(KEYS)
        raise ConfigError(f"selection {self._text!r}, {where}: {why}; write KEY=PATTERN (keys: {keys}) or a tag, joined by & | ! ( )")

    def _all_of(self, depth: int) -> Callable[[Device], bool]:
        parts = [self._condition(depth)]
        while self._takes("&"):
            parts.append(self._condition(depth))
        return parts[0] if len(parts) == 1 else lambda device: all(part(device) for part in parts)

    def _condition(self, depth: int) -> Callable[[Device], bool]:
        if depth > _DEEPEST:
            self.refuse("it is nested too deeply")
        if self._takes("!"):
            inner = self._condition(depth + 1)
            return lambda device: not inner(device)
        if self._takes("("):
            inner = self.any_of(depth + 1)
            if not self._takes(")"):
                self.refuse("a ) is missing before it")
            return inner
        return self._named()

    def _named(self) -> Callable[[Device], bool]:
        word = self._word("a condition is missing before it")
        if not self._takes("="):
            if word in EVERYTHING:
                return lambda _device: True
            return lambda device: _any_fits((*device.tags, device.device), word)
        if word not in KEYS:
            self._place -= 2
            self.refuse("it is not a key")
        of, pattern = KEYS[word], self._word(f"a pattern for {word} is missing before it")
        return lambda device: _any_fits(of(device), pattern)

    def _word(self, otherwise: str) -> str:
        token = self.next
        if token is None or token.is_mark:
            self.refuse(otherwise)
        self._place += 1
        return token.text

    def _takes(self, mark: str) -> bool:
        token = self.next
        if token is None or not token.is_mark or token.text != mark:
            return False
        self._place += 1
        return True


def _tokens(text: str) -> list[_Token]:
    tokens, start = [], 0
    while text[start:].strip():
        match = _TOKEN.match(text, start)
        if match is None or match.lastgroup is None:
            raise ConfigError(f"selection {text!r}, column {start + 1} ({text[start:]!r}): a quote is not closed")
        kind = match.lastgroup
        tokens.append(_Token(match[kind], match.start(kind) + 1, kind == "mark"))
        start = match.end()
    return tokens


def _any_fits(values: tuple[str, ...], pattern: str) -> bool:
    return any(fnmatchcase(value, pattern) for value in values)


def _each(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


def read_devices(folder: FleetFolder, registry: Registry) -> list[Device]:
    """Return every device, by fleet and name, also one that only reports: a registry from a backup does not know who joined since.

    Raises:
        ConfigError: fleet.toml has a wrong or unknown key.
    """
    named = {device.device: device for device in merge_devices(devices.read(registry), read_if_present(folder))}
    for name, fleet in registry.query("SELECT device, fleet FROM presence"):
        named.setdefault(name, Device(name, fleet))
    return sorted(named.values(), key=lambda device: (device.fleet, device.device))


def merge_devices(registered: list[Device], written: FleetFile | None) -> list[Device]:
    """Return the devices of the registry overlaid with the file, and those that only the file names."""
    if written is None:
        return registered
    devices_by_name = {device.device: device for device in registered}
    for name, entry in written.device.items():
        devices_by_name[name] = _with(devices_by_name.get(name) or Device(name, written.fleet), entry)
    return sorted(devices_by_name.values(), key=lambda device: (device.fleet, device.device))


def select_devices(folder: FleetFolder, registry: Registry, text: str) -> list[Device]:
    """Return the devices that match the selection, by fleet and name; raises ConfigError if it is invalid, or matches none."""
    parsed = parse(text)
    everyone = read_devices(folder, registry)
    matching = [device for device in everyone if parsed.fits(device)]
    if not matching:
        of_the_fleet = f"of the fleet in {str(folder.path)!r}"
        name = re.fullmatch(r"\(?([\w.:@-]+)\)?", text)
        if name is not None and name[1] != "all":
            raise ConfigError(f"no device matches {name[1]!r}: `edgemeter fleet list` lists the {len(everyone)} devices {of_the_fleet}")
        if not everyone:
            raise ConfigError(f"no device matches {text!r}: this fleet has none yet; `edgemeter fleet token DEVICE` lets one join")
        boards = ", ".join(sorted({device.board for device in everyone if device.board})) or "none"
        tags = ", ".join(sorted({tag for device in everyone for tag in device.tags})) or "none"
        raise ConfigError(f"no device matches {text!r} among {len(everyone)} (boards {boards}; tags {tags})")
    return matching


def _with(registered: Device, entry: DeviceEntry) -> Device:
    return replace(
        registered,
        serial=registered.serial or entry.serial,
        board=entry.board or registered.board,
        tags=tuple(dict.fromkeys((*entry.tags, *registered.tags))),
    )
