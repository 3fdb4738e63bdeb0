"""A FAT file system: its files are read, and changed so that it works after a power cut at any moment.

Written by hand, because no library writes FAT without root and in the order below; with mtools, a cut between two of its writes may leave
neither the old file nor the new one. (1) New content and new folders go into free clusters; (2) both copies of the table claim them; (3)
directories name them, sector by sector: an entry lies within one sector, so that each file is either the old or the new one; (4) clusters
that nothing names any more are freed. After an interruption some clusters may be unused, and the copies of the table may differ: the next
change, even an empty one, repairs both, and the number of free clusters.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import IO

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.fat.directory import ARCHIVE_ATTRIBUTE, FOLDER_ATTRIBUTE, FatDirectory, FatEntry, check_name, folder_head
from edgemeter.provisioning.fat.disk_image import DiskSpan
from edgemeter.provisioning.fat.geometry import FatGeometry
from edgemeter.provisioning.fat.table import FatTable

CHUNK_BYTES = 1 << 20
FILE_MAX_BYTES = (1 << 32) - 1
MB = 1_000_000

# Deeper than any name on FAT can be long: a folder that holds itself.
DEPTH_MAX = 130


@dataclass(frozen=True, slots=True)
class FileContent:
    """The bytes of one file, read when they are needed."""

    size_bytes: int
    open: Callable[[], IO[bytes]]

    def chunks(self, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes, `size_bytes` at a time, fewer at the end."""
        with self.open() as file:
            while chunk := file.read(size_bytes):
                yield chunk


@dataclass(frozen=True, slots=True)
class PutFile:
    """A file to write, with its folders; it replaces what has that path."""

    path: str
    content: FileContent


@dataclass(frozen=True, slots=True)
class RemovePath:
    """A file or folder to remove."""

    path: str


Change = PutFile | RemovePath


def of_bytes(data: bytes) -> FileContent:
    """Return bytes as content."""
    return FileContent(len(data), lambda: io.BytesIO(data))


def put_text(path: str, text: str) -> PutFile:
    """Return the change that writes a text file."""
    return PutFile(path, of_bytes(text.encode()))


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
        top = _parts(path)
        if top and self._find(top) is None:
            return {}
        return {"/".join([*folder, entry.name]): entry.size_bytes for folder, entry in self._walk(top) if not entry.is_folder}

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
        """Carry out all changes, `wrote` getting each write's bytes; raises UnavailableError (no room) or ConfigError before any."""
        if not changes and self._table.is_right:
            return
        if missing := self.missing_bytes(changes):
            free = self._table.free_clusters * self._geometry.cluster_bytes
            raise UnavailableError(
                f"the boot partition of {self.where} is too full: {free / MB:,.1f} MB are free, "
                f"{missing / MB:,.1f} MB more are needed; take a smaller release, or delete files there"
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
            missing_clusters = len(data) // size - len(folder.chain)
            if missing_clusters > self._table.free_clusters:
                raise UnavailableError(f"the boot partition of {self.where} is too full for more folders: delete files there")
            if missing_clusters:
                folder.chain += self._table.allocate(missing_clusters, after=folder.chain[-1])

    def _put(self, parts: tuple[str, ...], content: FileContent) -> None:
        if content.size_bytes > FILE_MAX_BYTES:
            raise ConfigError(f"{'/'.join(parts)!r} is larger than a file on FAT can be (4 GiB): take a smaller release")
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
            for key in [key for key in self._folders if key[: len(parts)] == tuple(part.upper() for part in parts)]:
                del self._folders[key]
        self._table.release(entry.cluster)
        self._folder(parts[:-1]).directory.remove(entry)

    def _made(self, parts: tuple[str, ...]) -> _Folder:
        if self._find(parts) is not None or not parts:
            return self._folder(parts)
        check_name(parts[-1])
        parent = self._made(parts[:-1])
        new_clusters = self._table.allocate(1)
        above = parent.chain[0] if len(parts) > 1 else 0
        parent.directory.add(parts[-1], FOLDER_ATTRIBUTE, new_clusters[0], 0, self._now())
        head = folder_head(new_clusters[0], above, self._now())
        data = head.ljust(self._geometry.cluster_bytes, b"\0")
        folder = self._folders[_key(parts)] = _Folder(new_clusters, FatDirectory(data), b"")
        return folder

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
        entry: FatEntry | None = None
        for depth, part in enumerate(parts):
            if depth and (entry is None or not entry.is_folder):
                return None
            entry = self._folder(parts[:depth]).directory.find(part)
        return entry

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
            yield self._geometry.data_start + (chain[at] - 2) * size, count * size
            at += count

    def _read(self, entry: FatEntry) -> Iterator[bytes]:
        remaining_bytes = entry.size_bytes
        chain = self._table.chain(entry.cluster)
        if len(chain) < self._geometry.clusters_for(remaining_bytes):
            raise ConfigError(f"{entry.name!r} in {self.where} is shorter than its entry: repair it with `fsck.fat -a`")
        for offset, size in self._places(chain) if chain else ():
            yield self._span.read(offset, min(size, remaining_bytes))
            remaining_bytes -= min(size, remaining_bytes)

    def _write_file(self, clusters: list[int], content: FileContent, wrote: Callable[[int], None]) -> None:
        if not clusters:
            return
        with content.open() as file:
            remaining_bytes = content.size_bytes
            for offset, size in self._places(clusters):
                data = file.read(min(size, remaining_bytes))
                if len(data) != min(size, remaining_bytes):
                    raise UnavailableError(
                        f"a file of the release became shorter while it was read ({content.size_bytes:,} bytes expected): try again"
                    )
                # Whole clusters: remains of an old file in the last one are overwritten too.
                self._span.write(offset, data.ljust(size, b"\0"))
                remaining_bytes -= len(data)
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
                sector = data[at + start : at + start + size]
                if (at + start >= len(folder.before)) == is_new and sector != folder.before[at + start : at + start + size]:
                    writes.append((offset + start, sector))
            at += length
        for offset, sector in reversed(writes):
            self._span.write(offset, sector)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _key(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.upper() for part in parts)
