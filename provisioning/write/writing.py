"""An image brought to a disk: its first block last, and every byte read back past the kernel's memory."""

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.errors import UnavailableError
from edgemeter.provisioning.write.disk import Disk
from edgemeter.provisioning.write.image import CHUNK_BYTES, Image

# Where the spare copy of an old GPT stands: nothing is to find a way back to what was there.
TAIL_BYTES = 1 << 20
# Source: Linux, include/uapi/linux/fs.h.
BLKRRPART, BLKFLSBUF = 0x125F, 0x1261

Phase = Literal["writing", "verifying"]
Told = Callable[[Phase, int, int], None]


@dataclass(frozen=True, slots=True)
class Written:
    """What was written and read back; `past_cache` says how the read was kept from the kernel's memory."""

    size_bytes: int
    sha256: str
    past_cache: Literal["O_DIRECT", "fadvise"]


def write(image: Image, disk: Disk, told: Told) -> Written:
    """Write the image to the disk, read all of it back, and return what is there.

    However it ends before that, the first block holds zeros: no board boots from half a card.

    Raises:
        UnavailableError: the disk is in use or fails, or does not hold what was written.
    """
    try:
        with _exclusive(disk) as descriptor:
            hashes = _write_all(image, disk, descriptor, told)
            try:
                past_cache = _verify(image, disk, hashes, descriptor, told)
            except BaseException:
                _zero(descriptor, 0, CHUNK_BYTES, disk.size_bytes)
                os.fsync(descriptor)
                raise
            _seen_anew(descriptor)
    except OSError as error:
        raise _refused(disk, error) from error
    return Written(image.size_bytes, image.sha256, past_cache)


@contextlib.contextmanager
def _exclusive(disk: Disk) -> Iterator[int]:
    # O_EXCL on a disk: the kernel refuses when anything has it mounted or claimed, and lets nobody mount it meanwhile.
    descriptor = os.open(disk.path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(image: Image, disk: Disk, descriptor: int, told: Told) -> list[bytes]:
    """Write everything, the first chunk last; return the hash of each chunk."""
    _zero(descriptor, 0, CHUNK_BYTES, disk.size_bytes)
    _zero(descriptor, max(0, disk.size_bytes - TAIL_BYTES), TAIL_BYTES, disk.size_bytes)
    os.fsync(descriptor)
    hashes: list[bytes] = []
    first = b""
    for number, chunk in enumerate(image.chunks()):
        hashes.append(hashlib.sha256(chunk).digest())
        if number == 0:
            first = chunk
            continue
        _put(descriptor, number * CHUNK_BYTES, chunk)
        # What is not on the card yet stays little: the bar tells the truth, and an end comes soon after it.
        if number % 16 == 0:
            os.fdatasync(descriptor)
        told("writing", number * CHUNK_BYTES, image.size_bytes)
    os.fsync(descriptor)
    _put(descriptor, 0, first)
    os.fsync(descriptor)
    told("writing", image.size_bytes, image.size_bytes)
    return hashes


def _verify(image: Image, disk: Disk, hashes: list[bytes], writer: int, told: Told) -> Literal["O_DIRECT", "fadvise"]:
    """Compare all that is on the disk, read anew, with what was written."""
    past_cache, reader = _reader(disk, writer)
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    try:
        for number, expected in enumerate(hashes):
            offset = number * CHUNK_BYTES
            length = min(CHUNK_BYTES, image.size_bytes - offset)
            _fill(reader, buffer, offset, length)
            with memoryview(buffer)[:length] as piece:
                if hashlib.sha256(piece).digest() != expected:
                    message = (
                        f"{disk.path} ({disk.words}) does not hold what was written, from byte {offset} on: "
                        "the card or its reader is faulty or fake: use another one"
                    )
                    raise UnavailableError(message)
            told("verifying", offset + length, image.size_bytes)
    finally:
        buffer.close()
        os.close(reader)
    return past_cache


def _reader(disk: Disk, writer: int) -> tuple[Literal["O_DIRECT", "fadvise"], int]:
    """Return a fresh handle on the disk, and how its reads are kept from what the kernel remembers."""
    if stat.S_ISBLK(os.fstat(writer).st_mode):
        fcntl.ioctl(writer, BLKFLSBUF, 0)
    try:
        return "O_DIRECT", os.open(disk.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    reader = os.open(disk.path, os.O_RDONLY | os.O_CLOEXEC)
    os.posix_fadvise(reader, 0, 0, os.POSIX_FADV_DONTNEED)
    return "fadvise", reader


def _fill(reader: int, buffer: mmap.mmap, offset: int, length: int) -> None:
    """Read at least `length` bytes from `offset`; an aligned buffer and whole blocks, as O_DIRECT wants them."""
    done = 0
    while done < length:
        with memoryview(buffer)[done:] as rest:
            came = os.preadv(reader, [rest], offset + done)
        if came == 0:
            message = f"the disk ends at byte {offset + done}, before the image does"
            raise OSError(errno.EIO, message)
        done += came


def _put(descriptor: int, offset: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done


def _zero(descriptor: int, offset: int, length: int, size_bytes: int) -> None:
    _put(descriptor, offset, bytes(min(length, size_bytes - offset)))


def _seen_anew(descriptor: int) -> None:
    """Let the kernel read the new partition table; one that does not will when the card is plugged in again."""
    if stat.S_ISBLK(os.fstat(descriptor).st_mode):
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, BLKRRPART, 0)


def _refused(disk: Disk, error: OSError) -> UnavailableError:
    what = f"cannot write {disk.path} ({disk.words})"
    if error.errno == errno.EBUSY:
        return UnavailableError(f"{what}: something uses it: unmount it, and end what has it open")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return UnavailableError(f"{what}: this user may not: run it with sudo")
    return UnavailableError(f"{what}: {error.strerror}: the card or its reader is faulty: use another one")
