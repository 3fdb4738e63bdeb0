"""Names on FAT: eight characters and three, and the long names that Windows 95 put beside them.

Source: Microsoft, FAT32 File System Specification 1.03, "Long Directory Entries".
"""

from collections.abc import Container

from edgemeter.agent.errors import ConfigError

LONG_MAX = 255
FORBIDDEN = frozenset('"*/:<>?\\|') | {chr(code) for code in range(32)} | {"\x7f"}
SHORT = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'()-@^_`{}~")
PER_ENTRY = 13


def check(name: str) -> None:
    """Look that a file may be called so.

    Raises:
        ConfigError: FAT has no such name.
    """
    if not name or name in (".", "..") or len(name) > LONG_MAX or FORBIDDEN & set(name) or name[-1] in ". ":
        message = f"no file on a FAT file system can be called {name!r}: rename it"
        raise ConfigError(message)


def is_short(name: str) -> bool:
    """Whether the name needs no long one: capitals, at most eight characters and three."""
    stem, dot, suffix = name.partition(".")
    return 0 < len(stem) <= 8 and len(suffix) <= 3 and bool(suffix) == bool(dot) and set(stem + suffix) <= SHORT


def short(name: str, taken: Container[bytes]) -> bytes:
    """Return 11 bytes, not among `taken`, that stand for `name` where long names are not read."""
    stem, _, suffix = name.rpartition(".") if "." in name[1:] else (name, "", "")
    stem = "".join(letter if letter in SHORT else "_" for letter in stem.upper() if letter not in ". ")
    suffix = "".join(letter if letter in SHORT else "_" for letter in suffix.upper() if letter != " ")[:3]
    if is_short(name) and (padded := _padded(stem, suffix)) not in taken:
        return padded
    for number in range(1, 1_000_000):
        tail = f"~{number}"
        candidate = _padded(stem[: 8 - len(tail)] + tail, suffix)
        if candidate not in taken:
            return candidate
    message = f"no short name is left for {name!r} in its folder: delete files there"
    raise ConfigError(message)


def _padded(stem: str, suffix: str) -> bytes:
    return stem.ljust(8).encode("ascii") + suffix.ljust(3).encode("ascii")


def checksum(name: bytes) -> int:
    """Return the sum over a short name that ties long entries to it."""
    total = 0
    for byte in name:
        total = (((total & 1) << 7) + (total >> 1) + byte) & 0xFF
    return total


def decoded_short(entry: bytes) -> str:
    """Return the name in a short entry, in the case that Windows NT notes in byte 12."""
    # 0x05 stands for 0xE5, which as a first byte means deleted.
    raw = (b"\xe5" + entry[1:11]) if entry[0] == 0x05 else entry[:11]
    stem, suffix = raw[:8].decode("cp437").rstrip(), raw[8:].decode("cp437").rstrip()
    stem = stem.lower() if entry[12] & 0x08 else stem
    suffix = suffix.lower() if entry[12] & 0x10 else suffix
    return f"{stem}.{suffix}" if suffix else stem


def long_entries(name: str, short_name: bytes) -> list[bytes]:
    """Return the long entries of `name`, in the order in which they stand on the medium: the last part first."""
    units = name.encode("utf-16-le")
    parts = [units[at : at + 2 * PER_ENTRY] for at in range(0, len(units), 2 * PER_ENTRY)]
    entries = []
    for number, part in enumerate(parts, 1):
        filled = part if len(part) == 2 * PER_ENTRY else (part + b"\0\0").ljust(2 * PER_ENTRY, b"\xff")
        order = number | (0x40 if number == len(parts) else 0)
        head = bytes([order]) + filled[:10] + bytes([0x0F, 0, checksum(short_name)])
        entries.append(head + filled[10:22] + b"\0\0" + filled[22:26])
    return entries[::-1]


def long_part(entry: bytes) -> bytes:
    """Return the 26 bytes (UTF-16) of the name that a long entry holds."""
    return entry[1:11] + entry[14:26] + entry[28:32]


def decoded_long(parts: list[bytes]) -> str:
    """Return the name from its parts in order."""
    return b"".join(parts).decode("utf-16-le", "replace").split("\0", 1)[0]
