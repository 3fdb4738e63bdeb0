"""Whether a disk or partition is a part of something larger: LVM, Linux RAID, ZFS, bcache. What is idle now may be needed tomorrow."""

from pathlib import Path

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


def member_of(path: Path) -> str | None:
    """Return what the disk or partition at `path` is a part of; None: nothing known, or it cannot be read."""
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
