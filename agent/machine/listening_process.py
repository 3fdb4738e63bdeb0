"""The memory of whatever listens at a port of this machine, as the kernel accounts for it: a server that is measured from outside.

The kernel names the sockets that listen in /proc/net/tcp and tcp6, and those that a process has open in /proc/PID/fd, which only its user
and root may read. Source: Linux Documentation/filesystems/proc.rst.
"""

import re
from collections.abc import Iterator
from pathlib import Path

_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def listening_memory_mb(port: int, proc: str = "/proc") -> tuple[float | None, str | None]:
    """Return the memory of the server at `port` in MB, else None and why.

    Of one process it is the highest since its start; where others work for it, their proportional shares (PSS) now, added up.
    """
    inodes = set(_inodes(port, proc))
    if not inodes:
        return None, f"no process of this machine listens at port {port}"
    owners, is_refused = set[int](), False
    for folder in Path(proc).glob("[0-9]*"):
        try:
            if inodes & {match[1] for file in (folder / "fd").iterdir() if (match := _SOCKET.fullmatch(str(file.readlink())))}:
                owners.add(int(folder.name))
        except PermissionError:
            is_refused = True
        except OSError:
            continue
    if not owners:
        return None, "the server belongs to another user or container" if is_refused else "no process has the server's socket open"
    processes = owners | _descendants(owners, proc)
    sizes_mb = [_field_mb(number, "status", "VmHWM", proc) for number in processes]
    if len(processes) > 1:
        sizes_mb = [_field_mb(number, "smaps_rollup", "Pss", proc) for number in processes]
    reported_mb = [size_mb for size_mb in sizes_mb if size_mb is not None]
    if len(reported_mb) < len(processes):
        return None, "the kernel does not state the memory of the server's processes to this user"
    return sum(reported_mb), None


def _inodes(port: int, proc: str) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (Path(proc) / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                yield inode


def _descendants(owners: set[int], proc: str) -> set[int]:
    parents: dict[int, int] = {}
    for folder in Path(proc).glob("[0-9]*"):
        try:
            # The name in brackets may hold anything.
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    below = set[int]()
    while grown := {number for number, parent in parents.items() if parent in owners | below} - below:
        below |= grown
    return below


def _field_mb(number: int, file: str, field: str, proc: str) -> float | None:
    try:
        lines = (Path(proc) / str(number) / file).read_text().splitlines()
    except OSError:
        return None
    value = next((line.split()[1] for line in lines if line.startswith(f"{field}:")), None)
    return None if value is None else int(value) * 1024 / 1e6
