"""A root of its own for this process, where the kernel has no Landlock: the granted files and folders alone, in a mount namespace.

An ordinary user makes it in a user namespace, with the same ids. Its user namespace also keeps the process from others of the same user in
/proc. Needs no more than kernels from 4.9 on have. Source: user_namespaces(7), mount_namespaces(7), pivot_root(2), proc_pid_mountinfo(5).
"""

import ctypes
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.sandbox import seccomp

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 32, 4096, 16384, 1 << 18
_DETACH = 2
_FLAGS = {"ro": _READ_ONLY, "nosuid": _NO_SETUID, "nodev": _NO_DEVICES, "noexec": _NO_PROGRAMS}
_HOST = "/.edgemeter-host"
_LINKS = 40

READ = _READ_ONLY | _NO_SETUID | _NO_DEVICES
# What is opened for writing there are the nodes: no file comes into being beside them.
DEVICE = _READ_ONLY | _NO_SETUID | _NO_PROGRAMS
WRITE = _NO_SETUID | _NO_DEVICES

_libc = ctypes.CDLL(None, use_errno=True)


def restrict(paths: Iterable[tuple[str, int]], scratch: str) -> bool:
    """Give this process a root that has these paths alone, each as `READ`, `DEVICE` or `WRITE`; its working directory may then be empty.

    Call it before there are threads, and while the process has the right to fork. `scratch` is a folder. Absent paths are left out, links
    on the way to the others are kept; of two grants for one path the later counts. Afterwards the process has capabilities to drop.

    Returns:
        Whether it has: not where namespaces, or mounts in them, are refused.

    Raises:
        MeasurementError: the root could not be completed.
    """
    links: dict[str, str] = {}
    granted = {_resolved(path, links): flags for path, flags in paths}
    granted.pop("/", None)
    try:
        folder = os.getcwd()  # noqa: PTH109 - as text
    except OSError:
        folder = "/"
    if not (_enter() and _pivot(scratch)):
        return False
    try:
        _bind(granted)
        for link, target in links.items():
            if not os.path.lexists(link):
                Path(link).parent.mkdir(parents=True, exist_ok=True)
                Path(link).symlink_to(target)
        Path(folder).mkdir(parents=True, exist_ok=True)
        mounted = Path(f"{_HOST}/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        os.chdir(folder)
        _checked(_libc.umount2(os.fsencode(_HOST), _DETACH), _HOST)
        Path(_HOST).rmdir()
        _close(mounted, granted)
    except OSError as error:
        raise MeasurementError(f"the sandbox's own root could not be made: {error}; no model runs without it on this kernel") from error
    return True


def _resolved(path: str, links: dict[str, str]) -> str:
    """Return the path without links; those on its way are added to `links`, each with its target."""
    current, parts = "/", os.path.abspath(path).split("/")[::-1]  # noqa: PTH100 - `..` of the text, as everywhere
    followed = 0
    while parts:
        if (part := parts.pop()) == "..":
            current = os.path.dirname(current)  # noqa: PTH120 - as text
        elif part not in {"", "."}:
            step = f"{current.rstrip('/')}/{part}"
            if followed < _LINKS and os.path.islink(step):  # noqa: PTH114 - as text
                followed += 1
                links[step] = target = os.readlink(step)  # noqa: PTH115 - as text
                parts += target.split("/")[::-1]
                current = "/" if target.startswith("/") else current
            else:
                current = step
    return current


def _enter() -> bool:
    """Enter namespaces of users and mounts; as root, where there are none of users, of mounts alone."""
    user, group = os.geteuid(), os.getegid()
    # Only from outside, and only by root, are further ids mapped: it reads, as before, what belongs to others.
    waiting, entered = os.pipe()
    helper = os.fork() if user == 0 else None
    if helper == 0:
        identical = [
            re.sub(r"(\d+) +\d+ +(\d+)", r"\1 \1 \2", Path(f"/proc/self/{name}").read_text("ascii")) for name in ("uid_map", "gid_map")
        ]
        os._exit(0 if os.read(waiting, 1) == b"1" and _map(str(os.getppid()), *identical) else 1)
    is_entered = _libc.unshare(_NEW_USER | _NEW_MOUNTS) == 0
    os.write(entered, b"1" if is_entered else b"0")
    is_mapped = helper is not None and os.waitpid(helper, 0)[1] == 0
    os.close(waiting)
    os.close(entered)
    if not is_entered:
        return bool(_libc.unshare(_NEW_MOUNTS) == 0)
    return is_mapped or _map("self", f"{user} {user} 1", f"{group} {group} 1")


def _map(process: str, users: str, groups: str) -> bool:
    """Map the ids of the process's user namespace; return whether that was allowed."""
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
            Path(f"/proc/{process}/{name}").write_text(text, encoding="ascii")
    except OSError:
        return False
    return True


def _pivot(folder: str) -> bool:
    """Make an empty root, with the former one in it at `_HOST`; `folder` is where it is mounted first. Return whether that was allowed."""
    try:
        _mount("none", "/", _RECURSIVE | _PRIVATE)
        _mount("tmpfs", folder, WRITE, "tmpfs", "mode=0755,size=1m")
    except OSError:
        return False
    try:
        (Path(folder) / _HOST[1:]).mkdir()
        _checked(_libc.syscall(ctypes.c_long(seccomp.number("pivot_root")), os.fsencode(folder), os.fsencode(folder + _HOST)), folder)
        os.chdir("/")
    except OSError:
        # The root of an initial RAM disk, or of chroot, cannot be exchanged.
        _libc.umount2(os.fsencode(folder), _DETACH)
        return False
    return True


def _bind(granted: Mapping[str, int]) -> None:
    """Show in the new root what is granted; what lies in a folder with the same grant, or one that may be written, is there already."""
    for path in sorted(granted):
        above = next(_grants_above(path, granted), None)
        # Absent, or not to be looked up by this user: then there is nothing to show.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            if above in {granted[path], WRITE}:
                continue
            mode = os.lstat(_HOST + path).st_mode
            if stat.S_ISLNK(mode):
                # A link to itself.
                continue
            is_folder = stat.S_ISDIR(mode)
            if above is None:
                (Path(path) if is_folder else Path(path).parent).mkdir(parents=True, exist_ok=True)
                if not is_folder:
                    Path(path).touch()
            _mount(_HOST + path, path, _BIND | _RECURSIVE)


def _close(mounted: str, granted: Mapping[str, int]) -> None:
    """Give each mount the flags of the grant that it lies in; what is in none, and the root itself, is read-only. Locked flags stay."""
    for line in mounted.splitlines():
        _, _, _, _, point, options, *_ = line.split(" ")
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), point)
        if point == _HOST or point.startswith(f"{_HOST}/"):
            continue
        flags = granted.get(point, next(_grants_above(point, granted), READ))
        for option in options.split(","):
            flags |= _FLAGS.get(option, 0)
        # What this user may not even look up, it does not reach.
        with suppress(PermissionError):
            _mount("none", point, _REMOUNT | _BIND | flags)


def _grants_above(path: str, granted: Mapping[str, int]) -> Iterator[int]:
    return (granted[folder] for folder in map(str, PurePosixPath(path).parents) if folder in granted)


def _mount(source: str, target: str, flags: int, kind: str | None = None, options: str | None = None) -> None:
    texts = (os.fsencode(source), os.fsencode(target), os.fsencode(kind) if kind else None)
    _checked(_libc.mount(*texts, ctypes.c_ulong(flags), os.fsencode(options) if options else None), target)


def _checked(returned: int, path: str) -> None:
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
