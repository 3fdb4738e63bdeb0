"""The values of `--on`: a selection of the fleet's devices, or one board as `ssh://[USER@]HOST[:PORT]`."""

import ipaddress
import re
from dataclasses import dataclass
from typing import TypeAlias

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.apply.ssh import SshTarget
from edgemeter.provisioning.inventory import selection

SCHEME = "ssh://"
FORM = "write ssh://USER@HOST, ssh://HOST:PORT or ssh://USER@[IPV6]:PORT"
# No user and no host begins with a dash: ssh would take it for an option.
_LOGIN = re.compile(r"(?:(?P<user>[^@]*)@)?(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]@]*))(?::(?P<port>[^:]*))?")
_USER, _HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\\-]*\$?"), re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_ANY_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """Devices of the fleet, by a selection as other commands take it."""

    selection: str


Target: TypeAlias = FleetTarget | SshTarget


def parse_target(text: str) -> Target:
    """Return the target in a value of `--on`; raises ConfigError, with the form to write, if it is neither."""
    scheme = _ANY_SCHEME.match(text)
    if scheme is None:
        selection.parse(text)
        return FleetTarget(text)
    if scheme[0].lower() != SCHEME:
        raise ConfigError(f"--on {text!r}: {scheme[0]} is not supported; {FORM}, or name a device of the fleet")
    return _ssh_target(text, text[len(SCHEME) :])


def _ssh_target(text: str, login: str) -> SshTarget:
    login = login.removesuffix("/")
    if any(char in login for char in "/?#"):
        raise ConfigError(f"--on {text!r}: a path has no meaning here, since every measurement has a folder of its own; {FORM}")
    parts = _LOGIN.fullmatch(login)
    if parts is None:
        raise ConfigError(f"--on {text!r} is not an address (put an IPv6 address in brackets); {FORM}")
    user, port = parts["user"], parts["port"]
    if user is not None and ":" in user:
        raise ConfigError(f"--on 'ssh://...@{parts['host'] or parts['v6']}': passwords are rejected; use a key (`ssh-copy-id`), and {FORM}")
    if user is not None and not _USER.fullmatch(user):
        raise ConfigError(f"--on {text!r}: {user!r} is not a user's name; {FORM}")
    host = _ipv6(text, parts["v6"]) if parts["v6"] is not None else parts["host"]
    if parts["v6"] is None and not _HOST.fullmatch(host):
        raise ConfigError(f"--on {text!r}: {host!r} is not a host; {FORM}")
    return SshTarget(host, host, user, None if port is None else _port(text, port))


def _ipv6(text: str, address: str) -> str:
    try:
        ipaddress.IPv6Address(address)
    except ValueError as error:
        raise ConfigError(f"--on {text!r}: {address!r} is not an IPv6 address; {FORM}") from error
    return address


def _port(text: str, port: str) -> int:
    if not (port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536):
        raise ConfigError(f"--on {text!r}: {port!r} is not a port (1 to 65535); {FORM}")
    return int(port)
