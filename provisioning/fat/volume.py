"""A FAT file system: its files are read, and changed so that it works after a power cut at any moment.

Written by hand, because no library writes FAT without root and in this order: (1) new content and new folders go into free clusters;
(2) both copies of the table claim them; (3) directories name them, sector by sector: an entry lies within one sector, so that each file is
either the old or the new one; (4) clusters that nothing names any more are freed. After an interruption some clusters may be unused, and
the copies of the table may differ: the next change, even an empty one, repairs both, and the number of free clusters.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.fat.directory import ARCHIVE_ATTRIBUTE, FOLDER_ATTRIBUTE, FatDirectory, FatEntry, check_name, folder_head
from edgemeter.provisioning.fat.disk_image import DiskSpan
from edgemeter.provisioning.fat.file_changes import CHUNK_BYTES, Change, FileContent, PutFile
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
        taken = (int(cluster) + 2 for cluster in np.flatnonzero((values != 0) & (values != BAD[bits])))
        lost = [cluster for cluster in taken if cluster not in named]
        for cluster in lost:
            self._set(cluster, 0)
        self._free = sorted([*self._free, *lost], reverse=True)

    @property
    def free_clusters(self) -> int:
        """The number of clusters that can be allocated."""
        return len(self._free)

    def chain(self, first: int) -> list[int]:
        """Return the clusters of a file or directory from `first` on; none for 0, an empty file.

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
        raise ConfigError(
            f"the file system of {str(self._span.disk.path)!r} is damaged (chain of cluster {first}): repair it with `fsck.fat -a`"
        )

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Allocate `count` clusters, linked in order, behind `after` if given; there must be enough."""
        taken = [self._free.pop() for _ in range(count)]
        for cluster, following in zip(taken, [*taken[1:], MASK[self._geometry.bits]], strict=False):
            self._set(cluster, following)
        if after is not None and taken:
            self._set(after, taken[0])
        return taken

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
        kept = int(self._entries[cluster]) & ~MASK[bits]
        self._entries[cluster] = (kept | value) & (0xFFFF if bits == 16 else 0xFFFFFFFF)
        self._changed.add(cluster * (bits // 8) // self._geometry.sector_bytes)


FILE_MAX_BYTES = (1 << 32) - 1
MB = 1_000_000

# Deeper than any name on FAT can be long: a folder that holds itself.
DEPTH_MAX = 130


@dataclass(slots=True)
class _Folder:
    """A directory in memory: its clusters (`chain` is empty for the fixed root of FAT16), and its bytes when it was read."""

    chain: list[int]
    directory: FatDirectory
    before: bytes


class FatVolume:
    """One file system. Changes are planned, and refused, in memory, before anything is written."""

    def __init__(self, span: DiskSpan, geometry: FatGeometry, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> None:
        self.where = repr(str(span.disk.path))
        if geometry.total_bytes > span.size_bytes:
            raise ConfigError(
                f"the file system of {self.where} is {geometry.total_bytes:,} bytes, its place only {span.size_bytes:,}: "
                "the image is truncated, download or unpack it again"
            )
        self._span = span
        self._geometry = geometry
        self._now = now
        self._table = FatTable(span, geometry)
        self._folders: dict[tuple[str, ...], _Folder] = {}
        self._new: list[tuple[list[int], FileContent]] = []
        if self._table.was_interrupted:
            # A damaged directory is reported by whoever reads it; until then nothing is known to be unused.
            with suppress(ConfigError):
                self._table.reclaim(self._named())

    @property
    def label(self) -> str:
        """The volume's label: that of the root directory, else the boot sector's."""
        return self._folder(()).directory.label() or self._geometry.label

    def names(self) -> list[str]:
        """Return the names in the root folder."""
        return [entry.name for entry in self._folder(()).directory.entries()]

    def files(self, path: str = "") -> dict[str, int]:
        """Return every file below `path` with its size in bytes."""
        found: dict[str, int] = {}
        if self._find(_parts(path)) is None and _parts(path):
            return found
        for place, entry in self._walk(_parts(path)):
            if not entry.is_folder:
                found["/".join([*place, entry.name])] = entry.size_bytes
        return found

    def content(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes of a file in pieces, None if there is none."""
        entry = self._find(_parts(path))
        return None if entry is None or entry.is_folder else self._read(entry)

    def missing_bytes(self, changes: Sequence[Change]) -> int:
        """Return how much space is missing for `changes`, 0 if they fit: new files exist beside the old ones until the end."""
        puts = [change for change in changes if isinstance(change, PutFile)]
        folders = {_parts(put.path)[:depth] for put in puts for depth in range(1, len(_parts(put.path)))}
        clusters = sum(self._geometry.clusters_for(put.content.size_bytes) for put in puts)
        # An entry of a long name takes up to 21 slots of 32 bytes; two clusters more cover what a full folder grows by.
        clusters += sum(self._geometry.clusters_for(32 * 21 * (len(puts) + 2)) for folder in folders if self._find(folder) is None)
        clusters += 2 * len(folders) + (1 if self._geometry.bits == 32 else 0) if puts else 0
        return max(clusters - self._table.free_clusters, 0) * self._geometry.cluster_bytes

    def apply(self, changes: Sequence[Change], wrote: Callable[[int], None] = lambda _: None) -> None:
        """Carry out all changes; `wrote` gets the number of bytes of each write.

        Raises:
            UnavailableError: there is not enough room, nothing has been written.
            ConfigError: a name that FAT does not allow, a folder in a file's place, a damaged directory; nothing has been written.
        """
        if not changes and self._table.is_right:
            return
        missing = self.missing_bytes(changes)
        if missing:
            free = self._table.free_clusters * self._geometry.cluster_bytes
            raise UnavailableError(
                f"the boot partition of {self.where} is too full: {free / MB:,.1f} MB are free, "
                f"{missing / MB:,.1f} MB more are needed; take a smaller bundle, or delete files there"
            )
        for change in changes:
            parts = _parts(change.path)
            if isinstance(change, PutFile):
                self._put(parts, change.content)
            else:
                self._remove(parts)
        self._settle()
        self._commit(wrote)

    def _commit(self, wrote: Callable[[int], None]) -> None:
        self._table.write_fsinfo(is_known=False)
        for clusters, content in self._new:
            self._write_file(clusters, content, wrote)
        for folder in self._folders.values():
            self._write_folder(folder, is_new=True)
        self._span.disk.sync()
        self._table.write()
        self._span.disk.sync()
        for folder in self._folders.values():
            self._write_folder(folder, is_new=False)
        self._span.disk.sync()
        self._table.free_released()
        self._table.write()
        self._table.write_fsinfo(is_known=True)
        self._span.disk.sync()
        self._new.clear()
        self._folders.clear()

    def _settle(self) -> None:
        """Allocate clusters to folders that have grown."""
        size = self._geometry.cluster_bytes
        for folder in self._folders.values():
            data = folder.directory.data
            if not folder.chain:
                if len(data) > self._geometry.root_bytes:
                    raise UnavailableError(
                        f"the root folder of {self.where} is full (FAT16 limits its number of names): delete files there"
                    )
                continue
            data.extend(bytes(-len(data) % size))
            more = len(data) // size - len(folder.chain)
            if more > self._table.free_clusters:
                raise UnavailableError(f"the boot partition of {self.where} is too full for more folders: delete files there")
            if more:
                folder.chain += self._table.allocate(more, after=folder.chain[-1])

    def _put(self, parts: tuple[str, ...], content: FileContent) -> None:
        if content.size_bytes > FILE_MAX_BYTES:
            raise ConfigError(f"{'/'.join(parts)!r} is larger than a file on FAT can be (4 GiB): take a smaller bundle")
        folder = self._made(parts[:-1])
        check_name(parts[-1])
        entry = folder.directory.find(parts[-1])
        if entry is not None and entry.is_folder:
            raise ConfigError(f"{'/'.join(parts)!r} is a folder in {self.where}, where a file has to be written: delete it")
        clusters = self._table.allocate(self._geometry.clusters_for(content.size_bytes))
        first = clusters[0] if clusters else 0
        if entry is None:
            folder.directory.add(parts[-1], ARCHIVE_ATTRIBUTE, first, content.size_bytes, self._now())
        else:
            self._table.release(entry.cluster)
            folder.directory.point(entry, first, content.size_bytes, self._now())
        self._new.append((clusters, content))

    def _remove(self, parts: tuple[str, ...]) -> None:
        entry = self._find(parts)
        if entry is None:
            return
        if entry.is_folder:
            for _, inner in self._walk(parts):
                self._table.release(inner.cluster)
            for place in [place for place in self._folders if place[: len(parts)] == tuple(part.upper() for part in parts)]:
                del self._folders[place]
        self._table.release(entry.cluster)
        self._folder(parts[:-1]).directory.remove(entry)

    def _made(self, parts: tuple[str, ...]) -> _Folder:
        """Return a folder, made if it does not exist."""
        if self._find(parts) is not None or not parts:
            return self._folder(parts)
        check_name(parts[-1])
        parent = self._made(parts[:-1])
        own = self._table.allocate(1)
        above = parent.chain[0] if len(parts) > 1 else 0
        parent.directory.add(parts[-1], FOLDER_ATTRIBUTE, own[0], 0, self._now())
        head = folder_head(own[0], above, self._now())
        data = head + bytes(self._geometry.cluster_bytes - len(head))
        made = _Folder(own, FatDirectory(data), b"")
        self._folders[_key(parts)] = made
        return made

    def _folder(self, parts: tuple[str, ...]) -> _Folder:
        key = _key(parts)
        if key not in self._folders:
            if not parts:
                chain = self._table.chain(self._geometry.root_cluster)
            else:
                entry = self._find(parts)
                if entry is None or not entry.is_folder:
                    raise ConfigError(f"{'/'.join(parts)!r} is not a folder in {self.where}: delete the file of that name")
                chain = self._table.chain(entry.cluster)
                if not chain:
                    raise ConfigError(f"the folder {'/'.join(parts)!r} in {self.where} is damaged: repair it with `fsck.fat -a`")
            data = b"".join(self._span.read(offset, size) for offset, size in self._places(chain))
            self._folders[key] = _Folder(chain, FatDirectory(data), data)
        return self._folders[key]

    def _find(self, parts: tuple[str, ...]) -> FatEntry | None:
        found: FatEntry | None = None
        for depth, part in enumerate(parts):
            if depth and (found is None or not found.is_folder):
                return None
            found = self._folder(parts[:depth]).directory.find(part)
        return found

    def _walk(self, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], FatEntry]]:
        if len(parts) > DEPTH_MAX:
            raise ConfigError(f"the folders of {self.where} run in a circle: repair it with `fsck.fat -a`")
        for entry in list(self._folder(parts).directory.entries()):
            yield parts, entry
            if entry.is_folder:
                yield from self._walk((*parts, entry.name))

    def _named(self) -> set[int]:
        """Return every cluster of every file and folder."""
        named = set(self._folder(()).chain)
        for _, entry in self._walk(()):
            named.update(self._table.chain(entry.cluster))
        return named

    def _places(self, chain: list[int]) -> Iterator[tuple[int, int]]:
        """Yield (offset, bytes) of the runs of a chain, up to a chunk each; of the fixed root if the chain is empty."""
        size = self._geometry.cluster_bytes
        if not chain:
            yield self._geometry.root_start, self._geometry.root_bytes
        at = 0
        while at < len(chain):
            count = 1
            while at + count < len(chain) and chain[at + count] == chain[at] + count and (count + 1) * size <= CHUNK_BYTES:
                count += 1
            yield self._geometry.cluster_offset(chain[at]), count * size
            at += count

    def _read(self, entry: FatEntry) -> Iterator[bytes]:
        left = entry.size_bytes
        chain = self._table.chain(entry.cluster)
        if len(chain) < self._geometry.clusters_for(left):
            raise ConfigError(f"{entry.name!r} in {self.where} is shorter than its entry: repair it with `fsck.fat -a`")
        for offset, size in self._places(chain) if chain else ():
            yield self._span.read(offset, min(size, left))
            left -= min(size, left)

    def _write_file(self, clusters: list[int], content: FileContent, wrote: Callable[[int], None]) -> None:
        if not clusters:
            return
        with content.open() as file:
            left = content.size_bytes
            for offset, size in self._places(clusters):
                data = file.read(min(size, left))
                if len(data) != min(size, left):
                    raise UnavailableError(
                        f"a file of the bundle became shorter while it was read ({content.size_bytes:,} bytes expected): try again"
                    )
                # Whole clusters: remains of an old file in the last one are overwritten too.
                self._span.write(offset, data.ljust(size, b"\0"))
                left -= len(data)
                wrote(len(data))

    def _write_folder(self, folder: _Folder, *, is_new: bool) -> None:
        """Write the clusters that are new to the folder, or the changed sectors of its old ones.

        The later sectors are written first: nothing reads them before the earlier ones lead there.
        """
        data = bytes(folder.directory.data)
        size = self._geometry.sector_bytes
        at = 0
        writes = []
        for offset, length in self._places(folder.chain):
            for start in range(0, length, size):
                piece = data[at + start : at + start + size]
                if (at + start >= len(folder.before)) == is_new and piece != folder.before[at + start : at + start + size]:
                    writes.append((offset + start, piece))
            at += length
        for offset, piece in reversed(writes):
            self._span.write(offset, piece)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _key(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.upper() for part in parts)
