"""Make an empty FAT file system: a stick labelled CIDATA from which cloud-init reads.

Source: Microsoft, FAT32 File System Specification 1.03.
"""

import struct
import zlib
from pathlib import Path

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.provisioning.image.fat.geometry import FAT12_CLUSTERS_MAX, FAT16_CLUSTERS_MAX

SECTOR_BYTES = 512
MEDIA = 0xF8
ROOT_ENTRIES = 512
FAT16_MAX_BYTES = 512 << 20
SMALLEST_BYTES = 4 << 20
LARGEST_BYTES = 32 << 30


def stick(path: Path, size_bytes: int, label: str) -> None:
    """Write a new file with an empty file system of `size_bytes`: FAT16 up to 512 MiB, FAT32 above; no partition table.

    Raises:
        ConfigError: there is a file already, or the size is none for a stick.
        UnavailableError: it cannot be written.
    """
    if not SMALLEST_BYTES <= size_bytes <= LARGEST_BYTES:
        message = f"a stick of {size_bytes:,} bytes cannot be made: give a --size from 4M to 32G"
        raise ConfigError(message)
    head, tables = _system(size_bytes // SECTOR_BYTES, label)
    try:
        with path.open("xb") as file:
            file.truncate(size_bytes // SECTOR_BYTES * SECTOR_BYTES)
            for sector, data in {**head, **tables}.items():
                file.seek(sector * SECTOR_BYTES)
                file.write(data)
    except FileExistsError as error:
        message = f"{str(path)!r} is there already: name another file for the stick, or delete it"
        raise ConfigError(message) from error
    except OSError as error:
        path.unlink(missing_ok=True)
        message = f"cannot write the stick {str(path)!r}: {error.strerror}"
        raise UnavailableError(message) from error


def _system(sectors: int, label: str) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return the sectors that differ from zero: those of the boot region, and those of tables and root folder."""
    is_32 = sectors * SECTOR_BYTES > FAT16_MAX_BYTES
    reserved = 32 if is_32 else 1
    per_cluster, fat_sectors = _sizes(sectors, reserved, is_32=is_32)
    serial = zlib.crc32(f"{label} {sectors}".encode())
    name = label.encode("ascii").ljust(11)
    boot = bytearray(SECTOR_BYTES)
    boot[0:11] = b"\xeb\x58\x90EDGEMTR "
    root_entries = 0 if is_32 else ROOT_ENTRIES
    short_total = sectors if sectors < 0x10000 and not is_32 else 0
    struct.pack_into("<HBHBHHBHHHII", boot, 11, SECTOR_BYTES, per_cluster, reserved, 2, root_entries, short_total, MEDIA,
                     0 if is_32 else fat_sectors, 32, 64, 0, 0 if short_total else sectors)  # fmt: skip
    if is_32:
        struct.pack_into("<IHHIHH", boot, 36, fat_sectors, 0, 0, 2, 1, 6)
    struct.pack_into("<BBBI11s8s", boot, 64 if is_32 else 36, 0x80, 0, 0x29, serial, name, b"FAT32   " if is_32 else b"FAT16   ")
    boot[510:] = b"\x55\xaa"
    head = {0: bytes(boot)}
    first = struct.pack("<III", 0x0FFFFFF8, 0x0FFFFFFF, 0x0FFFFFFF) if is_32 else struct.pack("<HH", 0xFFF8, 0xFFFF)
    tables = {reserved: first, reserved + fat_sectors: first, reserved + 2 * fat_sectors: name + b"\x08" + bytes(20)}
    if is_32:
        clusters = (sectors - reserved - 2 * fat_sectors) // per_cluster
        info = struct.pack("<I480sIII14sH", 0x41615252, b"", 0x61417272, clusters - 1, 3, b"", 0xAA55)
        # Windows and Linux want both copies of the boot region; each ends with an empty third sector.
        end = bytes(510) + b"\x55\xaa"
        head |= {1: info, 2: end, 6: bytes(boot), 7: info, 8: end}
    return head, tables


def _sizes(sectors: int, reserved: int, *, is_32: bool) -> tuple[int, int]:
    """Return sectors a cluster and sectors a table, so that the count of clusters says the type to everybody."""
    root = 0 if is_32 else ROOT_ENTRIES * 32 // SECTOR_BYTES
    entry_bytes = 4 if is_32 else 2
    for per_cluster in (8, 4, 2, 1, 16, 32, 64):
        space = sectors - reserved - root
        fat_sectors = -(-(space // per_cluster + 2) * entry_bytes // SECTOR_BYTES)
        clusters = (space - 2 * fat_sectors) // per_cluster
        if (clusters > FAT16_CLUSTERS_MAX) if is_32 else (FAT12_CLUSTERS_MAX < clusters <= FAT16_CLUSTERS_MAX):
            return per_cluster, fat_sectors
    message = f"no FAT of {sectors} sectors can be made: give another --size"
    raise ConfigError(message)
