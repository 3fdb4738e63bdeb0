"""The table of a FAT file system in memory: which clusters are taken, and which one follows which."""

import struct
from collections.abc import Collection

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.fat.disk_image import DiskSpan
from edgemeter.provisioning.fat.geometry import FatGeometry

# A FAT32 entry has 28 bits; the four above them are kept.
MASK = {16: 0xFFFF, 32: 0x0FFFFFFF}
END = {16: 0xFFF8, 32: 0x0FFFFFF8}
BAD = {16: 0xFFF7, 32: 0x0FFFFFF7}
TYPE = {16: "<u2", 32: "<u4"}
UNKNOWN = 0xFFFFFFFF


class FatTable:
    """The table in memory: allocated clusters count at once, released ones stay taken until `free_released`.

    So clusters that a directory on the medium still names are never overwritten.
    """

    def __init__(self, span: DiskSpan, geometry: FatGeometry) -> None:
        self._span = span
        self._geometry = geometry
        raw = span.read(geometry.fat_start + geometry.mirrors[0] * geometry.fat_bytes, geometry.fat_bytes)
        self._entries = np.frombuffer(raw, dtype=TYPE[geometry.bits]).copy()
        self._changed: set[int] = set()
        self._released: list[int] = []
        values = self._entries[2 : geometry.clusters + 2] & MASK[geometry.bits]
        self._free = [int(cluster) + 2 for cluster in np.flatnonzero(values == 0)[::-1]]
        for mirror in geometry.mirrors[1:]:
            # The first copy is written first, so what an interruption left different is right there.
            copy = np.frombuffer(span.read(geometry.fat_start + mirror * geometry.fat_bytes, geometry.fat_bytes), dtype=self._entries.dtype)
            differing = np.flatnonzero(copy != self._entries) if len(copy) == len(self._entries) else ()
            self._changed |= {int(entry) * (geometry.bits // 8) // geometry.sector_bytes for entry in differing}

    @property
    def is_right(self) -> bool:
        """Return whether nothing has to be written: the copies are equal, and the stored number of free clusters is theirs."""
        return not self._changed and self._stored_free() in {None, self.free_clusters}

    @property
    def was_interrupted(self) -> bool:
        """Return whether a change began and did not end; only FAT32 tells."""
        return self._stored_free() == UNKNOWN

    def reclaim(self, named: Collection[int]) -> None:
        """Free all clusters that are taken and that no chain of `named` contains, as after an interruption."""
        bits = self._geometry.bits
        values = self._entries[2 : self._geometry.clusters + 2] & MASK[bits]
        allocated = (int(cluster) + 2 for cluster in np.flatnonzero((values != 0) & (values != BAD[bits])))
        lost = [cluster for cluster in allocated if cluster not in named]
        for cluster in lost:
            self._set(cluster, 0)
        self._free = sorted([*self._free, *lost], reverse=True)

    @property
    def free_clusters(self) -> int:
        """The number of clusters that can be allocated."""
        return len(self._free)

    def chain(self, first: int) -> list[int]:
        """Return the clusters from `first` on, none for 0 (an empty file); raises ConfigError for a circle, an open end, a bad cluster."""
        bits = self._geometry.bits
        clusters: list[int] = []
        cluster = first
        while cluster and cluster < BAD[bits]:
            if not 2 <= cluster < self._geometry.clusters + 2 or len(clusters) > self._geometry.clusters:
                break
            clusters.append(cluster)
            cluster = int(self._entries[cluster]) & MASK[bits]
            if cluster >= END[bits]:
                return clusters
        if first == 0:
            return []
        raise ConfigError(
            f"the file system of {str(self._span.disk.path)!r} is damaged (chain of cluster {first}): repair it with `fsck.fat -a`"
        )

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Allocate `count` clusters, linked in order, behind `after` if given; there must be enough."""
        clusters = [self._free.pop() for _ in range(count)]
        for cluster, following in zip(clusters, [*clusters[1:], MASK[self._geometry.bits]], strict=False):
            self._set(cluster, following)
        if after is not None and clusters:
            self._set(after, clusters[0])
        return clusters

    def release(self, first: int) -> None:
        """Mark the chain from `first` on to be freed later."""
        self._released += self.chain(first)

    def free_released(self) -> None:
        """Free the released clusters: nothing names them any more."""
        for cluster in self._released:
            self._set(cluster, 0)
        self._free += sorted(self._released, reverse=True)
        self._released = []

    def write(self) -> None:
        """Write the changed sectors of the table to each copy."""
        raw = self._entries.tobytes()
        size = self._geometry.sector_bytes
        for mirror in self._geometry.mirrors:
            start = self._geometry.fat_start + mirror * self._geometry.fat_bytes
            for sector in sorted(self._changed):
                self._span.write(start + sector * size, raw[sector * size : (sector + 1) * size])
        self._changed.clear()

    def write_fsinfo(self, *, is_known: bool) -> None:
        """Write the number of free clusters, unknown during a change. Only FAT32 has it, and only as a hint."""
        at = self._geometry.fsinfo
        if at is None or self._stored_free() is None:
            return
        sector = bytearray(self._span.read(at, self._geometry.sector_bytes))
        struct.pack_into(
            "<II", sector, 488, self.free_clusters if is_known else UNKNOWN, min(self._free[-1:], default=2) if is_known else UNKNOWN
        )
        self._span.write(at, bytes(sector))

    def _stored_free(self) -> int | None:
        """Return the number of free clusters that the medium states, None where it has no place for it."""
        at = self._geometry.fsinfo
        sector = b"" if at is None else self._span.read(at, self._geometry.sector_bytes)
        return int(struct.unpack_from("<I", sector, 488)[0]) if sector[:4] == b"RRaA" and sector[484:488] == b"rrAa" else None

    def _set(self, cluster: int, value: int) -> None:
        bits = self._geometry.bits
        reserved_bits = int(self._entries[cluster]) & ~MASK[bits]
        self._entries[cluster] = (reserved_bits | value) & (0xFFFF if bits == 16 else 0xFFFFFFFF)
        self._changed.add(cluster * (bits // 8) // self._geometry.sector_bytes)
