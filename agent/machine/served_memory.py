"""The processes and the memory of a server at an address of this machine.

The processes are the one that listens, and its descendants.

The kernel lists listening sockets in /proc/net/tcp and tcp6, and the open sockets of a process in
/proc/PID/fd, which only its user and root may read, and no sandboxed process. Source: Linux
Documentation/filesystems/proc.rst.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from edgemeter.agent.base.server_address import is_own, port_of
from edgemeter.agent.contract.record_figures import Memory

_LISTENS = "0A"
_HAS_ENDED = "Z"
_ANY_4, _ANY_6 = bytes(4), bytes(16)
_MAPPED = bytes(10) + b"\xff\xff"
# Programs that listen for a server elsewhere: in a container, behind a tunnel, at another port.
FORWARDERS = {
    "caddy", "docker-proxy", "envoy", "haproxy", "kubectl", "nginx", "pasta", "passt",
    "rootlessport", "slirp4netns", "socat", "ssh", "sshd", "systemd", "traefik", "wslrelay",
}  # fmt: skip
CONTAINER = "it may run in a container, or belong to another user"


def served_memory(url: str, proc: str = "/proc") -> tuple[Memory, str | None]:
    """Return the peak memory of the server at `url`, and why it is unknown, or None.

    The peaks of several processes are added, less the memory that they share now.
    """
    owners, unseen = _listeners(url, proc)
    return _memory_of(owners, unseen, proc) if owners else (Memory(peak_mb=None), unseen)


def served_processes(url: str, proc: str = "/proc") -> set[int]:
    """Return the processes of the server at `url`; empty if they are not visible."""
    owners, _ = _listeners(url, proc)
    return owners | _descendants(owners, proc)


def _listeners(url: str, proc: str) -> tuple[set[int], str]:
    """Return the processes that listen at `url`, and how a later failure's reason begins.

    If there are none, return none, and the reason.
    """
    address = urlsplit(url)
    if not address.hostname:
        return set(), "the address of the server is unknown"
    port = port_of(address)
    try:
        addresses = socket.getaddrinfo(address.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return set(), f"{address.hostname} has no address: {error.strerror}"
    unseen = f"the memory of the server at port {port} is not seen"
    # The order is that of a client's attempts.
    for family, _, _, _, (host, *_) in addresses:
        if inodes := _listening(family, str(host).partition("%")[0], port, proc):
            owners = _owners(inodes, proc)
            if owners and (server := _name(min(owners), proc)) in FORWARDERS:
                return set(), f"{unseen}: {server} passes its connections on"
            return owners, unseen if owners else f"{unseen}: {CONTAINER}"
    if any(is_own(family, str(host)) for family, _, _, _, (host, *_) in addresses):
        return set(), f"no process that is seen here listens at port {port}: {CONTAINER}"
    return set(), f"the server runs on {address.hostname}, whose memory is not seen from here"


def _listening(family: int, host: str, port: int, proc: str) -> set[str]:
    """Return the inodes of sockets that accept connections to an address of this machine.

    They are bound to it, or else to any address.
    """
    if not is_own(family, host):
        return set()
    exact = socket.inet_pton(family, host)
    by_address: dict[bytes, set[str]] = {}
    for local, local_port, inode in _sockets(proc):
        if local_port == port:
            by_address.setdefault(
                local.removeprefix(_MAPPED) if len(local) == 16 else local, set()
            ).add(inode)
    return next(
        (
            by_address[bound]
            for bound in (exact, _ANY_4 if len(exact) == 4 else _ANY_6, _ANY_6)
            if bound in by_address
        ),
        set(),
    )


def _sockets(proc: str) -> Iterator[tuple[bytes, int, str]]:
    """Yield address, port and inode of each listening socket.

    Words of an address have the byte order of this machine.
    """
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (Path(proc) / "net" / name).read_text().splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                words, _, port = local.partition(":")
                if state == _LISTENS:
                    packed = b"".join(
                        struct.pack("=I", int(words[at : at + 8], 16))
                        for at in range(0, len(words), 8)
                    )
                    yield packed, int(port, 16), inode


def _owners(inodes: set[str], proc: str) -> set[int]:
    names = {f"socket:[{inode}]" for inode in inodes}
    owners = set[int]()
    for folder in Path(proc).glob("[0-9]*"):
        with suppress(OSError):
            if any(str(file.readlink()) in names for file in (folder / "fd").iterdir()):
                owners.add(int(folder.name))
    return owners


def _memory_of(owners: set[int], unseen: str, proc: str) -> tuple[Memory, str | None]:
    processes = owners | _descendants(owners, proc)
    highest_mb = [_field_mb(number, "status", "VmHWM", proc) for number in processes]
    shared_mb = [_shared_mb(number, proc) for number in processes] if len(processes) > 1 else [0.0]
    if None in highest_mb or None in shared_mb:
        return Memory(
            peak_mb=None
        ), f"{unseen}: one of its processes has ended, or belongs to another user"
    return Memory(peak_mb=sum(filter(None, highest_mb)) - sum(filter(None, shared_mb))), None


def _shared_mb(number: int, proc: str) -> float | None:
    """Return the part of a process's memory that is also counted in others."""
    resident_mb, proportional_mb = (
        _field_mb(number, "smaps_rollup", field, proc) for field in ("Rss", "Pss")
    )
    return None if resident_mb is None or proportional_mb is None else resident_mb - proportional_mb


def _name(number: int, proc: str) -> str | None:
    with suppress(OSError):
        return (Path(proc) / str(number) / "comm").read_text().strip()
    return None


def _descendants(owners: set[int], proc: str) -> set[int]:
    parents: dict[int, int] = {}
    for folder in Path(proc).glob("[0-9]*"):
        with suppress(OSError):
            # The name in brackets may hold anything.
            state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if state != _HAS_ENDED:
                parents[int(folder.name)] = int(parent)
    below = set[int]()
    while (
        grown := {number for number, parent in parents.items() if parent in owners | below} - below
    ):
        below |= grown
    return below


def _field_mb(number: int, file: str, field: str, proc: str) -> float | None:
    with suppress(OSError):
        lines = (Path(proc) / str(number) / file).read_text().splitlines()
        return next(
            (int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{field}:")),
            None,
        )
    return None
