"""Content on the device: files named by their sha256 in `content/`, whole and checked, or `.part` while they are fetched."""

import contextlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.orders import Content

HERE, FAILED, WRONG_HASH, INCOMPLETE = 0, 1, 3, 4


class FetchTask(msgspec.Struct, frozen=True, kw_only=True):
    """The files to fetch, their source, and their destination; `tls` are CA, certificate and key."""

    content: Content
    part: str
    final: str
    url: str | None = None
    tls: tuple[str | None, str | None, str | None] = (None, None, None)


CONTENT_FOLDER = "content"
PART = ".part"
DATA = ".data"

# Twice the size: what is written beside it (a release that is built, results) needs room too.
FREE_RATIO = 2


class DeviceContent:
    """The contents below `home`, of at most about `limit_bytes` beside what is in use."""

    def __init__(self, home: Path, limit_bytes: int) -> None:
        self.folder = home / CONTENT_FOLDER
        self._limit_bytes = limit_bytes

    def path(self, content: Content) -> Path:
        """Return where the content is once it is here."""
        return self.folder / content.sha256

    def part(self, content: Content) -> Path:
        """Return where it is while it is fetched."""
        return self.folder / f"{content.sha256}{PART}"

    def is_here(self, content: Content) -> bool:
        """Return whether it is here, whole, as its name says: it was put in place only after its hash was right."""
        try:
            return self.path(content).stat().st_size == content.size_bytes
        except OSError:
            return self._unpacked(content).is_dir()

    def used(self, content: Content) -> None:
        """Note that it is used now."""
        for path in (self.path(content), self._unpacked(content)):
            with contextlib.suppress(OSError):
                os.utime(path)

    def make_room(self, content: Content, in_use: Collection[str]) -> None:
        """Remove what is used least until `content` fits; begin its file.

        Raises:
            UnavailableError: the disk has not twice its size free, or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sizes = {path: _size_bytes(path) for path in sorted(self.folder.iterdir(), key=lambda path: path.lstat().st_mtime_ns)}
            kept_bytes = sum(sizes.values())
            here_bytes = self.part(content).stat().st_size if self.part(content).exists() else 0
            needed_bytes = FREE_RATIO * content.size_bytes - here_bytes
            for path, size_bytes in sizes.items():
                is_short = self._free_bytes() < needed_bytes
                if not is_short and kept_bytes + content.size_bytes - here_bytes <= self._limit_bytes:
                    break
                if path.name.partition(".")[0] not in {*in_use, content.sha256}:
                    kept_bytes -= size_bytes
                    _remove(path)
            if (free_bytes := self._free_bytes()) < needed_bytes:
                raise UnavailableError(
                    f"no space: {content.name!r} needs {needed_bytes / 1e6:.1f} MB free (twice its size), "
                    f"only {free_bytes / 1e6:.1f} MB are"
                )
            self.part(content).touch(mode=0o600)
        except OSError as error:
            raise UnavailableError(
                f"cannot keep content in {str(self.folder)!r} ({error.strerror}): check that the folder may be written"
            ) from error

    def _unpacked(self, content: Content) -> Path:
        return self.folder / f"{content.sha256}{DATA}"

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free


def _size_bytes(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(below.lstat().st_size for below in path.rglob("*") if not below.is_dir())


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    if path.suffix == DATA:
        # Half of it must not be taken for the whole.
        part = path.with_name(f"{path.name}{PART}")
        shutil.rmtree(part, ignore_errors=True)
        path = path.rename(part)
    shutil.rmtree(path)
