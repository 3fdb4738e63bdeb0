"""The boot sector of a FAT file system: where tables, root directory and clusters lie.

Source: Microsoft, FAT32 File System Specification 1.03; what decides between 16 and 32 bits is what Linux looks at (a FAT32 of fewer
clusters than the specification allows is common on small images, and every system mounts it).
"""

import struct
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.errors import ConfigError

SIGNATURE = b"\x55\xaa"
FAT12_CLUSTERS_MAX = 4084
FAT16_CLUSTERS_MAX = 65524
ENTRY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where things are, in bytes from the start of the file system; clusters are numbered from 2 on.

    `mirrors` are the copies of the table that are kept the same, the first of them is read; `fsinfo` is None on FAT16.
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

    def cluster_offset(self, cluster: int) -> int:
        """Return where `cluster` begins."""
        return self.data_start + (cluster - 2) * self.cluster_bytes

    def clusters_for(self, size_bytes: int) -> int:
        """Return how many clusters so many bytes take."""
        return -(-size_bytes // self.cluster_bytes)


def read(sector: bytes) -> Geometry | None:
    """Return the geometry that a boot sector describes, None when it is none of FAT.

    Raises:
        ConfigError: it is FAT, but FAT12.
    """
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
        message = "the file system is FAT12, which no board boots from: format it as FAT16 or FAT32 (`mkfs.vfat -F 16`)"
        raise ConfigError(message)
    # What the table has no entry for cannot be used.
    clusters = min(clusters, fat_sectors * bytes_ // (4 if is_32 else 2) - 2)
    flags, root_cluster, fsinfo = (struct.unpack_from("<H", sector, 40)[0], *struct.unpack_from("<IH", sector, 44)) if is_32 else (0, 0, 0)
    if is_32 and not 2 <= root_cluster < clusters + 2:
        return None
    return Geometry(
        bits=32 if is_32 else 16,
        sector_bytes=bytes_,
        cluster_bytes=per_cluster * bytes_,
        fat_start=reserved * bytes_,
        fat_bytes=fat_sectors * bytes_,
        # Bit 7: only one copy is kept, that of the lowest four bits.
        mirrors=(flags & 0xF,) if flags & 0x80 and (flags & 0xF) < fats else tuple(range(fats)),
        root_start=(reserved + fats * fat_sectors) * bytes_,
        root_bytes=root_sectors * bytes_,
        root_cluster=root_cluster,
        data_start=(reserved + fats * fat_sectors + root_sectors) * bytes_,
        clusters=clusters,
        total_bytes=total * bytes_,
        fsinfo=fsinfo * bytes_ if is_32 and 0 < fsinfo < reserved else None,
        label=_label(sector, 71 if is_32 else 43),
    )


def _label(sector: bytes, at: int) -> str:
    label = sector[at : at + 11].decode("ascii", "replace").rstrip(" \0")
    return "" if label == "NO NAME" else label
