"""An image to write: raw, `.gz` or `.xz`, read and verified completely before anything is erased."""

import gzip
import hashlib
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from edgemeter.agent.base.errors import ConfigError, UnavailableError

CHUNK_BYTES = 4 << 20
# A boot sector with a partition table.
SMALLEST_BYTES = 512

ReportBytes = Callable[[int, int], None]


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
