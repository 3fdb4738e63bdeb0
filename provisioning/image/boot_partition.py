"""The boot partition that a board will read, as files: within an image or a card, or mounted as a folder."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.provisioning.image import disk, partitions
from edgemeter.provisioning.image.changes import Change, Put
from edgemeter.provisioning.image.disk import Access, Disk, Span
from edgemeter.provisioning.image.fat import geometry
from edgemeter.provisioning.image.fat.volume import Volume


class Readable(Protocol):
    """What a boot partition shows, as it is or as it will be."""

    where: str

    @property
    def label(self) -> str:
        """The volume's label, empty where it has none or a folder does not tell."""

    def names(self) -> list[str]:
        """Return what is in the root folder."""

    def content(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes of a file in pieces, None when there is none."""


class BootPartition(Readable, Protocol):
    """A boot partition. `apply` carries out changes as one and refuses, before it writes, what will not fit."""

    def files(self, path: str = "") -> dict[str, int]:
        """Return the files below `path` with their sizes in bytes; none when there is no such folder."""

    def missing_bytes(self, changes: Sequence[Change]) -> int:
        """Return how much room is missing for `changes`, 0 when they fit."""

    def apply(self, changes: Sequence[Change], wrote: Callable[[int], None]) -> None:
        """Carry out `changes`; `wrote` is told how many bytes of files went out."""


def text(boot: Readable, path: str) -> str | None:
    """Return a small file as text, None when there is none.

    Raises:
        ConfigError: it is no text.
    """
    pieces = boot.content(path)
    if pieces is None:
        return None
    try:
        return b"".join(pieces).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{path!r} on {boot.where} is no text: restore it, or write the image anew"
        raise ConfigError(message) from error


def text_if_any(boot: Readable, path: str) -> str:
    """Return a small file as text, empty when there is none or it is no text: what we did not write is not ours to refuse."""
    try:
        return text(boot, path) or ""
    except ConfigError:
        return ""


@contextmanager
def opened(path: Path, access: Access, number: int | None = None) -> Iterator[BootPartition]:
    """Open the boot partition of an image or card, or the folder where it is mounted; `number` picks one of several.

    Raises:
        ConfigError: there is no FAT partition, or more than one.
    """
    if path.is_dir():
        yield Folder(path)
        return
    with disk.opened(path, access) as opened_disk:
        yield _chosen(opened_disk, number)


class InImage(Volume):
    """The boot partition within an image or card."""

    def __init__(self, span: Span, found: geometry.Geometry) -> None:
        super().__init__(span, found)
        self.where = repr(str(span.disk.path))


def _chosen(opened_disk: Disk, number: int | None) -> InImage:
    path = str(opened_disk.path)
    bare = geometry.read(opened_disk.read(0, 512))
    if bare is not None:
        return InImage(Span(opened_disk, 0, opened_disk.size_bytes), bare)
    entries = partitions.read(opened_disk)
    if not entries:
        message = (
            f"{path!r} has neither a partition table nor a FAT file system: give the image of a system for boards, or a boot partition"
        )
        raise ConfigError(message)
    found = []
    for entry in entries:
        form = geometry.read(opened_disk.read(entry.start, 512))
        if form is not None and number in (None, entry.number):
            found.append((entry, form))
        elif entry.start + 512 > opened_disk.size_bytes:
            partitions.span(opened_disk, entry)
    if not found:
        wanted = f"partition {number} of {path!r} is" if number is not None else f"none of the {len(entries)} partitions of {path!r} is"
        message = (
            f"{wanted} FAT: this system has no boot partition to prepare; use a CIDATA stick (--make-stick) or `edgemeter fleet apply`"
        )
        raise ConfigError(message)
    volumes = [InImage(partitions.span(opened_disk, entry), form) for entry, form in found]
    booting = [volume for volume in volumes if {"cmdline.txt", "config.txt", "user-data", "rpi-preseed.toml"} & _root_names(volume)]
    if len(volumes) > 1 and len(booting) != 1:
        numbers = ", ".join(str(entry.number) for entry, _ in found)
        message = f"{path!r} has several FAT partitions ({numbers}): say which one boots (--partition N)"
        raise ConfigError(message)
    return booting[0] if booting else volumes[0]


def _root_names(volume: InImage) -> set[str]:
    return {name.lower() for name in volume.names()}


class Folder:
    """The boot partition where it is mounted: plain files."""

    label = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = repr(str(path))

    def names(self) -> list[str]:
        """Return what is in the folder itself."""
        return sorted(entry.name for entry in self.path.iterdir())

    def files(self, path: str = "") -> dict[str, int]:
        """Return the files below `path` with their sizes in bytes."""
        top = self.path / path
        return {found.relative_to(self.path).as_posix(): found.stat().st_size for found in sorted(top.rglob("*")) if found.is_file()}

    def content(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes of a file in pieces, None when there is none; they are read from the medium, not from memory."""
        place = self.path / path
        return _pieces(place) if place.is_file() else None

    def missing_bytes(self, changes: Sequence[Change]) -> int:
        """Return how much room is missing for `changes`; each file is written beside the old one and takes its place."""
        puts = [change for change in changes if isinstance(change, Put)]
        state = os.statvfs(self.path)
        needed = sum(-(-put.content.size_bytes // state.f_frsize) + 1 for put in puts) * state.f_frsize
        return max(needed - state.f_bavail * state.f_frsize, 0)

    def apply(self, changes: Sequence[Change], wrote: Callable[[int], None]) -> None:
        """Carry out `changes`, each file written beside the old one and synced before it takes its place.

        Raises:
            UnavailableError: there is not enough room, or the folder cannot be written to.
        """
        missing = self.missing_bytes(changes)
        if missing:
            message = f"the boot partition {self.where} is too full: {missing / 1e6:,.1f} MB more are needed; take a smaller bundle"
            raise UnavailableError(message)
        try:
            for change in changes:
                if isinstance(change, Put):
                    _write(self.path / change.path, change, wrote)
                elif (self.path / change.path).is_dir():
                    shutil.rmtree(self.path / change.path)
                else:
                    (self.path / change.path).unlink(missing_ok=True)
            os.sync()
        except OSError as error:
            message = f"cannot write to the boot partition {self.where}: {error.strerror}; mount it writable for you"
            raise UnavailableError(message) from error


def _write(place: Path, put: Put, wrote: Callable[[int], None]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f"{place.name}.new")
    with beside.open("wb") as file:
        for chunk in put.content.chunks():
            file.write(chunk)
            wrote(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(place)


def _pieces(place: Path) -> Iterator[bytes]:
    with place.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while chunk := file.read(1 << 20):
            yield chunk
