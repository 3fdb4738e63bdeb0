"""A board as `look.sh` finds it (system, Python, libc, free space, rights), and programs that run there as root."""

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.apply.ssh import SshConnection, last_line

LOOK = Path(__file__).with_name("look.sh")
ENTER_DISK = Path(__file__).with_name("enter_disk.sh")
# Where that program shows the stage, and its exit status where it cannot enter.
STAGE_ON_DISK, NOT_ENTERED = "/run/edgemeter-apply", 96

# Mounting every partition of a slow disk takes a while.
INSPECT_S = 300.0

# unneeded: below --prefix; sudo: without a password; password: sudo asks for one.
Rights: TypeAlias = Literal["root", "sudo", "password", "none", "unneeded"]

# Major release of Linux for Tegra to JetPack. Source: NVIDIA's JetPack archive.
JETPACK = {"32": "4", "34": "5", "35": "5", "36": "6", "38": "7", "39": "7"}
ARCH_32_BIT = {"aarch64": "armv7l", "x86_64": "i686"}

# What sudo leaves of standard input (a password that it did not ask for) is skipped, never run as a program.
_BEGIN = b"#edgemeter\n"
_SKIP = 'while IFS= read -r line; do [ "$line" = "#edgemeter" ] && exec "$@"; done; exit 97'

# -k: sudo asks even if it remembers the password; -p '': without a prompt.
_WITH_PASSWORD = ["sudo", "-k", "-S", "-p", "", "--"]

# What sudo, and sudo in Rust, print to users without permission.
_NOT_ALLOWED = ("not in the sudoers", "not allowed", "may not run", "afraid I can't do that")
_WITHOUT = {"root": [], "unneeded": [], "sudo": ["sudo", "-n", "--"]}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter on the device that can make virtual environments."""

    version: str
    path: str


@dataclass(frozen=True, slots=True)
class ExaminedBoard:
    """A board as it was examined; `disk` is that of /opt, `home_disk` that of the home folder."""

    arch: str
    system: str
    board: str | None
    pythons: tuple[Interpreter, ...]
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
        """A short description."""
        versions = ", ".join(dict.fromkeys(python.version for python in self.pythons)) or "none"
        libc = f"glibc {self.glibc[0]}.{self.glibc[1]}" if self.glibc else "no glibc"
        return f"{self.board or 'unknown board'}, {self.system}, {self.arch}, Python {versions}, {libc}"


def inspect_board(connection: SshConnection, prefix: str) -> ExaminedBoard:
    """Return what the board is; raises UnavailableError if it is not a supported system, or as `SshConnection.run`."""
    result = connection.run(["sh", "-s", "--", prefix], LOOK.read_bytes())
    return parse_inspection(result.stdout, f"{connection.target.login} responds {(result.stderr or result.stdout)[:200]!r}")


def inspect_disk(root: "RootShell", running: ExaminedBoard, disk: str) -> ExaminedBoard:
    """Return the system on another disk of the board `running`, which `root` enters; raises UnavailableError if there is none to enter."""
    result = root.run(["sh", "-s", "--", ""], LOOK.read_bytes(), INSPECT_S)
    if result.returncode == NOT_ENTERED:
        raise UnavailableError(last_line(result.stderr, 300))
    board = parse_inspection(result.stdout, f"the system on {disk} responds {(result.stderr or result.stdout)[-200:]!r}")
    return replace(board, disk=disk, home=running.home, home_disk=running.home_disk, home_free_bytes=running.home_free_bytes)


def parse_inspection(text: str, otherwise: str) -> ExaminedBoard:
    """Return the board in the lines of `look.sh`; raises UnavailableError, which begins with `otherwise`, if lines are missing."""
    values: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, _, value = line.partition("=")
        # A terminal shows it: a board's name must not hold control characters.
        values[key].append("".join(char for char in value if char.isprintable()).strip())
    last = {key: lines[-1] for key, lines in values.items()}
    # A 64-bit kernel may run a 32-bit system (Raspberry Pi OS does).
    machine = last.get("arch", "")
    arch = ARCH_32_BIT.get(machine, machine) if last.get("bits") == "32" else machine
    if last.get("end") != "yes":
        raise UnavailableError(f"{otherwise}: it has to be a Linux with a POSIX shell and a login without a dialogue")
    libc = re.fullmatch(r"glibc (\d+)\.(\d+).*", last.get("libc", ""))
    disk, free_bytes = _room(last.get("room", ""))
    home_disk, home_free_bytes = _room(last.get("home_room", ""))
    return ExaminedBoard(
        arch=arch,
        system=_system(last),
        board=last.get("model") or None,
        pythons=tuple(Interpreter(*value.split(" ", 1)) for value in values["python"] if " " in value),
        glibc=(int(libc[1]), int(libc[2])) if libc else None,
        rights=last["rights"] if last.get("rights") in get_args(Rights) else "none",  # type: ignore[arg-type]
        has_systemd=last.get("systemd") == "yes",
        has_openssl=bool(last.get("openssl")),
        home=last.get("home", ""),
        disk=disk,
        free_bytes=free_bytes,
        home_disk=home_disk,
        home_free_bytes=home_free_bytes,
        release=Path(last["release"]).name if last.get("release") else None,
        manifest_sha256=last.get("manifest") or None,
    )


def _system(values: dict[str, str]) -> str:
    name = values.get("os") or values.get("os_id") or "unknown system"
    if tegra := values.get("tegra"):
        release = re.search(r"R(\d+).*REVISION: ([\d.]+)", tegra)
        generation = JETPACK.get(release[1]) if release else None
        return f"JetPack {generation} (L4T {release[1]}.{release[2]}, {name})" if release and generation else f"Jetson ({name})"
    if values.get("mendel"):
        return f"Mendel {values['mendel']}"
    return f"Armbian {values['armbian']} ({name})" if values.get("armbian") else name


def _room(text: str) -> tuple[str, int]:
    free_kb, _, disk = text.partition(" ")
    return disk, int(free_kb) * 1024 if free_kb.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class RootShell:
    """Root on one device, by `rights`; a password goes to sudo over standard input: no process list and no log shows it.

    `entry` precedes every program: what enters the system on another disk.
    """

    connection: SshConnection
    rights: Rights
    password: str | None
    entry: tuple[str, ...] = ()

    def on_disk(self, disk: str, stage: str) -> "RootShell":
        """Return the same in the system on another disk of the device, which sees the folder `stage` as STAGE_ON_DISK."""
        return replace(self, entry=("unshare", "--mount", "sh", "-c", ENTER_DISK.read_text(), "sh", disk, stage))

    def check(self) -> None:
        """Check that programs run there as root; raises UnavailableError without a permitted sudo, ConfigError without its password."""
        login = self.connection.target.login
        if self.rights == "none":
            raise UnavailableError(f"{login} is not root and has no sudo: install sudo and allow this user to use it, or log in as root")
        if self.rights != "password":
            return
        if self.password is None:
            raise ConfigError(f"sudo needs a password for {login}: give --ask-sudo-password or --sudo-password-file FILE")
        result = self.connection.run([*_WITH_PASSWORD, "true"], self._line())
        if any(words in result.stderr for words in _NOT_ALLOWED):
            raise UnavailableError(
                f"{login} may not use sudo: `adduser {self.connection.target.user or 'USER'} sudo` as root there, or log in as another user"
            )
        if result.returncode != 0:
            raise ConfigError(
                f"sudo refuses the password of {login} ({last_line(result.stderr, 200)}): "
                "give the right one with --ask-sudo-password or --sudo-password-file FILE"
            )

    def run(self, interpreter: list[str], program: bytes, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run `program` as root by `interpreter`, from standard input, and return its result."""
        skipping = ["sh", "-c", _SKIP, "sh", *self.entry, *interpreter]
        if self.rights == "password":
            return self.connection.run([*_WITH_PASSWORD, *skipping], self._line() + _BEGIN + program, timeout_s)
        return self.connection.run([*_WITHOUT[self.rights], *skipping], _BEGIN + program, timeout_s)

    def _line(self) -> bytes:
        return f"{self.password}\n".encode()
