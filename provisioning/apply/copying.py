"""Files brought to a device: what is there already is known by its hash, what is there in part is continued, all is compared at the end."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.provisioning.apply.ssh import Connection

# The slowest line on which a file still counts as moving.
SLOWEST_BYTES_PER_S = 20_000
HASH_S = 600.0
# Makes the folder, drops what does not belong there, says what there is. $1: the folder, then the names that belong.
_LIST = """
set -e
umask 077; mkdir -p "$1"; cd "$1"; shift
find . -type f | while IFS= read -r path; do
    path=${path#./}; known=
    for name in "$@"; do [ "$name" = "$path" ] && known=yes; done
    if [ -z "$known" ]; then rm -f "$path"; continue; fi
    printf '%s %s %s\\n' "$(sha256sum <"$path" | cut -d ' ' -f 1)" "$(($(wc -c <"$path")))" "$path"
done
"""
_WRITE = 'umask 077; mkdir -p "$(dirname "$1")" && if [ "$2" = 0 ]; then cat > "$1"; else cat >> "$1"; fi'


@dataclass(frozen=True, slots=True)
class Parcel:
    """A file here, and what it is called in the device's folder."""

    path: Path
    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A parcel of which the device has the first `offset` bytes."""

    parcel: Parcel
    offset: int


def missing(connection: Connection, folder: str, parcels: Sequence[Parcel]) -> list[Missing]:
    """Return what `folder` of the device lacks of `parcels`.

    Raises:
        UnavailableError: the folder cannot be made or read there.
        TransientError: the connection was lost.
    """
    answer = connection.run(["sh", "-s", "--", folder, *(parcel.name for parcel in parcels)], _LIST.encode(), HASH_S)
    if answer.status != 0:
        raise _refused(connection, f"cannot use {folder!r}", answer.complaint)
    # A login shell may have printed something of its own before.
    told = (re.fullmatch(r"([0-9a-f]{64}) (\d+) (.+)", line) for line in answer.output.splitlines())
    there = {one[3]: (one[1], int(one[2])) for one in told if one}
    found = []
    for parcel in parcels:
        sha256, size_bytes = there.get(parcel.name, ("", 0))
        if (sha256, size_bytes) != (parcel.sha256, parcel.size_bytes):
            begun = 0 < size_bytes < parcel.size_bytes and _begins(parcel.path, size_bytes) == sha256
            found.append(Missing(parcel, size_bytes if begun else 0))
    return found


def copy(connection: Connection, folder: str, parcels: Sequence[Parcel], moved: Callable[[int, int], None]) -> int:
    """Bring what is missing into `folder` and return how many bytes that were; `moved` hears of bytes and their sum as they go.

    Raises:
        UnavailableError: there is no room, or no right to write.
        TransientError: the connection was lost, or a file twice arrived other than it left.
    """
    total_bytes = 0
    for _attempt in (1, 2):
        lacking = missing(connection, folder, parcels)
        if not lacking:
            return total_bytes
        to_go = sum(part.parcel.size_bytes - part.offset for part in lacking)
        done = 0
        for part in lacking:
            moved(done, to_go)
            _send(connection, folder, part)
            done += part.parcel.size_bytes - part.offset
        total_bytes += done
    names = ", ".join(part.parcel.name for part in missing(connection, folder, parcels))
    if names:
        message = f"{connection.target.login}: {names} arrived other than it left, twice: is the board's card or memory sound?"
        raise TransientError(message)
    return total_bytes


def _send(connection: Connection, folder: str, part: Missing) -> None:
    parcel = part.parcel
    with parcel.path.open("rb") as file:
        file.seek(part.offset)
        command = ["sh", "-c", _WRITE, "sh", f"{folder}/{parcel.name}", str(part.offset)]
        answer = connection.run(command, file, 120 + parcel.size_bytes / SLOWEST_BYTES_PER_S)
    if answer.status != 0:
        raise _refused(connection, f"cannot write {parcel.name!r} to {folder!r}", answer.complaint)


def _begins(path: Path, size_bytes: int) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while size_bytes and (piece := file.read(min(size_bytes, 1 << 20))):
            found.update(piece)
            size_bytes -= len(piece)
    return found.hexdigest()


def _refused(connection: Connection, what: str, complaint: str) -> UnavailableError:
    remedy = "free some room there" if "No space left" in complaint else "look at that folder"
    return UnavailableError(f"{connection.target.login}: {what}: {complaint[-300:] or 'no word'}: {remedy}")
