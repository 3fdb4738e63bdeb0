"""The boards that releases are built for, and the target of a release.

The boards are in `boards.toml` next to this file.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError

Python = Annotated[str, msgspec.Meta(pattern=r"^3\.[0-9]{1,2}\Z")]
# The oldest Python that the agent runs on, and the oldest glibc that wheels for arm64 name.
OLDEST_PYTHON, OLDEST_GLIBC = (3, 10), (2, 17)


class BoardSystem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operating system as it runs on a board."""

    name: str
    python: Python
    glibc: Annotated[str, msgspec.Meta(pattern=r"^2\.[0-9]{1,2}\Z")]


class BoardFamily(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of boards that one release fits."""

    arch: Literal["aarch64", "x86_64", "armv7l", "armv6l"]
    system: Annotated[tuple[BoardSystem, ...], msgspec.Meta(min_length=1)]
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseTarget:
    """The target that wheels are chosen for.

    `python` and `glibc` are numbers, such as (3, 13) and (2, 41).
    """

    board: str
    arch: str
    python: tuple[int, int]
    glibc: tuple[int, int]

    @property
    def python_text(self) -> str:
        return f"{self.python[0]}.{self.python[1]}"

    @property
    def glibc_text(self) -> str:
        return f"{self.glibc[0]}.{self.glibc[1]}"

    @property
    def words(self) -> str:
        return f"{self.board}: {self.arch}, Python {self.python_text}, glibc {self.glibc_text}"

    def platforms(self) -> list[str]:
        """Return every platform tag that wheels for this target may have, newest first."""
        tags = [
            f"manylinux_2_{minor}_{self.arch}"
            for minor in range(self.glibc[1], OLDEST_GLIBC[1] - 1, -1)
        ]
        tags.append(f"manylinux2014_{self.arch}")
        if self.arch == "x86_64":
            tags += [
                "manylinux_2_12_x86_64",
                "manylinux2010_x86_64",
                "manylinux_2_5_x86_64",
                "manylinux1_x86_64",
            ]
        return [*tags, f"linux_{self.arch}"]

    def markers(self) -> dict[str, str]:
        """Return the markers of requirements (PEP 508) in which the target may differ.

        It may differ from this machine, which runs Linux too.
        """
        full_version = f"{self.python_text}.0"
        python = {
            "implementation_version": full_version,
            "python_full_version": full_version,
            "python_version": self.python_text,
        }
        return {
            **python,
            "platform_machine": self.arch,
            "platform_release": "",
            "platform_version": "",
        }


@cache
def all_boards() -> dict[str, BoardFamily]:
    return msgspec.toml.decode(
        files(__package__).joinpath("boards.toml").read_bytes(),
        type=dict[str, dict[str, BoardFamily]],
    )["board"]


def board_of_model(model: str) -> str | None:
    """Return the name of the board with this model text, None if it is unknown.

    `Raspberry Pi 5 Model B Rev 1.0` is pi5.
    """
    return next(
        (
            name
            for name, family in all_boards().items()
            if any(fnmatchcase(model, pattern) for pattern in family.models)
        ),
        None,
    )


def release_target(name: str, python: str | None = None, glibc: str | None = None) -> ReleaseTarget:
    """Return a board's target, with its usual system or that with `python`.

    Raises:
        ConfigError: it has none; the message has the remedy.
    """
    families = all_boards()
    if name not in families:
        raise ConfigError(f"no board is called {name!r}: give one of {', '.join(families)}")
    family = families[name]
    if family.arch not in {"aarch64", "x86_64"}:
        message = (
            f"no release for {name!r} ({family.arch}): msgspec, numpy and the runtimes have no "
            "32-bit wheels; "
        )
        hint = (
            "install a 64-bit system if the processor supports it (Raspberry Pi 3 and later), or "
            "build from source there"
        )
        raise ConfigError(message + hint)
    python = python or family.system[0].python
    # The usual system comes first; with another Python it may be any of them.
    glibcs = {system.python: system.glibc for system in reversed(family.system)}
    oldest = min(glibcs.values(), key=numbers)
    target = ReleaseTarget(
        name, family.arch, numbers(python), numbers(glibc or glibcs.get(python, oldest))
    )
    if target.python[0] != 3 or target.python < OLDEST_PYTHON:
        newer = next(
            (system for system in family.system if numbers(system.python) >= OLDEST_PYTHON), None
        )
        remedy = f"use {newer.name} (--python {newer.python}), or install" if newer else "install"
        message = (
            f"no release for {target.words}: the agent needs Python 3.10 or newer; {remedy} a "
            "newer Python on the board "
        )
        hint = (
            "(a python-build-standalone in /opt/edgemeter/pythons/3.11, see docs/tasks/fleet.md) "
            "and give its version: --python 3.11"
        )
        raise ConfigError(message + hint)
    if target.glibc[0] != 2 or target.glibc < OLDEST_GLIBC:
        raise ConfigError(
            f"no release for {target.words}: wheels need glibc 2.17 or newer; musl has "
            "none that fit"
        )
    return target


def numbers(text: str) -> tuple[int, int]:
    """Return `3.13` as (3, 13); raises ConfigError if it is not a version."""
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise ConfigError(f"{text!r} is not a version such as 3.13")
    return int(major), int(minor)
