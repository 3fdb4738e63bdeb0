"""An image file or a card, read and written at byte offsets; without root, loop devices or mounts."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError

Access = Literal["read", "write"]
# How files begin that hold an image but are none. Source: the formats' own specifications.
WRAPPED = (
    (b"\xfd7zXZ\x00", "xz -d"),
    (b"\x1f\x8b", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "zstd -d"),
    (b"PK\x03\x04", "unzip"),
    (b"BZh", "bunzip2"),
    (b"QFI\xfb", "qemu-img convert -O raw"),
)


class Disk:
    """One open image; an error of the medium says at which byte."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size_bytes = os.lseek(descriptor, 0, os.SEEK_END)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return `size_bytes` from `offset` on; fewer at the end of the image.

        Raises:
            UnavailableError: the medium cannot be read there.
        """
        parts = []
        while size_bytes > 0:
            try:
                part = os.pread(self._descriptor, size_bytes, offset)
            except OSError as error:
                message = f"cannot read byte {offset:,} of {str(self.path)!r}: {error.strerror}; try another card or reader"
                raise UnavailableError(message) from error
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size_bytes -= len(part)
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        """Write `data` at `offset`.

        Raises:
            UnavailableError: the medium does not take it.
        """
        view = memoryview(data)
        while view:
            try:
                written = os.pwrite(self._descriptor, view, offset)
            except OSError as error:
                message = f"cannot write byte {offset:,} of {str(self.path)!r}: {error.strerror}; prepare it again, or try another card"
                raise UnavailableError(message) from error
            view = view[written:]
            offset += written

    def sync(self) -> None:
        """Wait until everything written is on the medium, and forget what is cached of it, so that it is read from there.

        Raises:
            UnavailableError: the medium did not take it.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            message = f"{str(self.path)!r} did not take what was written: {error.strerror}; try another card"
            raise UnavailableError(message) from error
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a disk: a partition, or all of it."""

    disk: Disk
    start: int
    size_bytes: int

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of this part."""
        return self.disk.read(self.start + offset, min(size_bytes, max(self.size_bytes - offset, 0)))

    def write(self, offset: int, data: bytes) -> None:
        """Write within this part; writing beyond it is a fault of the caller.

        Raises:
            ValueError: it would reach beyond the part.
        """
        if offset < 0 or offset + len(data) > self.size_bytes:
            message = f"bytes {offset} to {offset + len(data)} lie outside the {self.size_bytes} of the partition"
            raise ValueError(message)
        self.disk.write(self.start + offset, data)


@contextlib.contextmanager
def opened(path: Path, access: Access) -> Iterator[Disk]:
    """Open the image or card at `path`; for writing, nobody else may have it mounted or write to it.

    Raises:
        ConfigError: it is not there, not to be read or written, or compressed.
        TransientError: it is mounted or another command writes to it.
    """
    flags = (os.O_RDWR if access == "write" else os.O_RDONLY) | os.O_CLOEXEC
    try:
        # On a block device O_EXCL refuses while any of its partitions is mounted.
        is_block = stat.S_ISBLK(path.stat().st_mode)
        descriptor = os.open(path, flags | (os.O_EXCL if is_block and access == "write" else 0))
    except OSError as error:
        if error.errno == 16:  # EBUSY
            message = f"{str(path)!r} is mounted: unmount it, or name the folder of its boot partition instead"
            raise TransientError(message) from error
        message = (
            f"cannot open the image {str(path)!r} to {access}: {error.strerror}; give a raw image, a card or a boot partition's folder"
        )
        raise ConfigError(message) from error
    try:
        if access == "write":
            _lock(path, descriptor)
        disk = Disk(path, descriptor)
        _check_raw(disk)
        yield disk
    finally:
        os.close(descriptor)


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        message = f"another command writes to {str(path)!r}: wait until it is done"
        raise TransientError(message) from error


def _check_raw(disk: Disk) -> None:
    head = disk.read(0, 8)
    for magic, command in WRAPPED:
        if head.startswith(magic):
            message = f"{str(disk.path)!r} is compressed or wrapped: unpack it first (`{command} {disk.path.name}`)"
            raise ConfigError(message)
