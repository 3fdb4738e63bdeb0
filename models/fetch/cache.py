"""The cache of fetched models: a folder for each, with the file, its card and a note; the least recently used are removed first."""

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

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.types import Sha256
from edgemeter.models.catalogue.catalogue import CatalogueEntry, EntryName, FileName

LIMIT_MB = 4096
# Marks a folder as the cache's, and keeps two processes from fetching into it at once: a folder without it is never counted or removed.
LOCK = ".edgemeter.lock"
NOTE = ".edgemeter.json"


def cache_folder() -> Path:
    """Return the folder of fetched models: $EDGEMETER_MODELS, else `models` in the agent's home."""
    return Path(os.environ.get("EDGEMETER_MODELS") or config.home() / "models").expanduser()


def is_in_use(path: Path) -> bool:
    """Return whether another process that we may inspect has `path` open, mapped or on its command line."""
    real = os.fsencode(path.resolve())
    processes = (process for process in Path("/proc").iterdir() if process.name.isdecimal() and int(process.name) != os.getpid())
    return any(_uses(process, real) for process in processes)


def _uses(process: Path, path: bytes) -> bool:
    """Return whether a process does. Source: proc(5), `cmdline`, `fd` and `maps`."""
    try:
        return (
            path in (process / "cmdline").read_bytes().split(b"\0")
            or any(line.endswith(b" " + path) for line in (process / "maps").read_bytes().splitlines())
            or any(os.fsencode(descriptor.readlink()) == path for descriptor in (process / "fd").iterdir())
        )
    except OSError:
        # It has ended, or belongs to another user.
        return False


class CacheNote(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a cache folder; `address` is its origin."""

    entry: EntryName
    file: FileName
    sha256: Sha256
    size_bytes: int
    address: str


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One folder of the cache; while the download is unfinished, `note` and `path` are None."""

    folder: Path
    note: CacheNote | None
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
class ModelCache:
    """A folder of fetched models that is kept below `limit_bytes`."""

    folder: Path
    limit_bytes: int = LIMIT_MB * 1_000_000
    is_in_use: Callable[[Path], bool] = is_in_use

    def path(self, entry: CatalogueEntry) -> Path:
        """Return the path of the entry's file, whether or not it exists."""
        return self.folder / entry.name / entry.file

    def models(self) -> list[CachedModel]:
        """Return the cached models by name."""
        models = []
        for path in sorted(self.folder.glob(f"*/{LOCK}")):
            # Another process may remove it meanwhile.
            with suppress(FileNotFoundError):
                models.append(_cached(path.parent))
        return models

    def find(self, name: str) -> tuple[Path, CacheNote] | None:
        """Return the file of this entry and its note, None if it is not fetched."""
        folder = self.folder / name
        cached = _cached(folder) if (folder / LOCK).exists() else None
        return None if cached is None or cached.path is None or cached.note is None else (cached.path, cached.note)

    def local_file(self, entry: CatalogueEntry) -> tuple[Path | None, CacheNote | None]:
        """Return the entry's file, fetched (then with its note) or the user's own, whether or not that exists; None if it is neither."""
        return self.find(entry.name) or (Path(entry.path) if entry.path else None, None)

    def keep(self, note: CacheNote) -> None:
        """Write the note of the entry's folder."""
        (self.folder / note.entry / NOTE).write_bytes(msgspec.json.encode(note))

    def touch(self, path: Path) -> None:
        """Mark a file as used: many file systems do not record reads."""
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))

    def make_room(self, needed_bytes: int, keep: Collection[str]) -> list[str]:
        """Remove models, the least recently used first, until `needed_bytes` more fit; return their names.

        The models in `keep`, models being fetched and models in use stay, so the cache may exceed its limit; see `excess_bytes`.
        """
        removed = []
        cached = sorted(self.models(), key=lambda model: model.used_ns)
        total = sum(model.size_bytes for model in cached) + needed_bytes
        for model in cached:
            if total <= self.limit_bytes:
                break
            if model.name not in keep and self.remove(model):
                total -= model.size_bytes
                removed.append(model.name)
        return removed

    def excess_bytes(self) -> int:
        """Return by how much the cache exceeds its limit."""
        return max(0, sum(model.size_bytes for model in self.models()) - self.limit_bytes)

    def remove(self, cached: CachedModel) -> bool:
        """Remove one model; return False if it is in use and stays."""
        try:
            with (cached.folder / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if cached.path is not None and self.is_in_use(cached.path):
                    return False
                shutil.rmtree(cached.folder)
        except OSError:
            # Being fetched, removed already, or not ours to remove.
            return not cached.folder.exists()
        return True

    @contextmanager
    def locked(self, name: str) -> Iterator[Path]:
        """Yield the entry's folder; another process that fetches the same entry waits.

        Raises:
            ConfigError: the folder cannot be written.
        """
        folder = self.folder / name
        with os_error_as(ConfigError, f"cannot write to the cache {str(folder)!r}", "choose another folder with --cache"):
            lock = _lock(folder)
        with lock:
            yield folder


def _cached(folder: Path) -> CachedModel:
    try:
        note = decode_json((folder / NOTE).read_bytes(), CacheNote)
    except (OSError, msgspec.MsgspecError):
        note = None
    files = {file.name: file.stat() for file in folder.iterdir() if file.is_file()}
    used = [stat for name, stat in files.items() if (name == note.file if note else name != LOCK)]
    used_ns = max((max(stat.st_atime_ns, stat.st_mtime_ns) for stat in used), default=0)
    return CachedModel(folder, note, sum(stat.st_size for stat in files.values()), used_ns)


def _lock(folder: Path) -> IO[str]:
    """Return the folder's lock, taken; closing it releases it."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
        # While we waited the folder may have been removed, and our lock with it.
        if (folder / LOCK).exists() and os.path.samestat((folder / LOCK).stat(), os.fstat(lock.fileno())):
            return lock
        lock.close()
