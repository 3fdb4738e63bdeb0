"""The join file: what a device needs to join a fleet, once. Its secrets are wiped from the card when they have served."""

import os
import re
from pathlib import Path

import msgspec

from edgemeter.agent import durable_file
from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.records import Name

_FILLER = b"x"
# Keys whose values are secrets; a value is a string on one line, as `text` and people write it.
_SECRET = re.compile(rb"""^([ \t]*(?:token|psk|password|passphrase)[ \t]*=[ \t]*)("(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*')""", re.MULTILINE)
_LINE = re.compile(rb"^[ \t]*(?:token|psk|password|passphrase)[ \t]*=.*(?:\r?\n|\Z)", re.MULTILINE)


class JoinFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file says; `enrol` is the broker for those that have `token` and no certificate, `wifi` is for the first boot."""

    fleet: Name
    device: Name | None = None
    broker: str
    enrol: str
    ca: str
    token: str | None = None
    content_url: str | None = None
    wifi: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"JoinFile(fleet={self.fleet!r}, device={self.device!r}, broker={self.broker!r})"


def read(path: Path) -> JoinFile:
    """Return what stands in `path`.

    Raises:
        ConfigError: it cannot be read, or has a wrong or unknown key; no value of it is repeated.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=JoinFile)
    except OSError as error:
        message = f"cannot read the join file {str(path)!r} ({error.strerror}): `edgemeter fleet token DEVICE` writes one"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"join file {str(path)!r}: {error}: write it anew with `edgemeter fleet token DEVICE`"
        raise ConfigError(message) from error


def text(join: JoinFile) -> str:
    """Return the file's text."""
    lines = [
        f"{name} = {_quoted(value)}"
        for name in ("fleet", "device", "broker", "enrol", "content_url", "token")
        if (value := getattr(join, name))
    ]
    lines.append(f"ca = '''\n{join.ca.strip()}\n'''")
    if join.wifi:
        lines += ["", "[wifi]", *(f"{name} = {_quoted(value)}" for name, value in join.wifi.items())]
    return "\n".join([*lines, ""])


def wipe(path: Path) -> bool:
    """Overwrite the secrets in `path` where they stand on the disk, then take their lines out; return whether there were any.

    A file system may still hold copies elsewhere (flash moves what is rewritten): the token serves nobody after it has served.

    Raises:
        UnavailableError: the file cannot be written: its medium is read-only, or belongs to somebody else.
    """
    try:
        held = path.read_bytes()
        if not _LINE.search(held):
            return False
        filled = _SECRET.sub(lambda found: found[1] + found[2][:1] + _FILLER * (len(found[2]) - 2) + found[2][-1:], held)
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, filled, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        message = f"cannot wipe the secrets from {str(path)!r} ({error.strerror}): make its medium writable, or delete it yourself"
        raise UnavailableError(message) from error
    durable_file.write(path, _LINE.sub(b"", filled))
    return True


def _quoted(value: str) -> str:
    # A JSON string is a TOML basic string, but for the one control character that JSON leaves as it is.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
