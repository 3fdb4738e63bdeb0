"""One board over the system's `ssh`: commands, programs as root, and files.

The system's client provides the agent, jump hosts and configuration that people already have. All
commands of a connection share one master (ControlMaster); nothing is asked on a terminal
(BatchMode), and a dead connection ends.
"""

import contextlib
import hashlib
import mmap
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
)
from edgemeter.provisioning.apply.facts import LOOK, BoardFacts, parse_facts
from edgemeter.provisioning.apply.on_device import last_line

# ssh's own exit status if it could not connect or lost the connection.
LOST = 255
CONNECT_S = 10
OPTIONS = (
    "BatchMode=yes", f"ConnectTimeout={CONNECT_S}", "ServerAliveInterval=10",
    "ServerAliveCountMax=3", "StrictHostKeyChecking=accept-new",
)  # fmt: skip
# Errors of ssh and their remedies; the first match counts.
REMEDIES = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": (
        "its host key has changed: if the board was reinstalled, `ssh-keygen -R {known_host}`; "
        "otherwise do not trust it"
    ),
    "Host key verification failed": (
        "its host key is unknown: connect once by hand with `ssh {address}`"
    ),
    "Permission denied": (
        "the login was refused: `ssh-copy-id {address}`, or name the key in ~/.ssh/config"
    ),
    "Too many authentication failures": (
        "too many keys were tried: name the right one in ~/.ssh/config, with IdentitiesOnly yes"
    ),
    "Could not resolve hostname": "the host name is unknown: correct it, or give an address",
    "Connection refused": (
        "nothing listens there: enable SSH (`sudo systemctl enable --now ssh`), or correct the port"
    ),
    "timed out": "it does not respond: is it switched on and on this network?",
    "unreachable": "it cannot be reached from here: is this machine on its network?",
    "No route to host": "it does not respond: is it switched on and on this network?",
}
FORM = "write ssh://USER@HOST, ssh://HOST:PORT or ssh://USER@[IPV6]:PORT"
# No user and no host begins with a dash, which ssh would interpret as an option.
_ADDRESS = re.compile(
    r"ssh://(?:([A-Za-z0-9_][A-Za-z0-9_.+\\-]*)@)?"
    r"(?:\[([0-9A-F:.]+(?:%[\w.-]+)?)\]|(\w(?:[\w.-]*\w)?\.?))(?::(\d{1,5}))?/?",
    re.ASCII | re.IGNORECASE,
)
HASH_S = 600.0
MB = 1e6
# The slowest transfer rate that does not count as stalled.
SLOWEST_BYTES_PER_S = 20_000
# $1: a file on the board. Its folder is created; for an existing file, the hash and the size are
# printed.
_HASH = (
    'umask 077; mkdir -p "$(dirname "$1")" || exit; [ ! -f "$1" ] || { sha256sum <"$1" && '
    'wc -c <"$1"; }'
)
_WRITE = 'umask 077; if [ "$2" = 0 ]; then cat > "$1"; else cat >> "$1"; fi'
# If sudo does not read the password from standard input, the rest is skipped, never run as a
# program.
_BEGIN = b"#edgemeter\n"
_SKIP = 'while IFS= read -r line; do [ "$line" = "#edgemeter" ] && exec "$@"; done; exit 97'
# -k: sudo asks even if it remembers the password; -p '': without a prompt.
_SUDO = {"root": [], "sudo": ["sudo", "-n", "--"], "password": ["sudo", "-k", "-S", "-p", "", "--"]}


@dataclass(frozen=True, slots=True)
class SshTarget:
    """A board and its address; without `user` ssh's own configuration applies."""

    name: str
    host: str
    user: str | None = None
    port: int | None = None

    @property
    def login(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host

    @property
    def address(self) -> str:
        """Return the arguments for ssh and ssh-copy-id."""
        return f"-p {self.port} {self.login}" if self.port else self.login


def parse_target(text: str) -> SshTarget:
    """Return the board at `ssh://[USER@]HOST[:PORT]`, the value of `--on`.

    Raises:
        ConfigError: the address is invalid; the message has the form to write.
    """
    if re.match(r"ssh://[^@/]*:[^@]*@", text, re.IGNORECASE):
        raise ConfigError(
            f"--on 'ssh://...@{text.rpartition('@')[2]}': passwords are rejected; use a key "
            f"(`ssh-copy-id`), and {FORM}"
        )
    parts = _ADDRESS.fullmatch(text)
    port = int(parts[4]) if parts and parts[4] else None
    if parts is None or not (port is None or 0 < port < 1 << 16):
        raise ConfigError(f"--on {text!r} is not the address of a board; {FORM}")
    host = parts[2] or parts[3]
    return SshTarget(host, host, parts[1], port)


class Board(contextlib.AbstractContextManager["Board"]):
    """Commands on one board over one master connection, which ends with the `with` block.

    `options` are for `ssh -o` and come first.
    """

    def __init__(
        self, target: SshTarget, options: Sequence[str] = (), sudo_password: str | None = None
    ) -> None:
        if shutil.which("ssh") is None:
            raise UnavailableError(
                "`ssh` is not installed here: install OpenSSH's client (Debian: `apt install "
                "openssh-client`)"
            )
        self.target, self._sudo_password = target, sudo_password
        # The path of a Unix socket is limited to 107 bytes: it is not below TMPDIR, which may be
        # long.
        self._folder = tempfile.TemporaryDirectory(
            prefix="edgemeter-ssh-", dir="/tmp", ignore_cleanup_errors=True
        )
        master = ("ControlMaster=auto", f"ControlPath={self._folder.name}/%C", "ControlPersist=30")
        port = ["-p", str(target.port)] if target.port else []
        self._ssh = ["ssh", *(f"-o{option}" for option in (*options, *OPTIONS, *master)), *port]

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*self._ssh, "-O", "exit", "--", self.target.login],
                capture_output=True,
                check=False,
                timeout=CONNECT_S,
            )
        self._folder.cleanup()

    def look(self, root: str) -> BoardFacts:
        """Return the facts of the board and its releases in `root`.

        It also raises as `run`.

        Raises:
            UnavailableError: the system is not supported.
        """
        result = self.run(["sh", "-s", "--", root], LOOK.read_bytes())
        self.facts = parse_facts(
            result.stdout,
            f"{self.target.login} responds {(result.stderr or result.stdout)[:200]!r}",
        )
        return self.facts

    def run(
        self, command: list[str], stdin: bytes | IO[bytes] = b"", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Return the result of `command` on the board, with `stdin` on its standard input.

        `stdin` is bytes, or a file that is read from its position.

        Raises:
            UnavailableError: the board cannot be reached or refuses the login; the message has the
                reason and the remedy.
            TransientError: the connection was lost, or the time is over.
        """
        line = [*self._ssh, "--", self.target.login, shlex.join(command)]
        input_: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
        try:
            completed = subprocess.run(
                line, capture_output=True, check=False, timeout=timeout_s, **input_
            )
        except subprocess.TimeoutExpired as error:
            raise TransientError(
                f"{self.target.login}: no result within {timeout_s:g} s: check the board's load "
                "and network, and run it again"
            ) from error
        output, errors = (
            content.decode(errors="replace") for content in (completed.stdout, completed.stderr)
        )
        if completed.returncode == LOST:
            raise self.why_lost(errors)
        return subprocess.CompletedProcess(command, completed.returncode, output, errors.strip())

    def start(self, command: list[str], output: IO[bytes]) -> interrupts.OwnedProcess[bytes]:
        """Start `command` on the board, with pipes for input and errors.

        It gets no Ctrl-C of this terminal.
        """
        line, pipe = [*self._ssh, "--", self.target.login, shlex.join(command)], subprocess.PIPE
        return interrupts.OwnedProcess(line, stdin=pipe, stdout=output, stderr=pipe)

    def why_lost(self, errors: str) -> EdgemeterError:
        """Return the error for ssh's output after it could not connect, or the connection ended."""
        target = self.target
        known_host = (
            target.host
            if target.port in {None, 22}
            else shlex.quote(f"[{target.host}]:{target.port}")
        )
        for reason, remedy in REMEDIES.items():
            if reason in errors:
                return UnavailableError(
                    f"{target.login}: "
                    f"{remedy.format(known_host=known_host, address=target.address)}"
                )
        return TransientError(
            f"{target.login}: {last_line(errors)}; try `ssh {target.address}` by hand, "
            "then run it again"
        )

    def check_root(self) -> None:
        """Check that programs run as root.

        Raises:
            UnavailableError: there is no permitted sudo.
            ConfigError: sudo's password is missing or refused.
        """
        login = self.target.login
        if self.facts.rights == "none":
            raise UnavailableError(
                f"{login} is not root and has no sudo: install sudo and allow this user to use "
                "it, or log in as root"
            )
        if self.facts.rights != "password":
            return
        remedy = "with --sudo-password-file FILE, or - to type it"
        if self._sudo_password is None:
            raise ConfigError(f"sudo needs a password for {login}: give it {remedy}")
        result = self.run([*_SUDO["password"], "true"], f"{self._sudo_password}\n".encode())
        if result.returncode != 0:
            raise ConfigError(
                f"sudo refuses the password of {login} ({last_line(result.stderr)}): give the "
                f"right one {remedy}, "
                f"or let the user use sudo (`adduser {self.target.user or 'USER'} sudo` "
                "as root there)"
            )

    def run_as_root(
        self, interpreter: list[str], program: bytes, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Return the result of `program`, which `interpreter` reads from standard input as root.

        A password is passed to sudo over standard input: no process list and no log shows it.
        """
        rights = self.facts.rights
        password = f"{self._sudo_password}\n".encode() if rights == "password" else b""
        return self.run(
            [*_SUDO[rights], "sh", "-c", _SKIP, "sh", *interpreter],
            password + _BEGIN + program,
            timeout_s,
        )

    def copied_bytes(self, file: Path, path: str) -> int:
        """Return how many bytes of `file` are at `path` on the board; 0 for another file, or none.

        Raises:
            UnavailableError: the folder there cannot be made or read.
        """
        result = self.run(["sh", "-c", _HASH, "sh", path], timeout_s=HASH_S)
        if result.returncode != 0:
            raise self._refused(path, result.stderr)
        # A login shell may have printed something before.
        match = re.search(r"^([0-9a-f]{64})\b.*\n *(\d+)$", result.stdout, re.MULTILINE)
        size_bytes = int(match[2]) if match else 0
        if (
            match is None
            or not 0 < size_bytes <= file.stat().st_size
            or _hash_of_start(file, size_bytes) != match[1]
        ):
            return 0
        return size_bytes

    def copy(self, file: Path, path: str, from_byte: int) -> None:
        """Copy `file` to `path` on the board from that byte on.

        Raises:
            UnavailableError: the file cannot be written.
            TransientError: the connection was lost, or the file arrived corrupted.
        """
        size_bytes = file.stat().st_size
        with file.open("rb") as content:
            content.seek(from_byte)
            result = self.run(
                ["sh", "-c", _WRITE, "sh", path, str(from_byte)],
                content,
                120 + size_bytes / SLOWEST_BYTES_PER_S,
            )
        if result.returncode != 0:
            raise self._refused(path, result.stderr)
        if self.copied_bytes(file, path) != size_bytes:
            raise TransientError(
                f"{self.target.login}: {path} arrived corrupted: run it again, and check the "
                "board's card and memory"
            )

    def _refused(self, path: str, errors: str) -> UnavailableError:
        remedy = "free some room there" if "No space left" in errors else "check its folder"
        return UnavailableError(
            f"{self.target.login}: cannot write "
            f"{path!r} ({errors[-300:] or 'no message'}); {remedy}"
        )


def _hash_of_start(path: Path, size_bytes: int) -> str:
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ) as start,
    ):
        return hashlib.sha256(start).hexdigest()
