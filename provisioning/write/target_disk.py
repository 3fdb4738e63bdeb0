"""A disk as sysfs and /proc show it, and every reason not to write to it: mounts, swap, LVM, Linux RAID, ZFS, bcache."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import ConfigError

# Offset and bytes. Sources: LVM2 lib/label/label.h; Linux md_p.h (superblocks 1.1 and 1.2), bcache_ondisk.h.
_AT = (
    (0, b"LABELONE", "LVM"),
    (512, b"LABELONE", "LVM"),
    (1024, b"LABELONE", "LVM"),
    (1536, b"LABELONE", "LVM"),
    (0, b"\xfc\x4e\x2b\xa9", "a Linux RAID"),
    (4096, b"\xfc\x4e\x2b\xa9", "a Linux RAID"),
    (4096 + 24, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81"), "a bcache"),
)

# Superblock 0.90 stands at the last whole 64 KiB but one, 1.0 at 8 KiB before the end, on a multiple of 4 KiB.
_MD = b"\xfc\x4e\x2b\xa9"

# The first label's ring of uberblocks. Source: ZFS On-Disk Specification, 1.2.
_ZFS_FROM, _ZFS_TO = 128 << 10, 256 << 10
_ZFS_MAGIC = (0x00BAB10C).to_bytes(8, "little"), (0x00BAB10C).to_bytes(8, "big")
GB = 1e9

# sysfs counts in these whatever the disk's own blocks are. Source: Linux, Documentation/ABI/stable/sysfs-block.
SECTOR_BYTES = 512
LARGE_BYTES = 512 * 10**9
SYSTEM_MOUNTS = frozenset({"/", "/boot", "/boot/efi", "/boot/firmware", "/usr", "/var", "/home", "/nix", "/etc"})


def member_of(path: Path) -> str | None:
    """Return what the disk or partition at `path` is a part of, None if that is unknown."""
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(_ZFS_TO)
            size_bytes = file.seek(0, 2)
            tails = []
            for offset in ((size_bytes & ~0xFFFF) - 0x10000, (size_bytes - 0x2000) & ~0xFFF):
                file.seek(max(0, offset))
                tails.append(file.read(len(_MD)))
    except OSError:
        return None
    for offset, magic, kind in _AT:
        if head[offset : offset + len(magic)] == magic:
            return kind
    if _MD in tails:
        return "a Linux RAID"
    ring = head[_ZFS_FROM:_ZFS_TO]
    if any(ring[at : at + 8] in _ZFS_MAGIC for at in range(0, len(ring), 1024)):
        return "a ZFS pool"
    return None


@dataclass(frozen=True, slots=True)
class KernelTrees:
    """Where the kernel shows its disks; tests pass recorded trees, whose disks are plain files."""

    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")


@dataclass(frozen=True, slots=True)
class TargetDisk:
    """A whole disk; `parts` are the names of its partitions."""

    name: str
    path: Path
    model: str
    size_bytes: int
    attached: Literal["usb", "mmc", "other"]
    is_removable: bool
    is_read_only: bool
    parts: tuple[str, ...]

    @property
    def words(self) -> str:
        """Model and size, which the user types to confirm."""
        return f"{self.model} {self.size_bytes / GB:.1f} GB"


def read_disk(device: Path, world: KernelTrees) -> TargetDisk:
    """Return the whole disk at `device`, a file of /dev or a link to one; raises ConfigError if it is not one, or only a partition."""
    path = device.resolve()
    name = path.name
    entry = world.sysfs / "class/block" / name
    if path.parent != world.dev.resolve() or not path.exists() or not entry.exists():
        raise ConfigError(f"{str(device)!r} is not a disk of this machine: `lsblk -o NAME,SIZE,MODEL,TRAN` lists them")
    if world.dev == Path("/dev"):
        status = path.stat()
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        if not stat.S_ISBLK(status.st_mode) or number != _line(entry / "dev"):
            raise ConfigError(f"{str(path)!r} is not the kernel's disk of that name: `lsblk -o NAME,SIZE,MODEL,TRAN` lists the disks")
    if (entry / "partition").exists():
        raise ConfigError(f"{str(device)!r} is a partition: give its whole disk, {str(world.dev / entry.resolve().parent.name)!r}")
    return _disk(name, path, entry)


def all_disks(world: KernelTrees) -> list[TargetDisk]:
    """Return all whole disks that have a size, without those in memory only."""
    entries = sorted((world.sysfs / "class/block").iterdir())
    physical = [entry for entry in entries if not (entry / "partition").exists() and "virtual" not in entry.resolve().parts]
    disks = [_disk(entry.name, path, entry) for entry in physical if (path := world.dev / entry.name).exists()]
    return [disk for disk in disks if disk.size_bytes]


def objections(disk: TargetDisk, world: KernelTrees, image_bytes: int | None, large: Literal["refused", "allowed"]) -> list[str]:
    """Return every reason not to write to the disk."""
    reasons = [*_uses(disk, world)]
    if disk.size_bytes == 0:
        reasons.append("it has no size: is there a card in the reader?")
    if not disk.is_removable and disk.attached == "other":
        reasons.append("it is built in: only removable disks and those on USB or MMC are written")
    if disk.is_read_only:
        reasons.append("it is read-only: check the lock on the card or its adapter")
    if image_bytes is not None and 0 < disk.size_bytes < image_bytes:
        reasons.append(f"it is smaller than the image: {disk.size_bytes} bytes, the image has {image_bytes}")
    if disk.size_bytes > LARGE_BYTES and large == "refused":
        reasons.append(f"it has {disk.size_bytes / GB:.0f} GB, which is large for a card: if it is the right one, add --force-large")
    return reasons


def _disk(name: str, path: Path, entry: Path) -> TargetDisk:
    buses: tuple[Literal["usb", "mmc"], ...] = ("usb", "mmc")
    parts = entry.resolve().parts
    vendor = _line(entry / "device/vendor")
    model = _line(entry / "device/model") or _line(entry / "device/name") or name
    return TargetDisk(
        name=name,
        path=path,
        # A PCI number (0x15b7) is not a name.
        model=model if vendor.startswith("0x") else f"{vendor} {model}".strip(),
        size_bytes=_number(entry / "size") * SECTOR_BYTES,
        attached=next((bus for bus in buses if any(re.fullmatch(rf"{bus}\d+", part) for part in parts)), "other"),
        is_removable=_number(entry / "removable") == 1,
        is_read_only=_number(entry / "ro") == 1,
        parts=tuple(sorted(path.parent.name for path in entry.glob("*/partition"))),
    )


def _uses(disk: TargetDisk, world: KernelTrees) -> Iterator[str]:
    mounted = _mounts(world)
    swapping = {_real(line.split()[0], world) for line in _text(world.proc / "swaps").splitlines()[1:] if line.split()}
    for name in (disk.name, *disk.parts):
        entry = world.sysfs / "class/block" / name
        path = world.dev / name
        for where in sorted({where for number, source, where in mounted if _line(entry / "dev") == number or path == source}):
            remedy = "this system runs from it" if where in SYSTEM_MOUNTS else "unmount it first"
            yield f"{name} is mounted at {where}: {remedy}"
        if path in swapping:
            yield f"{name} is this system's swap space"
        holders = sorted(holder.name for holder in (entry / "holders").glob("*"))
        if holders:
            yield f"{name} is in use by {', '.join(holders)} (LVM, RAID, encryption, ...)"
        if kind := member_of(path):
            yield f"{name} is part of {kind}: if it is not needed, remove that first (`wipefs -a {path}`)"


def _mounts(world: KernelTrees) -> list[tuple[str, Path, str]]:
    """Return number (major:minor), source and place of every mount."""
    mounts = []
    for line in _text(world.proc / "self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, source_fields = before.split(), after.split()
        if len(fields) > 4 and len(source_fields) > 1:
            # A btrfs has another device number there, but names its source.
            mounts.append((fields[2], _real(source_fields[1], world), fields[4].replace("\\040", " ")))
    return mounts


def _real(source: str, world: KernelTrees) -> Path:
    return world.dev / Path(source).resolve().name if source.startswith("/") else Path(source)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise ConfigError(
            f"cannot read {str(path)!r} ({error.strerror}), which lists what is in use: nothing is written without it"
        ) from error


def _line(path: Path) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _number(path: Path) -> int:
    text = _line(path)
    return int(text) if text.isdecimal() else 0
