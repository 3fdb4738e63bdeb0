"""A FAT file system: its files read, and changed so that a power cut at any moment leaves one that works.

The order of a change: (1) new content and new folders go into free clusters; (2) both copies of the table claim them; (3) directories
name them, one sector after the other: an entry lies within one sector, so each file is either the old or the new; (4) what nothing names
any more is freed. Cut short between, the worst that stays is clusters that nothing uses, which any check of the file system gives back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.provisioning.image.changes import CHUNK_BYTES, Change, Content, Put
from edgemeter.provisioning.image.disk import Span
from edgemeter.provisioning.image.fat import names
from edgemeter.provisioning.image.fat.directory import ARCHIVE, FOLDER, Directory, Entry, folder_head
from edgemeter.provisioning.image.fat.geometry import Geometry
from edgemeter.provisioning.image.fat.table import Table

FILE_MAX_BYTES = (1 << 32) - 1
MB = 1_000_000
# Deeper than any name on FAT can be long: a folder that holds itself.
DEPTH_MAX = 130


@dataclass(slots=True)
class _Folder:
    """A directory in memory: where it stands (`chain` is empty for the fixed root of FAT16), and what it held when it was read."""

    chain: list[int]
    directory: Directory
    before: bytes


class Volume:
    """One file system. Everything is planned in memory, and refused there; what is written is then only what will hold."""

    def __init__(self, span: Span, geometry: Geometry, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> None:
        if geometry.total_bytes > span.size_bytes:
            message = (
                f"the file system of {str(span.disk.path)!r} is {geometry.total_bytes:,} bytes, its place only {span.size_bytes:,}: "
                "the image is cut short, fetch or unpack it again"
            )
            raise ConfigError(message)
        self._span = span
        self._geometry = geometry
        self._now = now
        self._table = Table(span, geometry)
        self._folders: dict[tuple[str, ...], _Folder] = {}
        self._new: list[tuple[list[int], Content]] = []

    @property
    def label(self) -> str:
        """The volume's label: that of the root directory, else the boot sector's."""
        return self._folder(()).directory.label() or self._geometry.label

    def names(self) -> list[str]:
        """Return what is in the root folder."""
        return [entry.name for entry in self._folder(()).directory.entries()]

    def files(self, path: str = "") -> dict[str, int]:
        """Return every file below `path` with its size in bytes; folders are walked."""
        found: dict[str, int] = {}
        if self._find(_parts(path)) is None and _parts(path):
            return found
        for place, entry in self._walk(_parts(path)):
            if not entry.is_folder:
                found["/".join([*place, entry.name])] = entry.size_bytes
        return found

    def content(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes of a file in pieces, None when there is no such file."""
        entry = self._find(_parts(path))
        return None if entry is None or entry.is_folder else self._read(entry)

    def missing_bytes(self, changes: Sequence[Change]) -> int:
        """Return how much room is missing for `changes`, 0 when they fit: new files stand beside the old until the end."""
        puts = [change for change in changes if isinstance(change, Put)]
        folders = {_parts(put.path)[:depth] for put in puts for depth in range(1, len(_parts(put.path)))}
        clusters = sum(self._geometry.clusters_for(put.content.size_bytes) for put in puts)
        # An entry of a long name takes up to 21 slots of 32 bytes; two clusters more cover what a full folder grows by.
        clusters += sum(self._geometry.clusters_for(32 * 21 * (len(puts) + 2)) for folder in folders if self._find(folder) is None)
        clusters += 2 * len(folders) + (1 if self._geometry.bits == 32 else 0) if puts else 0
        return max(clusters - self._table.free_clusters, 0) * self._geometry.cluster_bytes

    def apply(self, changes: Sequence[Change], wrote: Callable[[int], None] = lambda _: None) -> None:
        """Carry out `changes` as one; `wrote` is told how many bytes of files went out.

        Raises:
            UnavailableError: there is not enough room, nothing has been written.
            ConfigError: a name that FAT does not have, a folder in a file's place, a damaged directory; nothing has been written.
        """
        missing = self.missing_bytes(changes)
        if missing:
            free = self._table.free_clusters * self._geometry.cluster_bytes
            message = (
                f"the boot partition of {str(self._span.disk.path)!r} is too full: {free / MB:,.1f} MB are free, "
                f"{missing / MB:,.1f} MB more are needed; take a smaller bundle, or delete files there"
            )
            raise UnavailableError(message)
        for change in changes:
            parts = _parts(change.path)
            if isinstance(change, Put):
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
        """Give folders that have grown the clusters that they need."""
        size = self._geometry.cluster_bytes
        for folder in self._folders.values():
            data = folder.directory.data
            if not folder.chain:
                if len(data) > self._geometry.root_bytes:
                    message = (
                        f"the root folder of {str(self._span.disk.path)!r} is full (FAT16 holds only so many names): delete files there"
                    )
                    raise UnavailableError(message)
                continue
            data.extend(bytes(-len(data) % size))
            more = len(data) // size - len(folder.chain)
            if more > self._table.free_clusters:
                message = f"the boot partition of {str(self._span.disk.path)!r} is too full for more folders: delete files there"
                raise UnavailableError(message)
            if more:
                folder.chain += self._table.allocate(more, after=folder.chain[-1])

    def _put(self, parts: tuple[str, ...], content: Content) -> None:
        if content.size_bytes > FILE_MAX_BYTES:
            message = f"{'/'.join(parts)!r} is larger than a file on FAT can be (4 GiB): take a smaller bundle"
            raise ConfigError(message)
        folder = self._made(parts[:-1])
        names.check(parts[-1])
        entry = folder.directory.find(parts[-1])
        if entry is not None and entry.is_folder:
            message = f"{'/'.join(parts)!r} is a folder in {str(self._span.disk.path)!r}, a file is to stand there: delete it"
            raise ConfigError(message)
        clusters = self._table.allocate(self._geometry.clusters_for(content.size_bytes))
        first = clusters[0] if clusters else 0
        if entry is None:
            folder.directory.add(parts[-1], ARCHIVE, first, content.size_bytes, self._now())
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
        """Return a folder, made where it is not there yet."""
        if self._find(parts) is not None or not parts:
            return self._folder(parts)
        names.check(parts[-1])
        parent = self._made(parts[:-1])
        own = self._table.allocate(1)
        above = parent.chain[0] if len(parts) > 1 else 0
        parent.directory.add(parts[-1], FOLDER, own[0], 0, self._now())
        head = folder_head(own[0], above, self._now())
        data = head + bytes(self._geometry.cluster_bytes - len(head))
        made = _Folder(own, Directory(data), b"")
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
                    message = f"{'/'.join(parts)!r} is no folder in {str(self._span.disk.path)!r}: delete the file of that name"
                    raise ConfigError(message)
                chain = self._table.chain(entry.cluster)
                if not chain:
                    message = f"the folder {'/'.join(parts)!r} in {str(self._span.disk.path)!r} is damaged: repair it with `fsck.fat -a`"
                    raise ConfigError(message)
            data = b"".join(self._span.read(offset, size) for offset, size in self._places(chain))
            self._folders[key] = _Folder(chain, Directory(data), data)
        return self._folders[key]

    def _find(self, parts: tuple[str, ...]) -> Entry | None:
        found: Entry | None = None
        for depth, part in enumerate(parts):
            if depth and (found is None or not found.is_folder):
                return None
            found = self._folder(parts[:depth]).directory.find(part)
        return found

    def _walk(self, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Entry]]:
        if len(parts) > DEPTH_MAX:
            message = f"the folders of {str(self._span.disk.path)!r} run in a circle: repair it with `fsck.fat -a`"
            raise ConfigError(message)
        for entry in list(self._folder(parts).directory.entries()):
            yield parts, entry
            if entry.is_folder:
                yield from self._walk((*parts, entry.name))

    def _places(self, chain: list[int]) -> Iterator[tuple[int, int]]:
        """Yield (offset, bytes) of the neighbouring clusters of a chain, joined up to a chunk; of the fixed root when it is empty."""
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

    def _read(self, entry: Entry) -> Iterator[bytes]:
        left = entry.size_bytes
        chain = self._table.chain(entry.cluster)
        if len(chain) < self._geometry.clusters_for(left):
            message = f"{entry.name!r} in {str(self._span.disk.path)!r} is shorter than its entry says: repair it with `fsck.fat -a`"
            raise ConfigError(message)
        for offset, size in self._places(chain) if chain else ():
            yield self._span.read(offset, min(size, left))
            left -= min(size, left)

    def _write_file(self, clusters: list[int], content: Content, wrote: Callable[[int], None]) -> None:
        if not clusters:
            return
        with content.open() as file:
            left = content.size_bytes
            for offset, size in self._places(clusters):
                data = file.read(min(size, left))
                if len(data) != min(size, left):
                    message = f"a file of the bundle became shorter while it was read ({content.size_bytes:,} bytes expected): try again"
                    raise UnavailableError(message)
                # Whole clusters: what an old file left in the last one goes too.
                self._span.write(offset, data.ljust(size, b"\0"))
                left -= len(data)
                wrote(len(data))

    def _write_folder(self, folder: _Folder, *, is_new: bool) -> None:
        """Write what is in clusters new to the folder, or else the sectors of the others that have changed.

        The later sectors go first: nobody reads them before the earlier ones lead there.
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
