"""One directory of a FAT file system, as the bytes that it takes; short names (eight characters and three) and long ones.

Source: Microsoft, FAT32 File System Specification 1.03, "Long Directory Entries".
"""

import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import datetime

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.fat.geometry import ENTRY_BYTES

LONG_MAX = 255
FORBIDDEN = frozenset('"*/:<>?\\|') | {chr(code) for code in range(32)} | {"\x7f"}
SHORT = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'()-@^_`{}~")
PER_ENTRY = 13
DELETED = 0xE5
LONG = 0x0F
LABEL_ATTRIBUTE = 0x08
FOLDER_ATTRIBUTE = 0x10
ARCHIVE_ATTRIBUTE = 0x20


def check_name(name: str) -> None:
    """Check the name of a file; raises ConfigError if FAT does not allow it."""
    if not name or name in (".", "..") or len(name) > LONG_MAX or FORBIDDEN & set(name) or name[-1] in ". ":
        raise ConfigError(f"FAT does not allow the file name {name!r}: rename the file")


def is_short(name: str) -> bool:
    """Return whether the name needs no long one: capitals, at most eight characters and three."""
    stem, dot, suffix = name.partition(".")
    return 0 < len(stem) <= 8 and len(suffix) <= 3 and bool(suffix) == bool(dot) and set(stem + suffix) <= SHORT


def make_short_name(name: str, existing: Container[bytes]) -> bytes:
    """Return the 11 bytes of a short name, not among `existing`, for `name`."""
    stem, _, suffix = name.rpartition(".") if "." in name[1:] else (name, "", "")
    stem = "".join(letter if letter in SHORT else "_" for letter in stem.upper() if letter not in ". ")
    suffix = "".join(letter if letter in SHORT else "_" for letter in suffix.upper() if letter != " ")[:3]
    if is_short(name) and (padded := _padded(stem, suffix)) not in existing:
        return padded
    for number in range(1, 1_000_000):
        tail = f"~{number}"
        candidate = _padded(stem[: 8 - len(tail)] + tail, suffix)
        if candidate not in existing:
            return candidate
    raise ConfigError(f"no short name is left for {name!r} in its folder: delete files there")


def _padded(stem: str, suffix: str) -> bytes:
    return stem.ljust(8).encode("ascii") + suffix.ljust(3).encode("ascii")


def short_name_checksum(name: bytes) -> int:
    """Return the checksum of a short name that ties long entries to it."""
    total = 0
    for byte in name:
        total = (((total & 1) << 7) + (total >> 1) + byte) & 0xFF
    return total


def decoded_short(entry: bytes) -> str:
    """Return the name in a short entry, in the case that Windows NT stores in byte 12."""
    # 0x05 stands for 0xE5, which as a first byte means deleted.
    raw = (b"\xe5" + entry[1:11]) if entry[0] == 0x05 else entry[:11]
    stem, suffix = raw[:8].decode("cp437").rstrip(), raw[8:].decode("cp437").rstrip()
    stem = stem.lower() if entry[12] & 0x08 else stem
    suffix = suffix.lower() if entry[12] & 0x10 else suffix
    return f"{stem}.{suffix}" if suffix else stem


def long_entries(name: str, short_name: bytes) -> list[bytes]:
    """Return the long entries of `name` in their order on the medium: the last part first."""
    units = name.encode("utf-16-le")
    parts = [units[at : at + 2 * PER_ENTRY] for at in range(0, len(units), 2 * PER_ENTRY)]
    entries = []
    for number, part in enumerate(parts, 1):
        filled = part if len(part) == 2 * PER_ENTRY else (part + b"\0\0").ljust(2 * PER_ENTRY, b"\xff")
        order = number | (0x40 if number == len(parts) else 0)
        head = bytes([order]) + filled[:10] + bytes([0x0F, 0, short_name_checksum(short_name)])
        entries.append(head + filled[10:22] + b"\0\0" + filled[22:26])
    return entries[::-1]


@dataclass(frozen=True, slots=True)
class FatEntry:
    """A file or folder; `first_slot` to `slot` are its long entries and its own one."""

    name: str
    short_name: bytes
    is_folder: bool
    cluster: int
    size_bytes: int
    first_slot: int
    slot: int


class FatDirectory:
    """The entries of a directory: read, and changed in memory; `data` grows if it is full.

    Slots and short names of removed entries are not used again: if only one of two sectors were written, an old long name would precede a
    new entry.
    """

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self._removed_slots: set[int] = set()
        self._removed_names: set[bytes] = set()

    def entries(self) -> Iterator[FatEntry]:
        """Yield files and folders, without `.`, `..` and the label."""
        parts: list[bytes] = []
        expected = total = first = 0
        for slot in range(len(self.data) // ENTRY_BYTES):
            raw = bytes(self.data[slot * ENTRY_BYTES : (slot + 1) * ENTRY_BYTES])
            if raw[0] == 0:
                return
            if raw[0] == DELETED:
                expected = 0
                continue
            if raw[11] & 0x3F == LONG:
                if raw[0] & 0x40:
                    parts, first, expected, total = [], slot, raw[0] & 0x3F, raw[13]
                if expected and raw[0] & 0x3F == expected and raw[13] == total:
                    # The 26 bytes (UTF-16) of the name that a long entry holds.
                    parts.insert(0, raw[1:11] + raw[14:26] + raw[28:32])
                    expected -= 1
                    if expected == 0:
                        expected = -1  # whole: the next entry is its own
                else:
                    expected = 0
                continue
            is_long = expected == -1 and total == short_name_checksum(raw[:11])
            expected = 0
            if not raw[11] & LABEL_ATTRIBUTE and raw[0] != ord("."):
                name = b"".join(parts).decode("utf-16-le", "replace").split("\0", 1)[0] if is_long else decoded_short(raw)
                high, _, _, low, size_bytes = struct.unpack_from("<HHHHI", raw, 20)
                is_folder = bool(raw[11] & FOLDER_ATTRIBUTE)
                yield FatEntry(name, raw[:11], is_folder, high << 16 | low, size_bytes, first if is_long else slot, slot)

    def find(self, name: str) -> FatEntry | None:
        """Return the entry of that name, in any case, None if there is none."""
        names = ((entry, decoded_short(entry.short_name.ljust(ENTRY_BYTES, b"\0"))) for entry in self.entries())
        return next((entry for entry, short in names if name.upper() in (entry.name.upper(), short.upper())), None)

    def label(self) -> str:
        """Return the volume's label, an entry of the root directory; empty if there is none."""
        for at in range(0, len(self.data), ENTRY_BYTES):
            if self.data[at] == 0:
                break
            if self.data[at] != DELETED and self.data[at + 11] & 0x3F == LABEL_ATTRIBUTE:
                return self.data[at : at + 11].decode("cp437").rstrip()
        return ""

    def point(self, entry: FatEntry, cluster: int, size_bytes: int, when: datetime) -> None:
        """Let `entry` name other content: 32 bytes within one sector, so that it names either the old or the new."""
        _stamp(self.data, entry.slot * ENTRY_BYTES, cluster, size_bytes, when)

    def add(self, name: str, attribute: int, cluster: int, size_bytes: int, when: datetime) -> None:
        """Add an entry; `data` grows if no run of slots is free."""
        existing = {entry.short_name for entry in self.entries()} | self._removed_names
        short_name = make_short_name(name, existing)
        short_entry = _new_entry(short_name, attribute, cluster, size_bytes, when)
        new = [*([] if is_short(name) else long_entries(name, short_name)), short_entry]
        at = self._room(len(new)) * ENTRY_BYTES
        self.data[at : at + len(new) * ENTRY_BYTES] = b"".join(new)

    def remove(self, entry: FatEntry) -> None:
        """Mark the slots of an entry as free, for the next change."""
        for slot in range(entry.first_slot, entry.slot + 1):
            self.data[slot * ENTRY_BYTES] = DELETED
            self._removed_slots.add(slot)
        self._removed_names.add(entry.short_name)

    def _room(self, count: int) -> int:
        """Return the first of `count` free slots in a row; the end mark after the last entry is kept."""
        slots = len(self.data) // ENTRY_BYTES
        run = 0
        for slot in range(slots):
            first = self.data[slot * ENTRY_BYTES]
            if first == 0:
                begin = slot - run
                end = (begin + count) * ENTRY_BYTES
                if end > len(self.data):
                    self.data.extend(bytes(end - len(self.data)))
                elif end < len(self.data):
                    self.data[end : end + ENTRY_BYTES] = bytes(ENTRY_BYTES)
                return begin
            run = run + 1 if first == DELETED and slot not in self._removed_slots else 0
            if run == count:
                return slot - count + 1
        begin = slots - run
        self.data.extend(bytes((begin + count) * ENTRY_BYTES - len(self.data)))
        return begin


def folder_head(own_cluster: int, parent: int, when: datetime) -> bytes:
    """Return `.` and `..`, with which every folder but the root begins; `parent` is 0 if that is the root."""
    names = ((b".".ljust(11), own_cluster), (b"..".ljust(11), parent))
    return b"".join(_new_entry(name, FOLDER_ATTRIBUTE, cluster, 0, when) for name, cluster in names)


def _new_entry(short_name: bytes, attribute: int, cluster: int, size_bytes: int, when: datetime) -> bytes:
    entry = bytearray(short_name + bytes([attribute])).ljust(ENTRY_BYTES, b"\0")
    date, time = _stamps(when)
    struct.pack_into("<BHHH", entry, 13, 0, time, date, date)
    _stamp(entry, 0, cluster, size_bytes, when)
    return bytes(entry)


def _stamp(data: bytearray, at: int, cluster: int, size_bytes: int, when: datetime) -> None:
    date, time = _stamps(when)
    struct.pack_into("<HHHHI", data, at + 20, cluster >> 16, time, date, cluster & 0xFFFF, size_bytes)


def _stamps(when: datetime) -> tuple[int, int]:
    """Return date and time as FAT stores them, from 1980 on in steps of two seconds."""
    year = max(when.year - 1980, 0)
    return year << 9 | when.month << 5 | when.day, when.hour << 11 | when.minute << 5 | when.second // 2
