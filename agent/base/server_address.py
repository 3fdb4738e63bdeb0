"""The address of a model server, and whether it is on this machine.

The module has the keys of the server's file and the parts of its URL.
"""

import ipaddress
import socket
from contextlib import suppress
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import msgspec

from edgemeter.agent.base.errors import ConfigError

_SCHEMES = ("http", "https")


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address and options of a server: the keys shared by the files of all servers."""

    url: str
    api_key_file: str | None = None
    ca_file: str | None = None
    headers: dict[str, str] = {}
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0


def address_parts(url: str) -> SplitResult:
    """Return the parts of a server's URL.

    Raises:
        ConfigError: it is invalid, or would put a password into every record.
    """
    try:
        parts = urlsplit(url)
        is_address = bool(
            parts.hostname
            and parts.scheme in _SCHEMES
            and port_of(parts)
            and not parts.query
            and not parts.fragment
        )
    except ValueError:
        is_address = False
    if is_address and "@" not in parts.netloc:
        return parts
    before, at, behind = url.rpartition("@")
    visible = f"{before.partition('://')[0]}://...@{behind}" if at else url
    raise ConfigError(
        f"{visible!r} is not the address of a server: give http://HOST:PORT or https://HOST "
        "(without user and password)"
    )


def port_of(parts: SplitResult) -> int:
    """Return the port of an address, by default that of its scheme.

    Raises:
        ValueError: it is not a number.
    """
    return parts.port or (443 if parts.scheme == "https" else 80)


def is_own(family: int, host: str) -> bool:
    """Return whether an IP address is one of this machine.

    Then a connection to it has the same source address. No packet is sent.
    """
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as datagrams:
        # A sandbox forbids bind.
        datagrams.connect((host, 9))
        local, remote = datagrams.getsockname()[0], datagrams.getpeername()[0]
        return bool(local == remote or ipaddress.ip_address(remote).is_loopback)
    return False


def is_on_this_machine(url: str) -> bool | None:
    """Return whether the server at an address runs on this machine.

    None if its name has no address, or several that differ in that.
    """
    parts = address_parts(url)
    try:
        addresses = socket.getaddrinfo(parts.hostname, port_of(parts), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    are_own = {is_own(family, str(address[0])) for family, _, _, _, address in addresses}
    return are_own.pop() if len(are_own) == 1 else None
