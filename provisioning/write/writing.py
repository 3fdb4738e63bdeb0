"""An image (raw, `.gz`, `.xz`), verified before anything is erased, and written: its first block last, all read back past the cache."""

import contextlib
import errno
import fcntl
import gzip
import hashlib
import lzma
import mmap
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.write.target_disk import TargetDisk

# The place of the backup copy of an old GPT, from which nothing must restore the old partitions.
TAIL_BYTES = 1 << 20

# Source: Linux, include/uapi/linux/fs.h.
BLKRRPART, BLKFLSBUF = 0x125F, 0x1261

Phase = Literal["writing", "verifying"]
ReportPhase = Callable[[Phase, int, int], None]
ReportBytes = Callable[[int, int], None]
CHUNK_BYTES = 4 << 20
# A boot sector with a partition table.
SMALLEST_BYTES = 512


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A verified image; `size_bytes` is its unpacked size."""

    path: Path
    size_bytes: int
    sha256: str
    compared_with: Path | None

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes, each piece but the last of CHUNK_BYTES; raises UnavailableError if it can be read no more, or has changed."""
        digest = hashlib.sha256()
        with _mapped(self.path), _opened(self.path) as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                yield chunk
        if digest.hexdigest() != self.sha256:
            raise UnavailableError(f"the image {str(self.path)!r} changed while it was read: the card is not written; run it again")


def read_image(path: Path, report: ReportBytes) -> ImageFile:
    """Return the image, verified, also by a `.sha256` beside it; `report` gets the bytes read, and all. Raises ConfigError if damaged."""
    size_bytes, digest = 0, hashlib.sha256()
    compared_with = _compare(path, report)
    with _mapped(path):
        total_bytes = path.stat().st_size
        with path.open("rb") as raw, _opened(path, raw) as file:
            while chunk := file.read(CHUNK_BYTES):
                size_bytes += len(chunk)
                digest.update(chunk)
                report(raw.tell(), total_bytes)
    if size_bytes < SMALLEST_BYTES:
        raise ConfigError(f"{str(path)!r} is not an image: it has only {size_bytes} bytes")
    return ImageFile(path, size_bytes, digest.hexdigest(), compared_with)


def _compare(path: Path, report: ReportBytes) -> Path | None:
    """Compare the file with the `.sha256` beside it, if there is one, and return that."""
    hash_file = path.with_name(f"{path.name}.sha256")
    if not hash_file.exists():
        return None
    with _mapped(path):
        expected = _expected_hash(hash_file, path.name)
        digest, read_bytes, total_bytes = hashlib.sha256(), 0, path.stat().st_size
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                read_bytes += len(chunk)
                report(read_bytes, total_bytes)
    if digest.hexdigest() != expected:
        raise ConfigError(f"{str(path)!r} has the sha256 {digest.hexdigest()}, {str(hash_file)!r} has {expected}: download it again")
    return hash_file


def _expected_hash(hash_file: Path, name: str) -> str:
    """Return the hash in a file of sha256sum: that of the name, else of the only line."""
    lines = [line for line in hash_file.read_text(errors="replace").splitlines() if line.strip()]
    for line in lines:
        match = re.fullmatch(r"([0-9a-fA-F]{64})(?:\s+\*?(.+?))?\s*", line)
        if match and (len(lines) == 1 or (match[2] and Path(match[2]).name == name)):
            return match[1].lower()
    raise ConfigError(f"{str(hash_file)!r} has no sha256 of {name!r}: correct it, or remove it")


@contextmanager
def _opened(path: Path, raw: IO[bytes] | None = None) -> Iterator[IO[bytes]]:
    """Open the image; its first bytes, not its name, show whether it is compressed."""
    with path.open("rb") as raw_file:
        file = raw or raw_file
        magic = file.read(6)
        file.seek(0)
        if magic.startswith(b"\x1f\x8b"):
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        elif magic == b"\xfd7zXZ\0":
            yield lzma.LZMAFile(file)  # noqa: SIM115 - it holds nothing but `file`
        elif magic.startswith((b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"7z\xbc\xaf")):
            raise ConfigError(f"{str(path)!r} has an unsupported compression: unpack it to .img, .img.gz or .img.xz")
        else:
            yield file


def is_compressed(path: Path) -> bool:
    """Return whether a file is an image in `.gz` or `.xz`, by its first bytes."""
    if not path.is_file():
        return False
    with _mapped(path), path.open("rb") as file:
        return file.read(6).startswith((b"\x1f\x8b", b"\xfd7zXZ\0"))


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"the image {str(path)!r} is damaged: {error}: download it again") from error
    except OSError as error:
        raise ConfigError(f"cannot read the image {str(path)!r}: {error.strerror}") from error


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
