"""A connection to one device by the system's `ssh`: its agent, jump hosts and configuration are those that people already have.

All commands of a connection share one master (ControlMaster); nothing is asked on a terminal (BatchMode), and a silent line ends.
"""

import contextlib
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

from edgemeter.agent.errors import EdgemeterError, TransientError, UnavailableError

# ssh's own exit status when it could not connect or lost the connection.
LOST = 255
CONNECT_S = 10
# What ssh says, and what to do. The first that fits.
REMEDIES = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one known: if it was flashed anew, `ssh-keygen -R {host}`; else do not trust it",
    ),
    ("Host key verification failed", "its host key is not known here: connect once by hand, or use --host-keys accept-new"),
    ("Permission denied", "its login was refused: `ssh-copy-id {login}`, or name the key with --identity-file"),
    ("Too many authentication failures", "too many keys were tried: name the right one with --identity-file"),
    ("Could not resolve hostname", "its name is not known: correct `host` in fleet.toml, or give an address"),
    ("Connection refused", "nothing listens there: switch SSH on (`sudo systemctl enable --now ssh`), or correct `port`"),
    ("timed out", "it does not answer: is it switched on and on this network?"),
    ("No route to host", "it does not answer: is it switched on and on this network?"),
    ("Network is unreachable", "it cannot be reached from here: is this machine on its network?"),
    ("No such identity", "the key file is not there: correct --identity-file"),
)

HostKeys = Literal["accept-new", "strict"]


@dataclass(frozen=True, slots=True)
class Target:
    """A device and how to reach it; without `user` ssh's own configuration says who logs in."""

    name: str
    host: str
    user: str | None = None
    port: int | None = None

    @property
    def login(self) -> str:
        """Return what ssh is told: HOST or USER@HOST."""
        return f"{self.user}@{self.host}" if self.user else self.host


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How to log in; `more` are options as `ssh -o` takes them."""

    identity_file: Path | None = None
    host_keys: HostKeys = "accept-new"
    more: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments of ssh; ssh takes the first value of an option, so those of `more` hold against ours."""
        said = [f"-o{option}" for option in self.more]
        said += ["-oBatchMode=yes", f"-oConnectTimeout={CONNECT_S}", "-oServerAliveInterval=10", "-oServerAliveCountMax=3"]
        said.append(f"-oStrictHostKeyChecking={'accept-new' if self.host_keys == 'accept-new' else 'yes'}")
        if self.identity_file:
            said += ["-oIdentitiesOnly=yes", "-i", str(self.identity_file)]
        return said


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command on the device said."""

    status: int
    output: str
    complaint: str


class Connection:
    """Commands on one device over one master connection; a context."""

    def __init__(self, target: Target, options: SshOptions) -> None:
        if shutil.which("ssh") is None:
            message = "`ssh` is not installed here: install OpenSSH's client (Debian: `apt install openssh-client`)"
            raise UnavailableError(message)
        self.target = target
        # The path of a Unix socket may be 107 bytes long: it does not stand below whatever TMPDIR names.
        self._folder = tempfile.TemporaryDirectory(prefix="edgemeter-ssh-", dir="/tmp", ignore_cleanup_errors=True)
        shared = ["-oControlMaster=auto", f"-oControlPath={self._folder.name}/%C", "-oControlPersist=30"]
        port = ["-p", str(target.port)] if target.port else []
        self._arguments = [*options.arguments(), *shared, *port]

    def __enter__(self) -> "Connection":  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def run(self, command: list[str], said: bytes | BinaryIO = b"", timeout_s: float = 60.0) -> Answer:
        """Return what `command` answered on the device, given `said` (bytes, or a file from where it stands) on its standard input.

        Raises:
            UnavailableError: the device cannot be reached or refuses us; the message says why and what to do.
            TransientError: the connection was lost, or nothing came in time.
        """
        line = ["ssh", *self._arguments, "--", self.target.login, shlex.join(command)]
        given: dict[str, Any] = {"input": said} if isinstance(said, bytes) else {"stdin": said}
        try:
            done: subprocess.CompletedProcess[bytes] = subprocess.run(line, capture_output=True, check=False, timeout=timeout_s, **given)
        except subprocess.TimeoutExpired as error:
            message = f"{self.target.login}: no answer within {timeout_s:g} s: look at the board's load and network, and run it again"
            raise TransientError(message) from error
        output, complaint = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        if done.returncode == LOST:
            raise self._lost(complaint)
        return Answer(done.returncode, output, complaint.strip())

    def close(self) -> None:
        """End the master connection."""
        line = ["ssh", *self._arguments, "-O", "exit", "--", self.target.login]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(line, capture_output=True, check=False, timeout=CONNECT_S)
        self._folder.cleanup()

    def _lost(self, complaint: str) -> EdgemeterError:
        for said, remedy in REMEDIES:
            if said in complaint:
                advice = remedy.format(host=self.target.host, login=self.target.login)
                return UnavailableError(f"{self.target.login}: {advice}")
        last = complaint.strip().splitlines()[-1:] or ["ssh ended without a word"]
        return TransientError(f"{self.target.login}: {last[0][:300]}: try `ssh {self.target.login}` by hand, then run it again")
