"""Compatible combinations of board, system, runtime and accelerator.

They are in `setups.toml` next to this file. A set-up names exact packages; it is not necessarily
tested.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

INTERPRETERS = ("ai-edge-litert", "tflite-runtime")


class SetupPackage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package of a set-up: its source, and its file if known."""

    name: str
    version: str
    source: str = "PyPI"
    file: str | None = None


class Setup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages that belong together on a board and its system, and the commands that install them.

    `models` are patterns of the board's model, `os` begins the name of its system, `accelerator`
    begins the name of the attached device.
    """

    os: str
    arch: Literal["aarch64", "x86_64"]
    python: str
    runtime: str
    models: tuple[str, ...] = ("*",)
    accelerator: str
    packages: tuple[SetupPackage, ...] = ()
    install: tuple[str, ...] = ()
    note: str | None = None

    def fits(self, model: str | None, system: str | None, arch: str, python: str) -> bool:
        return (
            any(fnmatchcase(model or "", pattern) for pattern in self.models)
            and (system or "").startswith(self.os)
            and (self.arch, self.python) == (arch, python)
        )


@lru_cache(maxsize=1)
def all_setups() -> tuple[Setup, ...]:
    """Return every set-up, merged with the part shared by its system."""
    systems = msgspec.toml.decode(files(__package__).joinpath("setups.toml").read_bytes())["system"]
    return tuple(
        msgspec.convert({**system, **setup}, Setup)
        for system in systems
        for setup in system.pop("setup")
    )


def interpreters() -> Mapping[str, str]:
    """Return the matching interpreter of each known version of libedgetpu, as a requirement.

    For example `16.0tf2.19.1-1` to `NAME==VERSION`.
    """
    pairs: dict[str, str] = {}
    for setup in all_setups():
        library = next(
            (package for package in setup.packages if package.name.startswith("libedgetpu1-")), None
        )
        interpreter = next(
            (package for package in setup.packages if package.name in INTERPRETERS), None
        )
        if library and interpreter:
            pairs[library.version] = f"{interpreter.name}=={interpreter.version}"
    return pairs


def interpreter_of(libedgetpu: str) -> str | None:
    # The package's version ends with the system that it was built for.
    return interpreters().get(
        re.sub(r"\.(?:trixie|bookworm|bullseye|ubuntu[0-9.]+)\Z", "", libedgetpu)
    )
