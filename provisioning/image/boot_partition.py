"""The boot partition of a board.

It is in an image, which Debian's mtools access without root, or mounted as a folder.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line

SECTOR_BYTES = 512
# JetPack's system partition, on cards, eMMC and NVMe. Source: NVIDIA's Jetson Linux,
# flash_l4t_t234_nvme.xml and its older kin.
JETPACK_ROOT = "APP"
BOOT_FILES = frozenset({"cmdline.txt", "config.txt", "user-data"})
# Debian's package of each program; sfdisk is in a folder that a user's PATH lacks.
PACKAGES = {"mcopy": "mtools", "sfdisk": "fdisk"}
OVER_SSH = "install the agent with `edgemeter fleet apply`, over SSH, once it runs"


def decoded(path: Path, name: str, data: bytes) -> str:
    """Return a small file as text; raises ConfigError if it is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name!r} on {str(path)!r} is not text: restore it, or write the image again"
        ) from error


class MountedFolder:
    """The boot partition where it is mounted: plain files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Desktops mount a medium in a folder named after its label.
        self.label = path.name

    def names(self) -> set[str]:
        """Return the names in the folder itself, in lower case."""
        return {entry.name.lower() for entry in self.path.iterdir()}

    def text(self, name: str) -> str | None:
        """Return a small file as text, None if there is none.

        Raises:
            ConfigError: it is not text.
        """
        file = self.path / name
        return decoded(self.path, name, file.read_bytes()) if file.is_file() else None

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free

    def remove_folder(self, name: str) -> None:
        """Remove a folder, if it exists; raises OSError if that fails."""
        if (self.path / name).is_dir():
            shutil.rmtree(self.path / name)

    def write(self, staged: Path, name: str) -> None:
        """Write the file or folder `name` of the folder `staged`; raises OSError if that fails."""
        for source in files_below(staged / name):
            target = self.path / source.relative_to(staged)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        os.sync()

    # The files are in a folder already.
    def read_back(self, names: list[str], scratch: Path) -> Path:  # noqa: ARG002
        """Return the folder itself.

        The page cache of these files is dropped, so that the medium is read.
        """
        for name in names:
            for file in files_below(self.path / name):
                descriptor = os.open(file, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)
        return self.path


class ImagePartition:
    """A FAT file system at a byte of an image file; `drive` is how mtools names it."""

    def __init__(self, path: Path, offset: int) -> None:
        self.path = path
        self.drive = f"{path}@@{offset}"
        label = re.search(
            r"Volume in drive .* is (\S+)",
            self._mtools("mdir", "::").stdout.decode(errors="replace"),
        )
        self.label = label[1] if label else ""

    def names(self) -> set[str]:
        """Return the names in the root folder, in lower case."""
        lines = self._mtools("mdir", "-a", "-b", "::").stdout.decode(errors="replace").splitlines()
        return {line.removeprefix("::").strip("/").lower() for line in lines}

    def text(self, name: str) -> str | None:
        """Return a small file as text, None if there is none.

        Raises:
            ConfigError: it is not text.
        """
        return (
            decoded(self.path, name, self._mtools("mtype", f"::{name}").stdout)
            if name in self.names()
            else None
        )

    def free_bytes(self) -> int:
        free = re.search(
            r"([\d ]+) bytes free", self._mtools("mdir", "::").stdout.decode(errors="replace")
        )
        return int(free[1].replace(" ", "")) if free else 0

    def remove_folder(self, name: str) -> None:
        if name in self.names():
            self._mtools("mdeltree", f"::{name}")

    def write(self, staged: Path, name: str) -> None:
        """Write the file or folder `name` of the folder `staged`.

        Raises:
            UnavailableError: writing fails.
        """
        self._mtools("mcopy", "-s", "-o", str(staged / name), "::")

    def read_back(self, names: list[str], scratch: Path) -> Path:
        """Return `scratch` with these files and folders, copied out of the image by mtools."""
        self._mtools("mcopy", "-s", "-n", *(f"::{name}" for name in names), str(scratch))
        return scratch

    def _mtools(self, program: str, *words: str) -> "subprocess.CompletedProcess[bytes]":
        environment = {**os.environ, "LC_ALL": "C"}
        completed = subprocess.run(
            [program, "-i", self.drive, *words], env=environment, capture_output=True, check=False
        )
        if completed.returncode != 0:
            reason = one_line(
                completed.stderr.decode(errors="replace").strip()
                or f"status {completed.returncode}"
            )
            raise UnavailableError(
                f"{program} on the boot partition of {str(self.path)!r} failed ({reason}): "
                "unpack the image again, writable"
            )
        return completed


# Names in its root folder, in upper or lower case.
BootPartition: TypeAlias = MountedFolder | ImagePartition


def files_below(path: Path) -> Iterator[Path]:
    """Yield the files of a folder, or the file itself."""
    yield from (
        (file for file in sorted(path.rglob("*")) if file.is_file()) if path.is_dir() else (path,)
    )


def open_boot_partition(path: Path) -> BootPartition:
    """Return the boot partition in an image, or its mounted folder.

    Raises:
        ConfigError: there is none, or several.
    """
    if path.is_dir():
        return MountedFolder(path)
    if not path.is_file():
        raise ConfigError(
            f"there is no image {str(path)!r}: give the file of a raw image, or the folder where "
            "a card's boot partition is mounted"
        )
    search = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    for program, package in PACKAGES.items():
        if shutil.which(program, path=search) is None:
            raise UnavailableError(
                f"{program} is not installed: `sudo apt install {package}`, or give the folder "
                "where the card's boot partition is mounted"
            )
    if bare := _fat_at(path, 0):
        return bare
    listed = subprocess.run(
        [str(shutil.which("sfdisk", path=search)), "--json", str(path)],
        capture_output=True,
        check=False,
    )
    partitions: list[dict[str, Any]] = (
        json.loads(listed.stdout)["partitiontable"].get("partitions", [])
        if listed.returncode == 0
        else []
    )
    if not partitions:
        raise ConfigError(
            f"{str(path)!r} has neither a partition table nor a FAT file system: give the image "
            "of a system for boards, unpacked (`unxz`)"
        )
    if any(entry.get("name") == JETPACK_ROOT for entry in partitions):
        raise ConfigError(
            f"{str(path)!r} is an image of JetPack, which reads no file of ours at its first "
            f"boot: {OVER_SSH}"
        )
    return _booting(path, partitions)


def _booting(path: Path, partitions: list[dict[str, Any]]) -> ImagePartition:
    """Return the only FAT partition; of several, the one with a file that boards boot by."""
    size_bytes = path.stat().st_size
    if any((entry["start"] + entry["size"]) * SECTOR_BYTES > size_bytes for entry in partitions):
        raise ConfigError(
            f"{str(path)!r} ends before its last partition: the image is truncated, download or "
            "unpack it again"
        )
    volumes = [
        volume for entry in partitions if (volume := _fat_at(path, entry["start"] * SECTOR_BYTES))
    ]
    if not volumes:
        raise ConfigError(
            f"none of the {len(partitions)} partitions of {str(path)!r} is a FAT that "
            "mtools can read: "
            f"give the folder where its boot partition is mounted, or {OVER_SSH}"
        )
    if len(volumes) > 1:
        volumes = [volume for volume in volumes if BOOT_FILES & volume.names()]
    if len(volumes) != 1:
        raise ConfigError(
            f"{str(path)!r} has several FAT partitions: mount the one that boots, and "
            "give its folder"
        )
    return volumes[0]


def _fat_at(path: Path, offset: int) -> ImagePartition | None:
    try:
        return ImagePartition(path, offset)
    except UnavailableError:
        return None
