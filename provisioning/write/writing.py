"""An image written to a disk: its first block last, and every byte read back past the page cache."""

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

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.write.image_file import CHUNK_BYTES, ImageFile
from edgemeter.provisioning.write.target_disk import TargetDisk

# The place of the backup copy of an old GPT, from which nothing must restore the old partitions.
TAIL_BYTES = 1 << 20

# Source: Linux, include/uapi/linux/fs.h.
BLKRRPART, BLKFLSBUF = 0x125F, 0x1261

Phase = Literal["writing", "verifying"]
ReportPhase = Callable[[Phase, int, int], None]


@dataclass(frozen=True, slots=True)
class WrittenImage:
    """The data written and read back; `past_cache` is how the page cache was bypassed."""

    size_bytes: int
    sha256: str
    past_cache: Literal["O_DIRECT", "fadvise"]


def write_image(image: ImageFile, disk: TargetDisk, report: ReportPhase) -> WrittenImage:
    """Write the image to the disk and read all back; raises UnavailableError if it is in use, fails, or reads back otherwise.

    If it ends before that, for whatever reason, the first block holds zeros: no board boots from half an image.
    """
    try:
        with _exclusive(disk) as descriptor:
            hashes = _write_all(image, disk, descriptor, report)
            try:
                past_cache = _verify(image, disk, hashes, descriptor, report)
            except BaseException:
                _zero(descriptor, 0, CHUNK_BYTES, disk.size_bytes)
                os.fsync(descriptor)
                raise
            # The kernel reads the new partition table; otherwise it does so when the card is plugged in again.
            if stat.S_ISBLK(os.fstat(descriptor).st_mode):
                with contextlib.suppress(OSError):
                    fcntl.ioctl(descriptor, BLKRRPART, 0)
    except OSError as error:
        raise _refused(disk, error) from error
    return WrittenImage(image.size_bytes, image.sha256, past_cache)


@contextlib.contextmanager
def _exclusive(disk: TargetDisk) -> Iterator[int]:
    # O_EXCL on a disk: the kernel refuses if it is mounted or claimed, and refuses mounts meanwhile.
    descriptor = os.open(disk.path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(image: ImageFile, disk: TargetDisk, descriptor: int, report: ReportPhase) -> list[bytes]:
    """Write all chunks, the first one last; return their hashes."""
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
        # Little stays unwritten, so that the bar is accurate and the last sync short.
        if number % 16 == 0:
            os.fdatasync(descriptor)
        report("writing", number * CHUNK_BYTES, image.size_bytes)
    os.fsync(descriptor)
    _put(descriptor, 0, first)
    os.fsync(descriptor)
    report("writing", image.size_bytes, image.size_bytes)
    return hashes


def _verify(image: ImageFile, disk: TargetDisk, hashes: list[bytes], writer: int, report: ReportPhase) -> Literal["O_DIRECT", "fadvise"]:
    """Compare the whole disk, read back, with what was written."""
    past_cache, reader = _reader(disk, writer)
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    try:
        for number, expected in enumerate(hashes):
            offset = number * CHUNK_BYTES
            length = min(CHUNK_BYTES, image.size_bytes - offset)
            _fill(reader, buffer, offset, length)
            with memoryview(buffer)[:length] as chunk:
                if hashlib.sha256(chunk).digest() != expected:
                    raise UnavailableError(
                        f"{disk.path} ({disk.words}) reads back differently from byte {offset} on: "
                        "the card or its reader is faulty or counterfeit: use another one"
                    )
            report("verifying", offset + length, image.size_bytes)
    finally:
        buffer.close()
        os.close(reader)
    return past_cache


def _reader(disk: TargetDisk, writer: int) -> tuple[Literal["O_DIRECT", "fadvise"], int]:
    """Return a new descriptor of the disk, and how it bypasses the page cache."""
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
    """Read at least `length` bytes from `offset`, into an aligned buffer and in whole blocks, as O_DIRECT requires."""
    read_bytes = 0
    while read_bytes < length:
        with memoryview(buffer)[read_bytes:] as remainder:
            came = os.preadv(reader, [remainder], offset + read_bytes)
        if came == 0:
            message = f"the disk ends at byte {offset + read_bytes}, before the image ends"
            raise OSError(errno.EIO, message)
        read_bytes += came


def _put(descriptor: int, offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written_bytes = os.pwrite(descriptor, view, offset)
        view, offset = view[written_bytes:], offset + written_bytes


def _zero(descriptor: int, offset: int, length: int, size_bytes: int) -> None:
    _put(descriptor, offset, bytes(min(length, size_bytes - offset)))


def _refused(disk: TargetDisk, error: OSError) -> UnavailableError:
    problem = f"cannot write {disk.path} ({disk.words})"
    if error.errno == errno.EBUSY:
        return UnavailableError(f"{problem}: it is in use: unmount it, and close what has it open")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return UnavailableError(f"{problem}: permission denied: run it with sudo")
    return UnavailableError(f"{problem}: {error.strerror}: the card or its reader is faulty: use another one")
