"""The boot partition that a board will read, as files: within an image or a card, or mounted as a folder."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.provisioning.fat import geometry
from edgemeter.provisioning.fat.disk_image import DiskAccess, DiskImage, DiskSpan, open_disk, partition_span, read_partitions
from edgemeter.provisioning.fat.volume import Change, FatVolume, PutFile

# JetPack's system partition, on cards, eMMC and NVMe. Source: NVIDIA's Jetson Linux, flash_l4t_t234_nvme.xml and its older kin.
JETPACK_ROOT = "APP"


# `apply` carries out all changes or none, and refuses what does not fit before it writes; a mounted folder has no label.
BootPartition: TypeAlias = "FatVolume | MountedFolder"
# A boot partition to read, as it is or as it will be.
Readable: TypeAlias = "BootPartition | PlannedPartition"


def read_text(boot: Readable, path: str) -> str | None:
    """Return a small file as text, None if there is none; raises ConfigError if it is not text."""
    pieces = boot.content(path)
    if pieces is None:
        return None
    try:
        return b"".join(pieces).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path!r} on {boot.where} is not text: restore it, or write the image again") from error


def read_text_if_any(boot: Readable, path: str) -> str:
    """Return a small file as text, empty if there is none or it is not text: then it is not ours."""
    try:
        return read_text(boot, path) or ""
    except ConfigError:
        return ""


@contextmanager
def open_boot_partition(path: Path, access: DiskAccess, number: int | None = None) -> Iterator[BootPartition]:
    """Open the boot partition (of several that of `number`), or its mounted folder; raises ConfigError if there is not one FAT."""
    if path.is_dir():
        yield MountedFolder(path)
        return
    with open_disk(path, access) as opened_disk:
        yield _chosen(opened_disk, number)


def _chosen(opened_disk: DiskImage, number: int | None) -> FatVolume:
    path = str(opened_disk.path)
    bare = geometry.read_geometry(opened_disk.read(0, 512))
    if bare is not None:
        return FatVolume(DiskSpan(opened_disk, 0, opened_disk.size_bytes), bare)
    entries = read_partitions(opened_disk)
    if not entries:
        raise ConfigError(
            f"{path!r} has neither a partition table nor a FAT file system: give the image of a system for boards, or a boot partition"
        )
    if number is None and any(entry.name == JETPACK_ROOT for entry in entries):
        raise ConfigError(
            f"{path!r} is an image of JetPack, which reads no file of ours at its first boot: start the board with it, finish NVIDIA's "
            "set-up, then run `edgemeter fleet apply`"
        )
    partitions = []
    for entry in entries:
        form = geometry.read_geometry(opened_disk.read(entry.start, 512))
        if form is not None and number in (None, entry.number):
            partitions.append((entry, form))
        elif entry.start + 512 > opened_disk.size_bytes:
            partition_span(opened_disk, entry)
    if not partitions:
        subject = f"partition {number} of {path!r} is" if number is not None else f"none of the {len(entries)} partitions of {path!r} is"
        raise ConfigError(
            f"{subject} FAT: this system has no boot partition to prepare; use a CIDATA stick (--make-stick) or `edgemeter fleet apply`"
        )
    volumes = [FatVolume(partition_span(opened_disk, entry), form) for entry, form in partitions]
    boot_files = {"cmdline.txt", "config.txt", "user-data", "rpi-preseed.toml"}
    booting = [volume for volume in volumes if boot_files & {name.lower() for name in volume.names()}]
    if len(volumes) > 1 and len(booting) != 1:
        numbers = ", ".join(str(entry.number) for entry, _ in partitions)
        raise ConfigError(f"{path!r} has several FAT partitions ({numbers}): choose the one that boots (--partition N)")
    return booting[0] if booting else volumes[0]


class MountedFolder:
    """The boot partition where it is mounted: plain files."""

    label = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = repr(str(path))

    def names(self) -> list[str]:
        """Return the names in the folder itself."""
        return sorted(entry.name for entry in self.path.iterdir())

    def files(self, path: str = "") -> dict[str, int]:
        """Return the files below `path` with their sizes in bytes."""
        top = self.path / path
        return {file.relative_to(self.path).as_posix(): file.stat().st_size for file in sorted(top.rglob("*")) if file.is_file()}

    def content(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes of a file in pieces, None if there is none; they are read from the medium, not from the page cache."""
        file = self.path / path
        return _pieces(file) if file.is_file() else None

    def missing_bytes(self, changes: Sequence[Change]) -> int:
        """Return how much space is missing for `changes`; each file is written beside the old one and replaces it."""
        puts = [change for change in changes if isinstance(change, PutFile)]
        state = os.statvfs(self.path)
        needed_bytes = sum(-(-put.content.size_bytes // state.f_frsize) + 1 for put in puts) * state.f_frsize
        return max(needed_bytes - state.f_bavail * state.f_frsize, 0)

    def apply(self, changes: Sequence[Change], wrote: Callable[[int], None]) -> None:
        """Carry out `changes`, each file synced beside the old one first; raises UnavailableError without room, or permission."""
        missing = self.missing_bytes(changes)
        if missing:
            raise UnavailableError(
                f"the boot partition {self.where} is too full: {missing / 1e6:,.1f} MB more are needed; take a smaller release"
            )
        with os_error_as(UnavailableError, f"cannot write to the boot partition {self.where}", "mount it writable for this user"):
            for change in changes:
                if isinstance(change, PutFile):
                    _write(self.path / change.path, change, wrote)
                elif (self.path / change.path).is_dir():
                    shutil.rmtree(self.path / change.path)
                else:
                    (self.path / change.path).unlink(missing_ok=True)
            os.sync()


class PlannedPartition:
    """A boot partition as it will be: its present files with planned changes."""

    def __init__(self, boot: Readable) -> None:
        self.where: str = boot.where
        self.changes: dict[str, Change] = {}
        self._boot = boot

    @property
    def label(self) -> str:
        """The volume's label."""
        return self._boot.label

    def names(self) -> list[str]:
        """Return the present names of the root folder that will remain."""
        return [name for name in self._boot.names() if name.lower() not in self.changes or self.content(name) is not None]

    def content(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes that a file will have in pieces, None if there will be none."""
        change = self.changes.get(path.lower())
        if change is None:
            return self._boot.content(path)
        return change.content.chunks() if isinstance(change, PutFile) else None


def _write(path: Path, put: PutFile, wrote: Callable[[int], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new_file = path.with_name(f"{path.name}.new")
    with new_file.open("wb") as file:
        for chunk in put.content.chunks():
            file.write(chunk)
            wrote(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    new_file.replace(path)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while chunk := file.read(1 << 20):
            yield chunk
