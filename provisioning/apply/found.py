"""What a device is, as `look.sh` found it: system, Python, libc, room, and what we may do there."""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from edgemeter.agent.errors import UnavailableError
from edgemeter.provisioning.apply.ssh import Connection

LOOK = Path(__file__).with_name("look.sh")
# unneeded: a folder of our own stands for the root; sudo: without a password; password: sudo wants one.
Rights: TypeAlias = Literal["root", "sudo", "password", "none", "unneeded"]
# Major release of Linux for Tegra to JetPack. Source: NVIDIA's JetPack archive.
JETPACK = {"32": "4", "34": "5", "35": "5", "36": "6", "38": "7", "39": "7"}


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter on the device that can make virtual environments."""

    version: str
    path: str


@dataclass(frozen=True, slots=True)
class Found:
    """A device as it was found."""

    arch: str
    system: str
    board: str | None
    pythons: tuple[Python, ...]
    glibc: tuple[int, int] | None
    rights: Rights
    has_systemd: bool
    has_openssl: bool
    home: str
    disk: str
    free_bytes: int
    home_disk: str
    home_free_bytes: int
    release: str | None
    manifest_sha256: str | None

    @property
    def words(self) -> str:
        """Return the device in a few words."""
        versions = ", ".join(dict.fromkeys(python.version for python in self.pythons)) or "none"
        libc = f"glibc {self.glibc[0]}.{self.glibc[1]}" if self.glibc else "no glibc"
        return f"{self.board or 'unknown board'}, {self.system}, {self.arch}, Python {versions}, {libc}"


def look(connection: Connection, prefix: str) -> Found:
    """Return what the device is.

    Raises:
        UnavailableError: it cannot be reached, or is no system that we can read.
        TransientError: the connection was lost.
    """
    answer = connection.run(["sh", "-s", "--", prefix], LOOK.read_bytes())
    return read(answer.output, f"{connection.target.login} answered {(answer.complaint or answer.output)[:200]!r}")


def read(text: str, otherwise: str) -> Found:
    """Return what the lines of `look.sh` say; when they are incomplete, the error says `otherwise`.

    Raises:
        UnavailableError: the lines are not all there.
    """
    said: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, _, value = line.partition("=")
        # A terminal is to show it: whatever a board calls itself, it gives no orders.
        said[key].append("".join(char for char in value if char.isprintable()).strip())
    one = {key: values[-1] for key, values in said.items()}
    if one.get("end") != "yes":
        message = f"{otherwise}: it is to be a Linux with a POSIX shell that lets this user in without a dialogue"
        raise UnavailableError(message)
    libc = re.fullmatch(r"glibc (\d+)\.(\d+).*", one.get("libc", ""))
    disk, free_bytes = _room(one.get("room", ""))
    home_disk, home_free_bytes = _room(one.get("home_room", ""))
    return Found(
        arch=_arch(one.get("arch", ""), one.get("bits", "")),
        system=_system(one),
        board=one.get("model") or None,
        pythons=tuple(Python(*value.split(" ", 1)) for value in said["python"] if " " in value),
        glibc=(int(libc[1]), int(libc[2])) if libc else None,
        rights=_rights(one.get("rights")),
        has_systemd=one.get("systemd") == "yes",
        has_openssl=bool(one.get("openssl")),
        home=one.get("home", ""),
        disk=disk,
        free_bytes=free_bytes,
        home_disk=home_disk,
        home_free_bytes=home_free_bytes,
        release=Path(one["release"]).name if one.get("release") else None,
        manifest_sha256=one.get("manifest") or None,
    )


def _rights(said: str | None) -> Rights:
    return said if said in {"root", "sudo", "password", "unneeded"} else "none"  # type: ignore[return-value]


def _arch(machine: str, bits: str) -> str:
    """Return the architecture of programs: a 64-bit kernel may carry a 32-bit system (Raspberry Pi OS does)."""
    if bits == "32":
        return {"aarch64": "armv7l", "x86_64": "i686"}.get(machine, machine)
    return machine


def _system(one: dict[str, str]) -> str:
    name = one.get("os") or one.get("os_id") or "unknown system"
    if tegra := one.get("tegra"):
        release = re.search(r"R(\d+).*REVISION: ([\d.]+)", tegra)
        generation = JETPACK.get(release[1]) if release else None
        return f"JetPack {generation} (L4T {release[1]}.{release[2]}, {name})" if release and generation else f"Jetson ({name})"
    if one.get("mendel"):
        return f"Mendel {one['mendel']}"
    return f"Armbian {one['armbian']} ({name})" if one.get("armbian") else name


def _room(said: str) -> tuple[str, int]:
    free_kb, _, disk = said.partition(" ")
    return disk, int(free_kb) * 1024 if free_kb.isdecimal() else 0
