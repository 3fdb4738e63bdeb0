"""Writes the archive of a data set."""

import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.data_archive import is_plain

PIECE_BYTES = 1 << 20
_MODE = stat.S_IFREG | 0o644
_UNIX = 3


class ArchiveTarget(Protocol):
    """The destination of an archive, written from its beginning to its end."""

    def write(self, content: bytes, /) -> int:
        """Take the next bytes, and return how many."""

    def flush(self) -> None:
        """Hold nothing back."""

    def close(self) -> None:
        """Take nothing more; an archive does not call it."""


def write(files: Mapping[str, Path], target: ArchiveTarget) -> None:
    """Write the archive of these files, by their names in it.

    Raises:
        ConfigError: a file cannot be read, or its name is none for an archive.
        OSError: `target` cannot be written.
    """
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            if not is_plain(name):
                raise ConfigError(
                    f"{name!r} cannot be in an archive of photographs: rename it (UTF-8, no control characters, no name above 255 bytes)"
                )
            _put_in(archive, name, files[name])


def _put_in(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    # The date is zip's first, the mode always the same: nothing but names and bytes makes one archive another.
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = _UNIX, _MODE << 16
    try:
        source = path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error
    with source:
        info.file_size = path.stat().st_size
        with archive.open(info, "w") as target:
            while chunk := _read(source, path):
                target.write(chunk)


def _read(source: IO[bytes], path: Path) -> bytes:
    try:
        return source.read(PIECE_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot read {str(path)!r}: {error.strerror}")
