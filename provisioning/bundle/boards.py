"""The boards that bundles are built for, as `boards.toml` beside this file says, and the target that a bundle is built for."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.errors import ConfigError

Python = Annotated[str, msgspec.Meta(pattern=r"^3\.[0-9]{1,2}\Z")]
Glibc = Annotated[str, msgspec.Meta(pattern=r"^2\.[0-9]{1,2}\Z")]
Level = Literal["A", "B", "C", "none"]

LEVELS: dict[str, str] = {
    "A": "from the card or a stick; emulated boots were of Debian 13 with cloud-init, other systems by their file formats only",
    "B": "over SSH to a system that runs: `edgemeter fleet apply`",
    "C": "inside an image that you build",
    "none": "not at all: the runtimes have no wheels for 32-bit systems",
}
# The oldest Python that the agent runs on, and the oldest glibc that wheels for arm64 name.
OLDEST_PYTHON, OLDEST_GLIBC = (3, 10), (2, 17)


class System(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operating system as it runs on a board."""

    name: str
    python: Python
    glibc: Glibc
    level: Level


class Board(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of boards that one bundle fits."""

    title: str
    arch: Literal["aarch64", "x86_64", "armv7l", "armv6l"]
    system: Annotated[tuple[System, ...], msgspec.Meta(min_length=1)]
    core: str | None = None
    note: str | None = None
    models: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    board: dict[str, Board]


@dataclass(frozen=True, slots=True)
class Target:
    """What wheels are chosen for: `python` and `glibc` as numbers, (3, 13) and (2, 41)."""

    board: str
    arch: str
    python: tuple[int, int]
    glibc: tuple[int, int]
    core: str | None = None

    @property
    def python_text(self) -> str:
        """Return `3.13`."""
        return f"{self.python[0]}.{self.python[1]}"

    @property
    def glibc_text(self) -> str:
        """Return `2.41`."""
        return f"{self.glibc[0]}.{self.glibc[1]}"

    @property
    def words(self) -> str:
        """Return the target in a few words."""
        return f"{self.board}: {self.arch}, Python {self.python_text}, glibc {self.glibc_text}"

    def platforms(self) -> list[str]:
        """Return every platform tag that wheels for this target may have, the newest first."""
        tags = [f"manylinux_2_{minor}_{self.arch}" for minor in range(self.glibc[1], OLDEST_GLIBC[1] - 1, -1)]
        tags.append(f"manylinux2014_{self.arch}")
        if self.arch == "x86_64":
            tags += ["manylinux_2_12_x86_64", "manylinux2010_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64"]
        return [*tags, f"linux_{self.arch}"]

    def markers(self) -> dict[str, str]:
        """Return the environment in which the markers of requirements are read (PEP 508), as it is on the target."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python_text}.0",
            "os_name": "posix",
            "platform_machine": self.arch,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python_text}.0",
            "python_version": self.python_text,
            "sys_platform": "linux",
        }


def table() -> dict[str, Board]:
    """Return all boards by name."""
    return msgspec.toml.decode(files(__package__).joinpath("boards.toml").read_bytes(), type=_File).board


def named(model: str) -> str | None:
    """Return the name of the board that calls itself `model` (`Raspberry Pi 5 Model B Rev 1.0` is pi5), None for an unknown one."""
    return next((name for name, one in table().items() if any(fnmatchcase(model, pattern) for pattern in one.models)), None)


def board(name: str) -> Board:
    """Return a board.

    Raises:
        ConfigError: there is none of that name.
    """
    known = table()
    if name not in known:
        message = f"there is no board {name!r}: one of {', '.join(known)}; `edgemeter fleet boards` tells which is which"
        raise ConfigError(message)
    return known[name]


def target(name: str, python: str | None = None, glibc: str | None = None) -> Target:
    """Return the target for a board: its usual system, or the one with `python`; a Python that none of its systems has is brought along.

    Raises:
        ConfigError: no bundle can be built for it; the message says what to do instead.
    """
    found = board(name)
    if found.arch not in {"aarch64", "x86_64"}:
        message = f"no bundle for {name!r} ({found.arch}): msgspec, numpy and the runtimes have no 32-bit wheels; "
        hint = "put a 64-bit system on the board if its processor is one (Raspberry Pi 3 and later), or build from source there"
        raise ConfigError(message + hint)
    system = next((one for one in found.system if one.python == python), None) if python else found.system[0]
    oldest = min((one.glibc for one in found.system), key=numbers)
    chosen = Target(
        board=name,
        arch=found.arch,
        python=numbers(system.python if system else str(python)),
        glibc=numbers(glibc or (system.glibc if system else oldest)),
        core=found.core,
    )
    _check(chosen, found)
    return chosen


def level(chosen: Target) -> str:
    """Return how the agent gets onto this target, in a few words."""
    systems = [one for one in board(chosen.board).system if one.python == chosen.python_text and one.glibc == chosen.glibc_text]
    told = [f"{one.level} on {one.name}, {LEVELS[one.level]}" for one in systems]
    return "; ".join(told) or f"B, {LEVELS['B']}"


def numbers(text: str) -> tuple[int, int]:
    """Return `3.13` as (3, 13).

    Raises:
        ConfigError: it is no such version.
    """
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        message = f"{text!r} is no version of the form 3.13"
        raise ConfigError(message)
    return int(major), int(minor)


def _check(chosen: Target, found: Board) -> None:
    newer = next((one for one in found.system if numbers(one.python) >= OLDEST_PYTHON), None)
    if chosen.python[0] != 3 or chosen.python < OLDEST_PYTHON:
        remedy = f"use {newer.name} (--python {newer.python}), or bring" if newer else "bring"
        message = f"no bundle for {chosen.words}: the agent needs Python 3.10 or newer; {remedy} a newer Python to the board "
        hint = "(python-build-standalone, `install_only`; `edgemeter fleet apply --python-tar`) and give its version: --python 3.11"
        raise ConfigError(message + hint)
    if chosen.glibc[0] != 2 or chosen.glibc < OLDEST_GLIBC:
        message = f"no bundle for {chosen.words}: wheels need glibc 2.17 or newer; musl has none that fit"
        raise ConfigError(message)
