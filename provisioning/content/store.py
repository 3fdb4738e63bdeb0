"""The content store: files named by their sha256, put in place whole or not at all, and read from any thread or process."""

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from edgemeter.agent import durable_file
from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.jobs.contract import Content, FileName, Sha256

PIECE_BYTES = 1 << 20
# What nothing names yet may be about to be named by the command that has just put it there.
YOUNG_NS = 24 * 3600 * 1_000_000_000
_UNFINISHED = ".unfinished-"


class ContentStore:
    """The contents in `folder`, which is made when the first is put."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, source: Path, name: str | None = None) -> Content:
        """Keep a copy of `source`, and return what an order calls it; what is there already stays, if it is whole.

        Raises:
            ConfigError: `source` cannot be read, or its name is not one that an order may hold.
            UnavailableError: the store cannot be written.
        """
        called = _named(name or source.name)
        try:
            with source.open("rb") as file:
                return self._put(partial(_copy, file), called)
        except OSError as error:
            message = f"cannot read {str(source)!r}: {error.strerror}"
            raise ConfigError(message) from error

    def put_bytes(self, content: bytes, name: str) -> Content:
        """Keep `content`, and return what an order calls it.

        Raises:
            ConfigError: the name is not one that an order may hold.
            UnavailableError: the store cannot be written.
        """
        return self._put(partial(_copy, io.BytesIO(content)), _named(name))

    def put_written(self, write: Callable[["Written"], None], name: str) -> Content:
        """Keep what `write` writes to the file that it is given, from the beginning to the end, and return what an order calls it.

        Raises:
            ConfigError: the name is not one that an order may hold.
            UnavailableError: the store cannot be written.
        """
        return self._put(write, _named(name))

    def path(self, sha256: str) -> Path | None:
        """Return where that content stands; None where there is none, or it is no sha256 at all."""
        if not _is_sha256(sha256):
            return None
        path = self._folder / sha256
        return path if path.is_file() else None

    def read(self, sha256: str, offset: int, length: int) -> tuple[int, bytes] | None:
        """Return the size of that content and up to `length` of its bytes from `offset` on; None where there is none."""
        path = self.path(sha256)
        try:
            if path is None:
                return None
            with path.open("rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                # Beyond the end there is nothing, and a far seek is an error on some file systems.
                file.seek(min(offset, size_bytes))
                return size_bytes, file.read(length)
        except FileNotFoundError:
            return None
        except OSError as error:
            message = f"cannot read the content {str(path)!r}: {error.strerror}"
            raise UnavailableError(message) from error

    def collect(self, named: Collection[str], now_ns: int, young_ns: int = YOUNG_NS) -> list[str]:
        """Remove what is not in `named`, and what was never finished, unless it is young; return the hashes of what went."""
        gone = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else []:
            if path.name in named or not (_is_sha256(path.name) or path.name.startswith(_UNFINISHED)):
                continue
            try:
                if path.stat().st_mtime_ns > now_ns - young_ns:
                    continue
                path.unlink()
            except OSError:
                # Another process was first, or may not; the next look tries again.
                continue
            if _is_sha256(path.name):
                gone.append(path.name)
        return gone

    def _put(self, write: Callable[["Written"], None], name: str) -> Content:
        unfinished: str | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, unfinished = tempfile.mkstemp(prefix=_UNFINISHED, dir=self._folder)
            with os.fdopen(descriptor, "wb") as file:
                hashed = Written(file)
                write(hashed)
                file.flush()
                os.fsync(file.fileno())
            content = hashed.content(name)
            self._place(Path(unfinished), content.sha256, content.size_bytes)
        except _SourceError as error:
            raise error.reason from error
        except OSError as error:
            message = f"cannot keep {name!r} among the fleet's content, {str(self._folder)!r}: {error.strerror}"
            raise UnavailableError(message) from error
        finally:
            if unfinished is not None:
                Path(unfinished).unlink(missing_ok=True)
        return content

    def _place(self, unfinished: Path, sha256: str, size_bytes: int) -> None:
        path = self._folder / sha256
        if _is_whole(path, sha256, size_bytes):
            # Named again: as young as new.
            os.utime(path)
            return
        unfinished.replace(path)
        durable_file.sync_folder(self._folder)


class Rehearsal(ContentStore):
    """A store that says what it would call things, and keeps nothing."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))

    def _put(self, write: Callable[["Written"], None], name: str) -> Content:
        hashed = Written(None)
        try:
            write(hashed)
        except _SourceError as error:
            raise error.reason from error
        return hashed.content(name)


class Written:
    """A file that is written from its beginning to its end, and hashed meanwhile; nobody can go back in it."""

    def __init__(self, target: BinaryIO | None) -> None:
        self._target = target
        self._digest = hashlib.sha256()
        self._size_bytes = 0

    def write(self, piece: bytes, /) -> int:
        """Take the next bytes, and return how many."""
        self._digest.update(piece)
        if self._target is not None:
            self._target.write(piece)
        self._size_bytes += len(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: whoever has opened the file does."""

    def close(self) -> None:
        """Do nothing, too."""

    def content(self, name: str) -> Content:
        """Return what was written, by its hash."""
        return Content(sha256=self._digest.hexdigest(), size_bytes=self._size_bytes, name=name)


class _SourceError(EdgemeterError):
    """The source could not be read; told from the store that could not be written."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _copy(source: BinaryIO, target: "Written") -> None:
    while True:
        try:
            piece = source.read(PIECE_BYTES)
        except OSError as error:
            raise _SourceError(error) from error
        if not piece:
            return
        target.write(piece)


def _is_whole(path: Path, sha256: str, size_bytes: int) -> bool:
    try:
        if path.stat().st_size != size_bytes:
            return False
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
    except OSError:
        return False
    return digest.hexdigest() == sha256


def _is_sha256(text: str) -> bool:
    try:
        msgspec.convert(text, Sha256)
    except msgspec.ValidationError:
        return False
    return True


def _named(name: str) -> str:
    try:
        return msgspec.convert(name, FileName)
    except msgspec.ValidationError as error:
        message = f"{name!r} cannot be the name of content for devices: letters, digits, dots, dashes and underscores, at most 128"
        raise ConfigError(message) from error
