"""Atomic file writes that survive a power cut."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.foreign_text import decode_json

Content = TypeVar("Content")


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write `content` to `path` atomically, synced when this returns.

    If root writes it, the file belongs to the owner of the folder.

    Raises:
        UnavailableError: the folder cannot be made or written, or the disk is full.
    """
    with os_error_as(
        UnavailableError,
        f"cannot write {str(path)!r}",
        "check its folder, its owner and the space on the disk",
    ):
        make_folder(path.parent)
        with replacing(path, mode) as file:
            file.write(content)


def read_struct(path: Path, kind: type[Content], label: str, remedy: str) -> Content | None:
    """Return the struct in the JSON file at `path`, or None if there is no file.

    `label` names it, `remedy` is for a damaged file.

    Raises:
        ConfigError: it cannot be read, or is damaged.
    """
    try:
        return decode_json(path.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"cannot read the {label} {str(path)!r}: {error.strerror}; correct "
            f"its permissions, or {remedy}"
        ) from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{label} {str(path)!r} is damaged ({error}): {remedy}") from error


def read_if_any(path: Path, kind: type[Content]) -> Content | None:
    """Return the struct in the JSON file at `path`.

    None if it is absent, unreadable or of another form.
    """
    try:
        return decode_json(path.read_bytes(), kind)
    except (OSError, msgspec.MsgspecError):
        return None


def check_writable(path: Path) -> None:
    """Check that a file can be written at `path`, before long work; nothing is created.

    Raises ConfigError if it cannot.
    """
    if path.is_dir():
        raise ConfigError(f"cannot write {str(path)!r}: it is a folder; give the path of a file")
    if not path.parent.is_dir():
        raise ConfigError(
            f"cannot write {str(path)!r}, because there is no folder {str(path.parent)!r}: "
            "create it, or give another path"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"cannot write {str(path)!r}: permission denied; give another path")


@contextmanager
def replacing(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path`, synced, when the block ends.

    If the block raises, `path` is unchanged.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    import tempfile  # noqa: PLC0415 - for those who write

    descriptor, temporary_name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            if os.geteuid() == 0:
                owner = path.parent.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            yield file
            file.flush()
            os.fsync(descriptor)
        Path(temporary_name).replace(path)
    except BaseException:
        Path(temporary_name).unlink(missing_ok=True)
        raise
    sync(path.parent)


def make_folder(path: Path, mode: int = 0o755) -> None:
    """Make a folder and its missing parents; root gives each to the owner of its parent.

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


def sync(path: Path) -> None:
    """Sync the file or folder at `path`; raises OSError if it cannot be opened, or its disk fails.

    Sync a folder after a rename in it: the rename alone may be lost in a power cut.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal; raises OSError if it cannot be read."""
    import hashlib  # noqa: PLC0415 - it brings OpenSSL

    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
