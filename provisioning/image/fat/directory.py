"""One directory of a FAT file system, as the bytes that it takes."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from edgemeter.provisioning.image.fat import names
from edgemeter.provisioning.image.fat.geometry import ENTRY_BYTES

DELETED = 0xE5
LONG = 0x0F
LABEL = 0x08
FOLDER = 0x10
ARCHIVE = 0x20


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder; `first_slot` to `slot` are its long entries and its own one."""

    name: str
    short_name: bytes
    is_folder: bool
    cluster: int
    size_bytes: int
    first_slot: int
    slot: int


class Directory:
    """The entries of a directory: read, and changed in memory; `data` grows where it has no room.

    What is removed is not used again, neither its slots nor its short name: were only one of two sectors written, an old long name would
    stand before a new entry.
    """

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self._removed_slots: set[int] = set()
        self._removed_names: set[bytes] = set()

    def entries(self) -> Iterator[Entry]:
        """Yield files and folders, without `.`, `..` and the label."""
        parts: list[bytes] = []
        expected = 0
        total = 0
        first = 0
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
                    parts.insert(0, names.long_part(raw))
                    expected -= 1
                    if expected == 0:
                        expected = -1  # whole: the next entry is its own
                else:
                    expected = 0
                continue
            is_long = expected == -1 and total == names.checksum(raw[:11])
            expected = 0
            if not raw[11] & LABEL and raw[0] != ord("."):
                name = names.decoded_long(parts) if is_long else names.decoded_short(raw)
                yield _entry(raw, name, first if is_long else slot, slot)

    def find(self, name: str) -> Entry | None:
        """Return the entry of that name, in whatever case, None when there is none."""
        wanted = name.upper()
        for entry in self.entries():
            if wanted in (entry.name.upper(), names.decoded_short(entry.short_name.ljust(ENTRY_BYTES, b"\0")).upper()):
                return entry
        return None

    def label(self) -> str:
        """Return the volume's label, which stands in the root directory; empty when there is none."""
        for at in range(0, len(self.data), ENTRY_BYTES):
            if self.data[at] == 0:
                break
            if self.data[at] != DELETED and self.data[at + 11] & 0x3F == LABEL:
                return self.data[at : at + 11].decode("cp437").rstrip()
        return ""

    def point(self, entry: Entry, cluster: int, size_bytes: int, when: datetime) -> None:
        """Let `entry` name other content: 32 bytes within one sector, so it names either the old or the new."""
        at = entry.slot * ENTRY_BYTES
        _stamp(self.data, at, cluster, size_bytes, when)

    def add(self, name: str, attribute: int, cluster: int, size_bytes: int, when: datetime) -> None:
        """Add an entry; `data` grows where no run of slots is free."""
        taken = {entry.short_name for entry in self.entries()} | self._removed_names
        short_name = names.short(name, taken)
        own = bytearray(ENTRY_BYTES)
        own[:11] = short_name
        own[11] = attribute
        date, time = _stamps(when)
        struct.pack_into("<BHHH", own, 13, 0, time, date, date)
        _stamp(own, 0, cluster, size_bytes, when)
        new = [*([] if names.is_short(name) else names.long_entries(name, short_name)), bytes(own)]
        at = self._room(len(new)) * ENTRY_BYTES
        self.data[at : at + len(new) * ENTRY_BYTES] = b"".join(new)

    def remove(self, entry: Entry) -> None:
        """Mark the slots of an entry as free, for the next change."""
        for slot in range(entry.first_slot, entry.slot + 1):
            self.data[slot * ENTRY_BYTES] = DELETED
            self._removed_slots.add(slot)
        self._removed_names.add(entry.short_name)

    def _room(self, count: int) -> int:
        """Return the first of `count` free slots in a row; what lies behind the last entry stays an end."""
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


def folder_head(own: int, parent: int, when: datetime) -> bytes:
    """Return `.` and `..`, with which every folder but the root begins; `parent` is 0 when that is the root."""
    head = bytearray(2 * ENTRY_BYTES)
    for at, name, cluster in ((0, b".".ljust(11), own), (ENTRY_BYTES, b"..".ljust(11), parent)):
        head[at : at + 11] = name
        head[at + 11] = FOLDER
        date, time = _stamps(when)
        struct.pack_into("<BHHH", head, at + 13, 0, time, date, date)
        _stamp(head, at, cluster, 0, when)
    return bytes(head)


def _entry(raw: bytes, name: str, first_slot: int, slot: int) -> Entry:
    high, _, _, low, size = struct.unpack_from("<HHHHI", raw, 20)
    return Entry(name, raw[:11], bool(raw[11] & FOLDER), high << 16 | low, size, first_slot, slot)


def _stamp(data: bytearray, at: int, cluster: int, size_bytes: int, when: datetime) -> None:
    date, time = _stamps(when)
    struct.pack_into("<HHHHI", data, at + 20, cluster >> 16, time, date, cluster & 0xFFFF, size_bytes)


def _stamps(when: datetime) -> tuple[int, int]:
    """Return date and time as FAT writes them; it counts from 1980 on, in steps of two seconds."""
    year = max(when.year - 1980, 0)
    return year << 9 | when.month << 5 | when.day, when.hour << 11 | when.minute << 5 | when.second // 2
