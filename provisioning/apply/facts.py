"""The facts of a board, from `look.sh`.

They are system, Pythons, libc, free space, rights, and the releases of the agent.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.number_text import on_one_line
from edgemeter.provisioning.release.boards import OLDEST_GLIBC, OLDEST_PYTHON, numbers

LOOK = Path(__file__).with_name("look.sh")
# sudo: without a password; password: sudo asks for one.
Rights: TypeAlias = Literal["root", "sudo", "password", "none"]
ARCH_32_BIT = {"aarch64": "armv7l", "x86_64": "i686"}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter on the board that can make virtual environments."""

    version: str
    path: str


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """The facts of a board.

    `root` is the folder of releases, `free_bytes` the space below the home folder. `releases` are
    the installed versions, with the hash of their manifest; `current` is the running one.
    """

    arch: str
    system: str
    model: str | None
    pythons: tuple[Interpreter, ...]
    glibc: tuple[int, int] | None
    rights: Rights
    has_openssl: bool
    home: str
    root: str
    free_bytes: int
    current: str | None
    releases: dict[str, str]

    @property
    def words(self) -> str:
        versions = ", ".join(dict.fromkeys(python.version for python in self.pythons)) or "none"
        libc = f"glibc {self.glibc[0]}.{self.glibc[1]}" if self.glibc else "no glibc"
        return (
            f"{self.model or 'unknown board'}, {self.system}, {self.arch}, "
            f"Python {versions}, {libc}"
        )

    def usable_pythons(self, address: str) -> list[Interpreter]:
        """Return the interpreters that the agent runs on.

        Raises:
            UnavailableError: there is none; the message has the remedy at `address`.
        """
        if self.arch not in {"aarch64", "x86_64"}:
            raise UnavailableError(
                f"no release fits {self.words}, because runtimes exist for 64-bit "
                "systems only: install one"
            )
        if self.glibc is None or self.glibc < OLDEST_GLIBC:
            oldest = ".".join(map(str, OLDEST_GLIBC))
            raise UnavailableError(
                f"no release fits {self.words}, because wheels need glibc {oldest} or newer: "
                "install a newer system"
            )
        usable = [python for python in self.pythons if numbers(python.version) >= OLDEST_PYTHON]
        if not usable:
            folder, sudo = (
                f"{self.root}/pythons/3.11",
                "" if self.root.startswith(f"{self.home}/") else "sudo ",
            )
            raise UnavailableError(
                f"no Python >= 3.10 with venv in {self.system}: install one (Debian: `sudo apt "
                "install python3-venv`), or unpack one: "
                f"`ssh {address} '{sudo}mkdir -p {folder} && {sudo}tar -xz -C {folder} "
                "--strip-components=1' < FILE`, where FILE is a "
                "python-build-standalone "
                f"cpython-3.11-{self.arch}-unknown-linux-gnu-install_only.tar.gz"
            )
        return usable


def parse_facts(text: str, otherwise: str) -> BoardFacts:
    """Return the facts in the output of `look.sh`.

    Raises:
        UnavailableError: lines are missing; the message begins with `otherwise`.
    """
    values: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, _, value = line.partition("=")
        values[key].append(on_one_line(value))
    last = {key: lines[-1] for key, lines in values.items()}
    if last.get("end") != "yes":
        raise UnavailableError(
            f"{otherwise}: it has to be a Linux with a POSIX shell and a login without a dialogue"
        )
    # A 64-bit kernel may run a 32-bit system (as Raspberry Pi OS does).
    machine = last.get("arch", "")
    libc = re.fullmatch(r"glibc (\d+)\.(\d+).*", last.get("libc", ""))
    free_kb = last.get("free_kb", "")
    return BoardFacts(
        arch=ARCH_32_BIT.get(machine, machine) if last.get("bits") == "32" else machine,
        system=last.get("os") or "unknown system",
        model=last.get("model") or None,
        pythons=tuple(
            Interpreter(*value.split(" ", 1)) for value in values["python"] if " " in value
        ),
        glibc=(int(libc[1]), int(libc[2])) if libc else None,
        rights=(
            last["rights"]  # type: ignore[arg-type]
            if last.get("rights") in get_args(Rights)
            else "none"
        ),
        has_openssl=bool(last.get("openssl")),
        home=last.get("home", ""),
        root=last.get("root", ""),
        free_bytes=int(free_kb) * 1024 if free_kb.isdecimal() else 0,
        current=Path(last["current"]).name if last.get("current") else None,
        releases={
            Path(folder).name: sha256
            for sha256, _, folder in (value.partition(" ") for value in values["release"])
        },
    )
