"""The table of a FAT file system: which clusters are free, and which follow which."""

import struct

import numpy as np

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.image.disk import Span
from edgemeter.provisioning.image.fat.geometry import Geometry

# A FAT32 entry has 28 bits; the four above them are kept as they are.
MASK = {16: 0xFFFF, 32: 0x0FFFFFFF}
END = {16: 0xFFF8, 32: 0x0FFFFFF8}
BAD = {16: 0xFFF7, 32: 0x0FFFFFF7}
TYPE = {16: "<u2", 32: "<u4"}
UNKNOWN = 0xFFFFFFFF


class Table:
    """The table in memory: what is allocated counts at once, what is released stays taken until `freed`.

    So nothing that a directory on the medium still names is ever written over.
    """

    def __init__(self, span: Span, geometry: Geometry) -> None:
        self._span = span
        self._geometry = geometry
        raw = span.read(geometry.fat_start + geometry.mirrors[0] * geometry.fat_bytes, geometry.fat_bytes)
        self._entries = np.frombuffer(raw, dtype=TYPE[geometry.bits]).copy()
        self._changed: set[int] = set()
        self._released: list[int] = []
        values = self._entries[2 : geometry.clusters + 2] & MASK[geometry.bits]
        self._free = [int(cluster) + 2 for cluster in np.flatnonzero(values == 0)[::-1]]

    @property
    def free_clusters(self) -> int:
        """How many clusters can be allocated."""
        return len(self._free)

    def chain(self, first: int) -> list[int]:
        """Return the clusters of a file or directory from `first` on; none for 0, which is an empty file.

        Raises:
            ConfigError: the chain runs in a circle, into nothing, or through a bad cluster.
        """
        bits = self._geometry.bits
        found: list[int] = []
        cluster = first
        while cluster and cluster < BAD[bits]:
            if not 2 <= cluster < self._geometry.clusters + 2 or len(found) > self._geometry.clusters:
                break
            found.append(cluster)
            cluster = int(self._entries[cluster]) & MASK[bits]
            if cluster >= END[bits]:
                return found
        if first == 0:
            return []
        message = f"the file system of {str(self._span.disk.path)!r} is damaged (chain of cluster {first}): repair it with `fsck.fat -a`"
        raise ConfigError(message)

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Take `count` free clusters, linked in order, behind `after` if that is given; there must be enough."""
        taken = [self._free.pop() for _ in range(count)]
        for cluster, following in zip(taken, [*taken[1:], MASK[self._geometry.bits]], strict=False):
            self._set(cluster, following)
        if after is not None and taken:
            self._set(after, taken[0])
        return taken

    def release(self, first: int) -> None:
        """Mark the chain from `first` on as to be freed, later."""
        self._released += self.chain(first)

    def free_released(self) -> None:
        """Free what was released: nothing names it any more."""
        for cluster in self._released:
            self._set(cluster, 0)
        self._free += sorted(self._released, reverse=True)
        self._released = []

    def write(self) -> None:
        """Write the sectors of the table that have changed, to each copy."""
        raw = self._entries.tobytes()
        size = self._geometry.sector_bytes
        for mirror in self._geometry.mirrors:
            start = self._geometry.fat_start + mirror * self._geometry.fat_bytes
            for sector in sorted(self._changed):
                self._span.write(start + sector * size, raw[sector * size : (sector + 1) * size])
        self._changed.clear()

    def write_fsinfo(self, *, is_known: bool) -> None:
        """Write how many clusters are free; while a change is under way this is unknown. Only FAT32 keeps it, and only as a hint."""
        at = self._geometry.fsinfo
        if at is None:
            return
        sector = bytearray(self._span.read(at, self._geometry.sector_bytes))
        if sector[:4] != b"RRaA" or sector[484:488] != b"rrAa":
            return
        struct.pack_into(
            "<II", sector, 488, self.free_clusters if is_known else UNKNOWN, min(self._free[-1:], default=2) if is_known else UNKNOWN
        )
        self._span.write(at, bytes(sector))

    def _set(self, cluster: int, value: int) -> None:
        bits = self._geometry.bits
        kept = int(self._entries[cluster]) & ~MASK[bits]
        self._entries[cluster] = (kept | value) & (0xFFFF if bits == 16 else 0xFFFFFFFF)
        self._changed.add(cluster * (bits // 8) // self._geometry.sector_bytes)
