"""An image file or a card, read and written at byte offsets, and its partitions; without root, loop devices or mounts.

MBR, GPT (also with a hybrid MBR, also when its first copy is damaged), or none at all.
Source: UEFI Specification 2.10, chapter 5 (GPT, protective and legacy MBR).
"""

import contextlib
import fcntl
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError, os_error_as

DiskAccess = Literal["read", "write"]

# How compressed and wrapped images begin. Source: the formats' own specifications.
WRAPPED = (
    (b"\xfd7zXZ\x00", "xz -d"),
    (b"\x1f\x8b", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "zstd -d"),
    (b"PK\x03\x04", "unzip"),
    (b"BZh", "bunzip2"),
    (b"QFI\xfb", "qemu-img convert -O raw"),
)
SECTOR_BYTES = 512
MBR_SIGNATURE = b"\x55\xaa"
GPT_SIGNATURE = b"EFI PART"
PROTECTIVE = 0xEE
EXTENDED = frozenset({0x05, 0x0F, 0x85})
# No tool writes a table of more entries: it would be damaged.
GPT_ENTRIES_MAX = 1024
LOGICAL_MAX = 64


class DiskImage:
    """One open image; an error of the medium names the byte."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size_bytes = os.lseek(descriptor, 0, os.SEEK_END)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return `size_bytes` from `offset` on, fewer at the image's end; raises UnavailableError if the medium cannot be read there."""
        parts = []
        while size_bytes > 0:
            with os_error_as(UnavailableError, f"cannot read byte {offset:,} of {str(self.path)!r}", "try another card or reader"):
                part = os.pread(self._descriptor, size_bytes, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size_bytes -= len(part)
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        """Write `data` at `offset`; raises UnavailableError if the medium fails."""
        view = memoryview(data)
        while view:
            task = f"cannot write byte {offset:,} of {str(self.path)!r}"
            with os_error_as(UnavailableError, task, "prepare it again, or try another card"):
                written = os.pwrite(self._descriptor, view, offset)
            view = view[written:]
            offset += written

    def sync(self) -> None:
        """Wait until all writes are on the medium, and drop its cached pages, to read from there; raises UnavailableError if it fails."""
        with os_error_as(UnavailableError, f"{str(self.path)!r} failed to store what was written", "try another card"):
            os.fsync(self._descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True, slots=True)
class DiskSpan:
    """A part of a disk: a partition, or all of it."""

    disk: DiskImage
    start: int
    size_bytes: int

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of this part."""
        return self.disk.read(self.start + offset, min(size_bytes, max(self.size_bytes - offset, 0)))

    def write(self, offset: int, data: bytes) -> None:
        """Write within this part; raises ValueError if it would reach beyond the part."""
        if offset < 0 or offset + len(data) > self.size_bytes:
            raise ValueError(f"bytes {offset} to {offset + len(data)} lie outside the {self.size_bytes} of the partition")
        self.disk.write(self.start + offset, data)


@contextlib.contextmanager
def open_disk(path: Path, access: DiskAccess) -> Iterator[DiskImage]:
    """Open the image or card at `path`; for writing it must not be mounted, nor written by another process.

    Raises:
        ConfigError: it does not exist, cannot be read or written, or is compressed.
        TransientError: it is mounted, or another process writes to it.
    """
    flags = (os.O_RDWR if access == "write" else os.O_RDONLY) | os.O_CLOEXEC
    try:
        # On a block device O_EXCL refuses while any of its partitions is mounted.
        is_block = stat.S_ISBLK(path.stat().st_mode)
        descriptor = os.open(path, flags | (os.O_EXCL if is_block and access == "write" else 0))
    except OSError as error:
        if error.errno == 16:  # EBUSY
            raise TransientError(f"{str(path)!r} is mounted: unmount it, or give the folder of its boot partition instead") from error
        raise ConfigError(
            f"cannot open the image {str(path)!r} to {access}: {error.strerror}; give a raw image, a card or a boot partition's folder"
        ) from error
    try:
        if access == "write":
            _lock(path, descriptor)
        disk = DiskImage(path, descriptor)
        head = disk.read(0, 8)
        for magic, command in WRAPPED:
            if head.startswith(magic):
                raise ConfigError(f"{str(path)!r} is compressed or wrapped: unpack it first (`{command} {path.name}`)")
        yield disk
    finally:
        os.close(descriptor)


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise TransientError(f"another process writes to {str(path)!r}: wait until it is done") from error


@dataclass(frozen=True, slots=True)
class Partition:
    """One entry: its number as in `fdisk`, its place, and its name, which only a GPT has."""

    number: int
    start: int
    size_bytes: int
    name: str = ""


def read_partitions(disk: DiskImage) -> list[Partition]:
    """Return the partitions of `disk` by number, none without a table; raises ConfigError if both copies of its GPT are damaged."""
    sector = disk.read(0, SECTOR_BYTES)
    if len(sector) < SECTOR_BYTES or sector[510:] != MBR_SIGNATURE:
        return []
    entries = _mbr_entries(sector)
    if any(kind == PROTECTIVE for kind, _, _ in entries) or disk.read(SECTOR_BYTES, 8) == GPT_SIGNATURE:
        partitions = _gpt(disk)
        if partitions is not None:
            return partitions
        if all(kind in (0, PROTECTIVE) for kind, _, _ in entries):
            raise ConfigError(f"both partition tables (GPT) of {str(disk.path)!r} are damaged: write the image again")
    return _mbr(disk, entries)


def partition_span(disk: DiskImage, partition: Partition) -> DiskSpan:
    """Return the part of the disk that `partition` takes; raises ConfigError if it ends beyond the image, which is truncated."""
    end = partition.start + partition.size_bytes
    if end > disk.size_bytes:
        raise ConfigError(
            f"partition {partition.number} of {str(disk.path)!r} ends at byte {end:,}, the image at {disk.size_bytes:,}: "
            "it is truncated, download or unpack it again"
        )
    return DiskSpan(disk, partition.start, partition.size_bytes)


def _mbr_entries(sector: bytes) -> list[tuple[int, int, int]]:
    """Return (type, first sector, sectors) of the four entries."""
    return [(sector[at + 4], *struct.unpack_from("<II", sector, at + 8)) for at in range(446, 510, 16)]


def _mbr(disk: DiskImage, entries: list[tuple[int, int, int]]) -> list[Partition]:
    partitions = []
    for number, (kind, first, sectors) in enumerate(entries, 1):
        if kind in EXTENDED and sectors:
            partitions += _logical(disk, first)
        elif kind not in (0, PROTECTIVE) and sectors:
            partitions.append(Partition(number, first * SECTOR_BYTES, sectors * SECTOR_BYTES))
    return sorted(partitions, key=lambda partition: partition.number)


def _logical(disk: DiskImage, extended: int) -> list[Partition]:
    """Return the partitions within an extended one: a list of tables, each pointing to the next."""
    partitions: list[Partition] = []
    table = extended
    while len(partitions) < LOGICAL_MAX:
        sector = disk.read(table * SECTOR_BYTES, SECTOR_BYTES)
        if len(sector) < SECTOR_BYTES or sector[510:] != MBR_SIGNATURE:
            break
        (kind, first, sectors), (_, onward, next_sectors) = _mbr_entries(sector)[:2]
        if kind and sectors:
            partitions.append(Partition(5 + len(partitions), (table + first) * SECTOR_BYTES, sectors * SECTOR_BYTES))
        if not next_sectors or extended + onward <= table:
            break
        table = extended + onward
    return partitions


def _gpt(disk: DiskImage) -> list[Partition] | None:
    """Return the partitions by the first intact copy of the table, None if there is none; also with 4,096-byte sectors."""
    places = ((offset, size) for size in (SECTOR_BYTES, 4096) for offset in (size, disk.size_bytes - size))
    tables = (_gpt_at(disk, offset, sector_bytes) for offset, sector_bytes in places)
    return next((partitions for partitions in tables if partitions is not None), None)


def _gpt_at(disk: DiskImage, offset: int, sector_bytes: int) -> list[Partition] | None:
    header = disk.read(offset, sector_bytes) if offset > 0 else b""
    if len(header) < 92 or not header.startswith(GPT_SIGNATURE):
        return None
    length, checksum = struct.unpack_from("<II", header, 12)
    first, count, size, entries_checksum = struct.unpack_from("<QIII", header, 72)
    if not 92 <= length <= sector_bytes or size < 128 or count > GPT_ENTRIES_MAX or size > sector_bytes:
        return None
    if zlib.crc32(header[:16] + bytes(4) + header[20:length]) != checksum:
        return None
    entries = disk.read(first * sector_bytes, count * size)
    if zlib.crc32(entries) != entries_checksum:
        return None
    partitions = []
    for index in range(count):
        entry = entries[index * size : (index + 1) * size]
        begin, end = struct.unpack_from("<QQ", entry, 32)
        if any(entry[:16]) and end >= begin:
            name = entry[56:128].decode("utf-16-le", errors="replace").partition("\0")[0]
            partitions.append(Partition(index + 1, begin * sector_bytes, (end - begin + 1) * sector_bytes, name))
    return partitions
