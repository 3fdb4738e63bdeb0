"""The file system of a folder: whether a lock on a file in it keeps other processes out.

Sources: proc_pid_mountinfo(5); nfs(5), `nolock` and `local_lock`; mount.cifs(8), `nobrl`; sqlite.org/lockingv3.html.
"""

import contextlib
import errno
import fcntl
import os
import tempfile
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
# Options with which locks are known to one machine only, by file system; sshfs has no others.
_LOCAL_LOCKS = {
    "nfs": {"nolock", "local_lock=all", "local_lock=posix"},
    "nfs4": {"local_lock=all", "local_lock=posix"},
    "cifs": {"nobrl", "nolock"},
    "smb3": {"nobrl", "nolock"},
}


def shared_without_locks(folder: Path) -> str | None:
    """Return the file system of `folder` in words if other machines may use it and its locks do not reach them, else None.

    That of a folder to be made is its parent's. The root of a board that boots over the network is its own.
    """
    device = next(existing for existing in (folder.absolute(), *folder.absolute().parents) if existing.exists()).stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            mount, _, about = line.partition(" - ")
            kind, _, options = about.partition(" ")
            fields = mount.split()
            if fields[2] != number or fields[4] == "/":
                continue
            local = sorted(_LOCAL_LOCKS.get(kind, set()).intersection(options.rpartition(" ")[2].split(",")))
            return "sshfs" if kind == "fuse.sshfs" else f"{kind} with {local[0]}" if local else None
    return None


def refuses_locks(folder: Path) -> bool:
    """Return whether no file in `folder` can be locked: a network file system whose lock service does not answer."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in {errno.ENOLCK, errno.EOPNOTSUPP}
    return False
