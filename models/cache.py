"""The cache of fetched models: a folder for each, with the file, its card and a note; what was not used for longest goes first."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from edgemeter.agent import config
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import Sha256
from edgemeter.models.catalogue_entry import Entry, EntryName, FileName
from edgemeter.models.open_files import in_use

LIMIT_MB = 4096
# Marks a folder as the cache's, and keeps two from fetching into it at once: a folder without it is never counted or removed.
LOCK = ".edgemeter.lock"
NOTE = ".edgemeter.json"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in a folder of the cache; `address` is where it came from, or the bundle."""

    entry: EntryName
    file: FileName
    sha256: Sha256
    size_bytes: int
    address: str


@dataclass(frozen=True, slots=True)
class Held:
    """One folder of the cache with all that is in it; `path` is the model file, and both it and `note` None where it is unfinished."""

    folder: Path
    note: Note | None
    size_bytes: int
    used_ns: int

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.folder.name

    @property
    def path(self) -> Path | None:
        """The model file."""
        path = None if self.note is None else self.folder / self.note.file
        return path if path is not None and path.is_file() else None


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of fetched models that is kept below `limit_bytes`."""

    folder: Path
    limit_bytes: int = LIMIT_MB * 1_000_000
    is_in_use: Callable[[Path], bool] = in_use

    def path(self, entry: Entry) -> Path:
        """Return where the file of this entry lies, whether or not it is there."""
        return self.folder / entry.name / entry.file

    def held(self) -> list[Held]:
        """Return what is there, by name."""
        found = []
        for path in sorted(self.folder.glob(f"*/{LOCK}")):
            # Another process may remove it while we look.
            with suppress(FileNotFoundError):
                found.append(_held(path.parent))
        return found

    def find(self, name: str) -> tuple[Path, Note] | None:
        """Return the fetched file of this entry and what is noted of it, None where it is not there."""
        folder = self.folder / name
        held = _held(folder) if (folder / LOCK).exists() else None
        return None if held is None or held.path is None or held.note is None else (held.path, held.note)

    def keep(self, note: Note) -> None:
        """Note what lies in the entry's folder, which makes it the cache's."""
        (self.folder / note.entry / NOTE).write_bytes(msgspec.json.encode(note))

    def touch(self, path: Path) -> None:
        """Note that a file was used: many file systems do not record every reading."""
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))

    def make_room(self, needed_bytes: int, keep: Collection[str]) -> list[str]:
        """Remove models, longest unused first, until `needed_bytes` more fit; return their names.

        Those of `keep`, being fetched, or open in a program stay. It may then be fuller than its limit; see `excess_bytes`.
        """
        removed = []
        held = sorted(self.held(), key=lambda one: one.used_ns)
        total = sum(one.size_bytes for one in held) + needed_bytes
        for one in held:
            if total <= self.limit_bytes:
                break
            if one.name not in keep and self.remove(one):
                total -= one.size_bytes
                removed.append(one.name)
        return removed

    def excess_bytes(self) -> int:
        """Return by how much it is fuller than its limit."""
        return max(0, sum(one.size_bytes for one in self.held()) - self.limit_bytes)

    def remove(self, held: Held) -> bool:
        """Remove one model; return False where it is in use and stays."""
        try:
            with (held.folder / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if held.path is not None and self.is_in_use(held.path):
                    return False
                shutil.rmtree(held.folder)
        except OSError:
            # Being fetched, gone already, or not ours to remove.
            return not held.folder.exists()
        return True

    @contextmanager
    def locked(self, name: str) -> Iterator[Path]:
        """Yield the entry's folder; another process that fetches the same waits until it is done.

        Raises:
            ConfigError: it cannot be written.
        """
        folder = self.folder / name
        try:
            lock = _take(folder)
        except OSError as error:
            message = f"cannot write to the cache {str(folder)!r}: {error.strerror}; name another folder with --cache"
            raise ConfigError(message) from error
        with lock:
            yield folder


def folder() -> Path:
    """Return where fetched models lie: $EDGEMETER_MODELS, else in the agent's home."""
    return Path(os.environ.get("EDGEMETER_MODELS") or config.home() / "models").expanduser()


def _held(folder: Path) -> Held:
    note = _read(folder / NOTE)
    files = {file.name: file.stat() for file in folder.iterdir() if file.is_file()}
    telling = [stat for name, stat in files.items() if (name == note.file if note else name != LOCK)]
    used_ns = max((max(stat.st_atime_ns, stat.st_mtime_ns) for stat in telling), default=0)
    return Held(folder, note, sum(stat.st_size for stat in files.values()), used_ns)


def _read(path: Path) -> Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _take(folder: Path) -> IO[str]:
    """Return the folder's lock, taken; closing it lets go."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
        # While we waited the folder may have been removed, and our lock with it.
        if (folder / LOCK).exists() and os.path.samestat((folder / LOCK).stat(), os.fstat(lock.fileno())):
            return lock
        lock.close()
