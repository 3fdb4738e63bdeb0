"""Files that are there whole or not at all, whenever the power goes."""

import os
import tempfile
from pathlib import Path

from edgemeter.agent.errors import UnavailableError


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Put `content` at `path` in one step, on the disk when this returns; root gives it to whoever owns the folder.

    Raises:
        UnavailableError: the folder cannot be made or written, or the disk is full.
    """
    try:
        make_folder(path.parent)
        descriptor, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                _give_to_owner(descriptor, path.parent)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            Path(made).replace(path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        message = f"cannot write {str(path)!r} ({error.strerror}): check its folder, its owner and the space on the disk"
        raise UnavailableError(message) from error


def make_folder(path: Path, mode: int = 0o755) -> None:
    """Make a folder that is not there, and those above it; root gives it to whoever owns the one above.

    Raises:
        OSError: it cannot be made.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    if os.geteuid() == 0:
        above = path.parent.stat()
        os.chown(path, above.st_uid, above.st_gid)


def sync_folder(folder: Path) -> None:
    """Return when what was renamed in `folder` is on the disk: a rename alone may be lost with the power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_to_owner(descriptor: int, folder: Path) -> None:
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
