"""A connection to one device by the system's `ssh`, and files copied over it.

Kept by hand over the system's client: its agent, jump hosts and configuration are those that people already have. All commands of a
connection share one master (ControlMaster); nothing is asked on a terminal (BatchMode), and a silent line ends.
Copying: what is there already is known by its hash, what is there in part is continued, all is compared at the end.
"""

import contextlib
import hashlib
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from edgemeter.agent.base.errors import EdgemeterError, TransientError, UnavailableError

# ssh's own exit status when it could not connect or lost the connection.
LOST = 255
CONNECT_S = 10

# What ssh prints, and what to do: the first that matches. The options and keys are those of `fleet apply`.
REMEDIES = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": (
        "its host key has changed: if the board was reinstalled, `ssh-keygen -R {known_host}`; otherwise do not trust it"
    ),
    "Host key verification failed": "its host key is unknown: connect once by hand (`ssh {address}`), or use --host-keys accept-new",
    "Permission denied": "the login was refused: `ssh-copy-id {address}`, or name the key in ~/.ssh/config, or with --identity-file",
    "Too many authentication failures": "too many keys were tried: give the right one with --identity-file",
    "Could not resolve hostname": "the host name is unknown: correct it (`host` in fleet.toml), or give an address",
    "Connection refused": "nothing listens there: enable SSH (`sudo systemctl enable --now ssh`), or correct `port`",
    "timed out": "it does not respond: is it switched on and on this network?",
    "No route to host": "it does not respond: is it switched on and on this network?",
    "Network is unreachable": "it cannot be reached from here: is this machine on its network?",
    "No such identity": "the key file does not exist: correct --identity-file",
}

HostKeys = Literal["accept-new", "strict"]
# The slowest line on which a file still counts as moving.
SLOWEST_BYTES_PER_S = 20_000
HASH_S = 600.0
_LIST = Path(__file__).with_name("list_files.sh")
_WRITE = 'umask 077; cd "$1" && mkdir -p "$(dirname "$2")" && if [ "$3" = 0 ]; then cat > "$2"; else cat >> "$2"; fi'


@dataclass(frozen=True, slots=True)
class SshTarget:
    """A device and how to reach it; without `user` ssh's own configuration applies."""

    name: str
    host: str
    user: str | None = None
    port: int | None = None

    @property
    def login(self) -> str:
        """Return HOST or USER@HOST."""
        return f"{self.user}@{self.host}" if self.user else self.host

    @property
    def address(self) -> str:
        """Return it as arguments of ssh and ssh-copy-id."""
        return f"-p {self.port} {self.login}" if self.port else self.login

    @property
    def known_host(self) -> str:
        """Return the host as ssh's list of known hosts names it, as a word of a command."""
        return shlex.quote(f"[{self.host}]:{self.port}") if self.port not in {None, 22} else self.host


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How to log in; `more` are options as `ssh -o` takes them."""

    identity_file: Path | None = None
    host_keys: HostKeys = "accept-new"
    more: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments of ssh; ssh takes the first value of an option, so those of `more` take precedence."""
        return [
            *(f"-o{option}" for option in self.more),
            *("-oBatchMode=yes", f"-oConnectTimeout={CONNECT_S}", "-oServerAliveInterval=10", "-oServerAliveCountMax=3"),
            f"-oStrictHostKeyChecking={'accept-new' if self.host_keys == 'accept-new' else 'yes'}",
            *(["-oIdentitiesOnly=yes", "-i", str(self.identity_file)] if self.identity_file else []),
        ]


class SshConnection(contextlib.AbstractContextManager["SshConnection"]):
    """Commands on one device over one master connection, which ends with the `with` block."""

    def __init__(self, target: SshTarget, options: SshOptions, remedies: Mapping[str, str] = REMEDIES) -> None:
        if shutil.which("ssh") is None:
            raise UnavailableError("`ssh` is not installed here: install OpenSSH's client (Debian: `apt install openssh-client`)")
        self.target, self._remedies = target, remedies
        # The path of a Unix socket is limited to 107 bytes: it is not below TMPDIR, which may be long.
        self._folder = tempfile.TemporaryDirectory(prefix="edgemeter-ssh-", dir="/tmp", ignore_cleanup_errors=True)
        shared = ["-oControlMaster=auto", f"-oControlPath={self._folder.name}/%C", "-oControlPersist=30"]
        port = ["-p", str(target.port)] if target.port else []
        self._arguments = [*options.arguments(), *shared, *port]

    def __exit__(self, *_: object) -> None:
        line = ["ssh", *self._arguments, "-O", "exit", "--", self.target.login]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(line, capture_output=True, check=False, timeout=CONNECT_S)
        self._folder.cleanup()

    def run(self, command: list[str], stdin: bytes | BinaryIO = b"", timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Return the result of `command` on the device, with `stdin` (bytes, or a file from its position) on its standard input.

        Raises:
            UnavailableError: the device cannot be reached or refuses us; the message states why and what to do.
            TransientError: the connection was lost, or nothing came in time.
        """
        line = ["ssh", *self._arguments, "--", self.target.login, shlex.join(command)]
        input_: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
        try:
            completed: subprocess.CompletedProcess[bytes] = subprocess.run(
                line, capture_output=True, check=False, timeout=timeout_s, **input_
            )
        except subprocess.TimeoutExpired as error:
            raise TransientError(
                f"{self.target.login}: no result within {timeout_s:g} s: check the board's load and network, and run it again"
            ) from error
        output, errors = (content.decode(errors="replace") for content in (completed.stdout, completed.stderr))
        if completed.returncode == LOST:
            raise self.why_lost(errors)
        return subprocess.CompletedProcess(command, completed.returncode, output, errors.strip())

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start `command` on the device, with pipes; it gets no Ctrl-C of this terminal."""
        line = ["ssh", *self._arguments, "--", self.target.login, shlex.join(command)]
        pipe = subprocess.PIPE
        return subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)

    def why_lost(self, errors: str) -> EdgemeterError:
        """Return the error for what ssh printed when it could not connect, or the connection ended."""
        for reason, remedy in self._remedies.items():
            if reason in errors:
                advice = remedy.format(known_host=self.target.known_host, address=self.target.address)
                return UnavailableError(f"{self.target.login}: {advice}")
        message = last_line(errors, 300, "ssh ended without a message")
        return TransientError(f"{self.target.login}: {message}; try `ssh {self.target.address}` by hand, then run it again")


def last_line(text: str, length: int, otherwise: str = "no message") -> str:
    """Return the last line of what a program printed, cut to `length`."""
    return (text.strip().splitlines() or [otherwise])[-1][:length]


@dataclass(frozen=True, slots=True)
class FileToCopy:
    """A file here, and its name in the device's folder."""

    path: Path
    name: str
    sha256: str
    size_bytes: int


def missing_files(
    connection: SshConnection, folder: str, files: Sequence[FileToCopy], root: str = "/"
) -> list[tuple[FileToCopy, int, int]]:
    """Return what `folder` there lacks: each file, from which byte on, how many; raises UnavailableError if it cannot be used.

    It is made below `root`, which is not: once that is removed, nothing is copied into it.
    """
    result = connection.run(["sh", "-s", "--", root, folder, *(file.name for file in files)], _LIST.read_bytes(), HASH_S)
    if result.returncode != 0:
        raise _refused(connection, f"cannot use {folder!r}", result.stderr)
    # A login shell may have printed something of its own before.
    listed = (re.fullmatch(r"([0-9a-f]{64}) (\d+) (.+)", line) for line in result.stdout.splitlines())
    present = {match[3]: (match[1], int(match[2])) for match in listed if match}
    missing = []
    for file in files:
        sha256, size_bytes = present.get(file.name, ("", 0))
        if (sha256, size_bytes) != (file.sha256, file.size_bytes):
            is_begun = 0 < size_bytes < file.size_bytes and _hash_of_start(file.path, size_bytes) == sha256
            offset = size_bytes if is_begun else 0
            missing.append((file, offset, file.size_bytes - offset))
    return missing


def copy_files(
    connection: SshConnection, folder: str, files: Sequence[FileToCopy], report: Callable[[int, int], None], root: str = "/"
) -> int:
    """Copy what is missing into `folder` below `root`, and return how many bytes that were; `report` gets the copied and the total bytes.

    Raises:
        UnavailableError: there is no space, or no permission to write.
        TransientError: the connection was lost, or a file arrived corrupted twice.
    """
    total_bytes = 0
    for _attempt in (1, 2):
        missing = missing_files(connection, folder, files, root)
        if not missing:
            return total_bytes
        to_copy_bytes, copied_bytes = sum(size_bytes for _, _, size_bytes in missing), 0
        for file, offset, size_bytes in missing:
            report(copied_bytes, to_copy_bytes)
            _send_file(connection, root, f"{folder}/{file.name}", file, offset)
            copied_bytes += size_bytes
        total_bytes += copied_bytes
    names = ", ".join(file.name for file, _, _ in missing_files(connection, folder, files, root))
    if names:
        raise TransientError(f"{connection.target.login}: {names} arrived corrupted twice; check the board's card and memory")
    return total_bytes


def _send_file(connection: SshConnection, root: str, path: str, file: FileToCopy, offset: int) -> None:
    with file.path.open("rb") as content:
        content.seek(offset)
        command = ["sh", "-c", _WRITE, "sh", root, path, str(offset)]
        result = connection.run(command, content, 120 + file.size_bytes / SLOWEST_BYTES_PER_S)
    if result.returncode != 0:
        raise _refused(connection, f"cannot write {path!r}", result.stderr)


def _hash_of_start(path: Path, size_bytes: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size_bytes and (block := file.read(min(size_bytes, 1 << 20))):
            digest.update(block)
            size_bytes -= len(block)
    return digest.hexdigest()


def _refused(connection: SshConnection, problem: str, errors: str) -> UnavailableError:
    remedy = "free some room there" if "No space left" in errors else "check that folder"
    return UnavailableError(f"{connection.target.login}: {problem} ({errors[-300:] or 'no message'}); {remedy}")
