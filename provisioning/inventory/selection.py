"""The language that picks devices: `board=pi5 & coral`, `device=pi5-* | fleet=lab`, `!(standing=revoked)`, `all`.

    selection   one or more of these, joined by `|`
    all of      one or more of these, joined by `&`
    condition   KEY=PATTERN | TAG | all | !condition | ( selection )

KEY is board, circuit, device, fleet, serial, standing or tag; PATTERN may hold `*` and `?`; a word alone is a tag, or a device's name.
What holds a space, or one of `&|!()=`, stands in quotes: `device="my board"`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NoReturn

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.registry.devices import Device

# What a key is read from; a device without a value fits no pattern.
KEYS: dict[str, Callable[[Device], tuple[str, ...]]] = {
    "board": lambda device: _each(device.board),
    "circuit": lambda device: _each(device.circuit),
    "device": lambda device: (device.device,),
    "fleet": lambda device: (device.fleet,),
    "serial": lambda device: _each(device.serial),
    "standing": lambda device: (device.standing,),
    "tag": lambda device: device.tags,
}
EVERYTHING = frozenset({"all", "*"})
_TOKEN = re.compile(r"""\s*(?:(?P<mark>[&|!()=])|"(?P<quoted>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s&|!()="']+))""")
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection that was read; `fits` says whether a device is one of those it names."""

    text: str
    fits: Callable[[Device], bool]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    column: int
    is_mark: bool


def parse(text: str) -> Selection:
    """Return the selection that `text` writes down.

    Raises:
        ConfigError: it is none; the message says at which column.
    """
    reader = _Reader(text, _tokens(text))
    fits = reader.any_of(0)
    if reader.next is not None:
        reader.refuse("an & or | is missing before it")
    return Selection(text, fits)


class _Reader:
    """Reads conditions off the tokens, from left to right."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._place = 0

    @property
    def next(self) -> _Token | None:
        """The token that is read next, None at the end."""
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def any_of(self, depth: int) -> Callable[[Device], bool]:
        """Return whether one of the parts between `|` fits."""
        parts = [self._all_of(depth)]
        while self._takes("|"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else lambda device: any(part(device) for part in parts)

    def refuse(self, why: str) -> NoReturn:
        """Say what is wrong with the next token, and where it stands."""
        found = self.next
        where = f"column {found.column} ({found.text!r})" if found else "its end"
        keys = ", ".join(KEYS)
        message = f"selection {self._text!r}, {where}: {why}; write KEY=PATTERN (keys: {keys}) or a tag, joined by & | ! ( )"
        raise ConfigError(message)

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
            self.refuse("it is no key")
        of, pattern = KEYS[word], self._word(f"a pattern for {word} is missing before it")
        return lambda device: _any_fits(of(device), pattern)

    def _word(self, otherwise: str) -> str:
        found = self.next
        if found is None or found.is_mark:
            self.refuse(otherwise)
        self._place += 1
        return found.text

    def _takes(self, mark: str) -> bool:
        found = self.next
        if found is None or not found.is_mark or found.text != mark:
            return False
        self._place += 1
        return True


def _tokens(text: str) -> list[_Token]:
    found, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            message = f"selection {text!r}, column {place + 1} ({text[place:]!r}): a quote is not closed"
            raise ConfigError(message)
        kind = match.lastgroup
        found.append(_Token(match[kind], match.start(kind) + 1, kind == "mark"))
        place = match.end()
    return found


def _any_fits(values: tuple[str, ...], pattern: str) -> bool:
    return any(fnmatchcase(value, pattern) for value in values)


def _each(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)
