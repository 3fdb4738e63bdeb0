"""The content store: files named by their sha256, put in place whole or not at all, and read from any thread or process."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.orders import Content, FileName, Sha256

PIECE_BYTES = 1 << 20

# Content that nothing refers to yet may be about to be referred to by the command that has just stored it.
YOUNG_NS = NS_PER_DAY
_UNFINISHED = ".unfinished-"


class ContentStore:
    """The contents in `folder`, which is made for the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, source: Path, name: str | None = None) -> Content:
        """Store a copy of `source`, or keep an intact one; raises ConfigError for it or its name, UnavailableError for the store."""
        return self.put_written(lambda target: [target.write(data) for data in pieces(source)], name or source.name)

    def put_bytes(self, content: bytes, name: str) -> Content:
        """Store `content`, and return it as orders name it; raises as `put`."""
        return self.put_written(lambda target: target.write(content), name)

    def put_written(self, write: Callable[["HashingWriter"], object], name: str) -> Content:
        """Store what `write` writes to the given file, from beginning to end, and return it as orders name it; raises as `put`."""
        content_name, unfinished = _named(name), ""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, unfinished = tempfile.mkstemp(prefix=_UNFINISHED, dir=self._folder)
            with os.fdopen(descriptor, "wb") as file:
                hashed = HashingWriter(file)
                write(hashed)
                file.flush()
                os.fsync(file.fileno())
            content = hashed.content(content_name)
            self._place(Path(unfinished), content.sha256, content.size_bytes)
        except OSError as error:
            raise UnavailableError(f"cannot store {name!r} in the fleet's content, {str(self._folder)!r}: {error.strerror}") from error
        finally:
            if unfinished:
                Path(unfinished).unlink(missing_ok=True)
        return content

    def path(self, sha256: str) -> Path | None:
        """Return the path of a content, None where there is none or it is not a sha256."""
        if not _is_sha256(sha256):
            return None
        path = self._folder / sha256
        return path if path.is_file() else None

    def collect(self, named: Collection[str], now_ns: int, young_ns: int = YOUNG_NS) -> list[str]:
        """Remove contents that are not in `named`, and unfinished ones, unless they are young; return the removed hashes."""
        removed = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else []:
            if path.name in named or not (_is_sha256(path.name) or path.name.startswith(_UNFINISHED)):
                continue
            try:
                if path.stat().st_mtime_ns > now_ns - young_ns:
                    continue
                path.unlink()
            except OSError:
                # Another process was first, or has no permission; the next call tries again.
                continue
            if _is_sha256(path.name):
                removed.append(path.name)
        return removed

    def _place(self, unfinished: Path, sha256: str, size_bytes: int) -> None:
        path = self._folder / sha256
        if _is_whole(path, sha256, size_bytes):
            # Referred to again: as young as new.
            os.utime(path)
            return
        unfinished.replace(path)
        durable_file.sync(self._folder)


class DryRunStore(ContentStore):
    """A store that names contents and keeps nothing."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))

    def put_written(self, write: Callable[["HashingWriter"], object], name: str) -> Content:
        """Return what `write` writes, as orders name it."""
        content_name, hashed = _named(name), HashingWriter(None)
        write(hashed)
        return hashed.content(content_name)


class HashingWriter:
    """A file that is written from beginning to end, and hashed meanwhile; it cannot seek."""

    def __init__(self, target: BinaryIO | None) -> None:
        self._target = target
        self._digest = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes, /) -> int:
        """Take the next bytes, and return how many."""
        self._digest.update(data)
        if self._target is not None:
            self._target.write(data)
        self._size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing, as `close`: the opener of the file does."""

    close = flush

    def content(self, name: str) -> Content:
        """Return what was written, by its hash."""
        return Content(sha256=self._digest.hexdigest(), size_bytes=self._size_bytes, name=name)


def pieces(source: Path) -> Iterator[bytes]:
    """Yield the bytes of a file; raises ConfigError if it cannot be read."""
    with os_error_as(ConfigError, f"cannot read {str(source)!r}"), source.open("rb") as file:
        while data := file.read(PIECE_BYTES):
            yield data


def _is_whole(path: Path, sha256: str, size_bytes: int) -> bool:
    try:
        return path.stat().st_size == size_bytes and durable_file.sha256_of(path) == sha256
    except OSError:
        return False


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
        raise ConfigError(
            f"{name!r} cannot be the name of content for devices: use letters, digits, dots, dashes and underscores, at most 128"
        ) from error
