"""The partitions of an image: MBR, GPT (also with a hybrid MBR, also when its first copy is damaged), or none at all.

Source: UEFI Specification 2.10, chapter 5 (GPT, protective and legacy MBR).
"""

import struct
import zlib
from dataclasses import dataclass

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.image.disk import Disk, Span

SECTOR_BYTES = 512
MBR_SIGNATURE = b"\x55\xaa"
GPT_SIGNATURE = b"EFI PART"
PROTECTIVE = 0xEE
EXTENDED = frozenset({0x05, 0x0F, 0x85})
# A table of more entries than any tool writes is damage, not a disk.
GPT_ENTRIES_MAX = 1024
LOGICAL_MAX = 64


@dataclass(frozen=True, slots=True)
class Partition:
    """One entry: its number as `fdisk` counts, and where it lies."""

    number: int
    start: int
    size_bytes: int


def read(disk: Disk) -> list[Partition]:
    """Return the partitions of `disk` by number; none where there is no table.

    Raises:
        ConfigError: there is a GPT, but neither copy of it is whole.
    """
    sector = disk.read(0, SECTOR_BYTES)
    if len(sector) < SECTOR_BYTES or sector[510:] != MBR_SIGNATURE:
        return []
    entries = _mbr_entries(sector)
    if any(kind == PROTECTIVE for kind, _, _ in entries) or disk.read(SECTOR_BYTES, 8) == GPT_SIGNATURE:
        found = _gpt(disk)
        if found is not None:
            return found
        if all(kind in (0, PROTECTIVE) for kind, _, _ in entries):
            message = f"both partition tables (GPT) of {str(disk.path)!r} are damaged: write the image anew"
            raise ConfigError(message)
    return _mbr(disk, entries)


def span(disk: Disk, partition: Partition) -> Span:
    """Return the part of the disk that `partition` takes.

    Raises:
        ConfigError: it reaches beyond the end: the image is cut short.
    """
    end = partition.start + partition.size_bytes
    if end > disk.size_bytes:
        message = (
            f"partition {partition.number} of {str(disk.path)!r} ends at byte {end:,}, the image at {disk.size_bytes:,}: "
            "it is cut short, fetch or unpack it again"
        )
        raise ConfigError(message)
    return Span(disk, partition.start, partition.size_bytes)


def _mbr_entries(sector: bytes) -> list[tuple[int, int, int]]:
    """Return (type, first sector, sectors) of the four entries."""
    return [
        (sector[at + 4], *struct.unpack_from("<II", sector, at + 8))
        for at in range(446, 510, 16)
    ]  # fmt: skip


def _mbr(disk: Disk, entries: list[tuple[int, int, int]]) -> list[Partition]:
    found = []
    for number, (kind, first, sectors) in enumerate(entries, 1):
        if kind in EXTENDED and sectors:
            found += _logical(disk, first)
        elif kind not in (0, PROTECTIVE) and sectors:
            found.append(Partition(number, first * SECTOR_BYTES, sectors * SECTOR_BYTES))
    return sorted(found, key=lambda partition: partition.number)


def _logical(disk: Disk, extended: int) -> list[Partition]:
    """Return the partitions within an extended one: a list of tables, each naming the next."""
    found: list[Partition] = []
    table = extended
    while len(found) < LOGICAL_MAX:
        sector = disk.read(table * SECTOR_BYTES, SECTOR_BYTES)
        if len(sector) < SECTOR_BYTES or sector[510:] != MBR_SIGNATURE:
            break
        (kind, first, sectors), (_, onward, more) = _mbr_entries(sector)[:2]
        if kind and sectors:
            found.append(Partition(5 + len(found), (table + first) * SECTOR_BYTES, sectors * SECTOR_BYTES))
        if not more or extended + onward <= table:
            break
        table = extended + onward
    return found


def _gpt(disk: Disk) -> list[Partition] | None:
    """Return the partitions by the first whole copy of the table, None when none is; disks of 4,096-byte sectors too."""
    for sector_bytes in (SECTOR_BYTES, 4096):
        for offset in (sector_bytes, disk.size_bytes - sector_bytes):
            found = _gpt_at(disk, offset, sector_bytes)
            if found is not None:
                return found
    return None


def _gpt_at(disk: Disk, offset: int, sector_bytes: int) -> list[Partition] | None:
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
    found = []
    for index in range(count):
        entry = entries[index * size : (index + 1) * size]
        begin, end = struct.unpack_from("<QQ", entry, 32)
        if any(entry[:16]) and end >= begin:
            found.append(Partition(index + 1, begin * sector_bytes, (end - begin + 1) * sector_bytes))
    return found
