"""The boot sector of a FAT file system: where tables, root directory and clusters lie; and an empty file system made for a stick.

Source: Microsoft, FAT32 File System Specification 1.03; what decides between 16 and 32 bits is what Linux looks at (a FAT32 of fewer
clusters than the specification allows is common on small images, and every system mounts it).
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import ConfigError, UnavailableError

SIGNATURE = b"\x55\xaa"
FAT12_CLUSTERS_MAX = 4084
FAT16_CLUSTERS_MAX = 65524
ENTRY_BYTES = 32
SECTOR_BYTES = 512
MEDIA = 0xF8
ROOT_ENTRIES = 512
FAT16_MAX_BYTES = 512 << 20
SMALLEST_BYTES = 4 << 20
LARGEST_BYTES = 32 << 30


@dataclass(frozen=True, slots=True)
class FatGeometry:
    """Where things are, in bytes from the start of the file system; clusters are numbered from 2 on.

    `mirrors` are the copies of the table that are kept equal, of which the first is read; `fsinfo` is None on FAT16.
    """

    bits: Literal[16, 32]
    sector_bytes: int
    cluster_bytes: int
    fat_start: int
    fat_bytes: int
    mirrors: tuple[int, ...]
    root_start: int
    root_bytes: int
    root_cluster: int
    data_start: int
    clusters: int
    total_bytes: int
    fsinfo: int | None
    label: str

    def clusters_for(self, size_bytes: int) -> int:
        """Return the number of clusters that `size_bytes` take."""
        return -(-size_bytes // self.cluster_bytes)


def read_geometry(sector: bytes) -> FatGeometry | None:
    """Return the geometry in a boot sector, None if it is not of FAT; raises ConfigError if it is of FAT12."""
    if len(sector) < 512 or sector[510:512] != SIGNATURE or sector[0] not in (0xEB, 0xE9):
        return None
    bytes_, per_cluster, reserved, fats, root_entries, short_total, media, short_fat = struct.unpack_from("<HBHBHHBH", sector, 11)
    long_total, long_fat = struct.unpack_from("<II", sector, 32)
    total = short_total or long_total
    fat_sectors = short_fat or long_fat
    if bytes_ not in (512, 1024, 2048, 4096) or per_cluster == 0 or per_cluster & (per_cluster - 1):
        return None
    if not reserved or fats not in (1, 2) or media < 0xF0 or not total or not fat_sectors:
        return None
    root_sectors = -(-root_entries * ENTRY_BYTES // bytes_)
    data_sectors = total - reserved - fats * fat_sectors - root_sectors
    clusters = data_sectors // per_cluster
    if clusters < 1:
        return None
    is_32 = short_fat == 0
    if not is_32 and clusters <= FAT12_CLUSTERS_MAX:
        raise ConfigError("the file system is FAT12, which no board boots from: format it as FAT16 or FAT32 (`mkfs.vfat -F 16`)")
    # Clusters without an entry in the table cannot be used.
    clusters = min(clusters, fat_sectors * bytes_ // (4 if is_32 else 2) - 2)
    flags, root_cluster, fsinfo = (struct.unpack_from("<H", sector, 40)[0], *struct.unpack_from("<IH", sector, 44)) if is_32 else (0, 0, 0)
    if is_32 and not 2 <= root_cluster < clusters + 2:
        return None
    label = sector[71 if is_32 else 43 :][:11].decode("ascii", "replace").rstrip(" \0")
    return FatGeometry(
        bits=32 if is_32 else 16,
        sector_bytes=bytes_,
        cluster_bytes=per_cluster * bytes_,
        fat_start=reserved * bytes_,
        fat_bytes=fat_sectors * bytes_,
        # Bit 7: only one copy is used, that of the lowest four bits.
        mirrors=(flags & 0xF,) if flags & 0x80 and (flags & 0xF) < fats else tuple(range(fats)),
        root_start=(reserved + fats * fat_sectors) * bytes_,
        root_bytes=root_sectors * bytes_,
        root_cluster=root_cluster,
        data_start=(reserved + fats * fat_sectors + root_sectors) * bytes_,
        clusters=clusters,
        total_bytes=total * bytes_,
        fsinfo=fsinfo * bytes_ if is_32 and 0 < fsinfo < reserved else None,
        label="" if label == "NO NAME" else label,
    )


def make_stick(path: Path, size_bytes: int, label: str) -> None:
    """Write a new file with an empty file system of `size_bytes`: FAT16 up to 512 MiB, FAT32 above; no partition table.

    Raises:
        ConfigError: the file exists, or the size is not allowed for a stick.
        UnavailableError: it cannot be written.
    """
    if not SMALLEST_BYTES <= size_bytes <= LARGEST_BYTES:
        raise ConfigError(f"a stick cannot have {size_bytes:,} bytes: give a --size from 4M to 32G")
    sectors = _system(size_bytes // SECTOR_BYTES, label)
    try:
        with path.open("xb") as file:
            file.truncate(size_bytes // SECTOR_BYTES * SECTOR_BYTES)
            for sector, data in sectors.items():
                file.seek(sector * SECTOR_BYTES)
                file.write(data)
    except FileExistsError as error:
        raise ConfigError(f"{str(path)!r} exists already: choose another file for the stick, or delete it") from error
    except OSError as error:
        path.unlink(missing_ok=True)
        raise UnavailableError(f"cannot write the stick {str(path)!r}: {error.strerror}") from error


def _system(sectors: int, label: str) -> dict[int, bytes]:
    """Return the sectors that differ from zero, by number: those of the boot region, and those of tables and root folder."""
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
    first = struct.pack("<III", 0x0FFFFFF8, 0x0FFFFFFF, 0x0FFFFFFF) if is_32 else struct.pack("<HH", 0xFFF8, 0xFFFF)
    written = {0: bytes(boot), reserved: first, reserved + fat_sectors: first, reserved + 2 * fat_sectors: name + b"\x08" + bytes(20)}
    if is_32:
        clusters = (sectors - reserved - 2 * fat_sectors) // per_cluster
        info = struct.pack("<I480sIII14sH", 0x41615252, b"", 0x61417272, clusters - 1, 3, b"", 0xAA55)
        # Windows and Linux expect both copies of the boot region; each ends with an empty third sector.
        end = bytes(510) + b"\x55\xaa"
        written |= {1: info, 2: end, 6: bytes(boot), 7: info, 8: end}
    return written


def _sizes(sectors: int, reserved: int, *, is_32: bool) -> tuple[int, int]:
    """Return sectors per cluster and per table, such that the number of clusters implies the type."""
    root = 0 if is_32 else ROOT_ENTRIES * 32 // SECTOR_BYTES
    entry_bytes = 4 if is_32 else 2
    for per_cluster in (8, 4, 2, 1, 16, 32, 64):
        space = sectors - reserved - root
        fat_sectors = -(-(space // per_cluster + 2) * entry_bytes // SECTOR_BYTES)
        clusters = (space - 2 * fat_sectors) // per_cluster
        if (clusters > FAT16_CLUSTERS_MAX) if is_32 else (FAT12_CLUSTERS_MAX < clusters <= FAT16_CLUSTERS_MAX):
            return per_cluster, fat_sectors
    raise ConfigError(f"no FAT of {sectors} sectors can be made: give another --size")
