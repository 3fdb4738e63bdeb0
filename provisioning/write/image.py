"""An image to be written: raw, `.gz` or `.xz`, read whole and found sound before anything is erased for it."""

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

from edgemeter.agent.errors import ConfigError, UnavailableError

CHUNK_BYTES = 4 << 20
# A boot sector and a partition table need at least that.
SMALLEST_BYTES = 512

Moved = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Image:
    """An image that was read once: `size_bytes` are those that go to the card."""

    path: Path
    size_bytes: int
    sha256: str
    compared_with: Path | None

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes, each piece but the last of CHUNK_BYTES.

        Raises:
            UnavailableError: it cannot be read any more, or is another one by now.
        """
        found = hashlib.sha256()
        with _mapped(self.path), _opened(self.path) as file:
            while piece := _exactly(file, CHUNK_BYTES):
                found.update(piece)
                yield piece
        if found.hexdigest() != self.sha256:
            message = f"the image {str(self.path)!r} changed while it was read: the card is not written; run it again"
            raise UnavailableError(message)


def read(path: Path, moved: Moved) -> Image:
    """Return the image; `moved` hears of bytes of the file that were read, and how many it has.

    Raises:
        ConfigError: it is not there, too short for an image, damaged, or not what the `.sha256` beside it says.
    """
    size_bytes, found = 0, hashlib.sha256()
    compared_with = _compare(path, moved)
    with _mapped(path):
        total_bytes = path.stat().st_size
        with path.open("rb") as raw, _opened(path, raw) as file:
            while piece := _exactly(file, CHUNK_BYTES):
                size_bytes += len(piece)
                found.update(piece)
                moved(raw.tell(), total_bytes)
    if size_bytes < SMALLEST_BYTES:
        message = f"{str(path)!r} is no image: it holds {size_bytes} bytes"
        raise ConfigError(message)
    return Image(path, size_bytes, found.hexdigest(), compared_with)


def _compare(path: Path, moved: Moved) -> Path | None:
    """Hold the file against the `.sha256` beside it, if there is one, and return that."""
    beside = path.with_name(f"{path.name}.sha256")
    if not beside.exists():
        return None
    with _mapped(path):
        said = _said(beside, path.name)
        found, done, total_bytes = hashlib.sha256(), 0, path.stat().st_size
        with path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                found.update(piece)
                done += len(piece)
                moved(done, total_bytes)
    if found.hexdigest() != said:
        message = f"{str(path)!r} has the sha256 {found.hexdigest()}, {str(beside)!r} says {said}: download it again"
        raise ConfigError(message)
    return beside


def _said(beside: Path, name: str) -> str:
    """Return the hash in a file as sha256sum writes it: of that name, else of the only line."""
    lines = [line for line in beside.read_text(errors="replace").splitlines() if line.strip()]
    for line in lines:
        said = re.fullmatch(r"([0-9a-fA-F]{64})(?:\s+\*?(.+?))?\s*", line)
        if said and (len(lines) == 1 or (said[2] and Path(said[2]).name == name)):
            return said[1].lower()
    message = f"{str(beside)!r} holds no sha256 of {name!r}: correct it, or remove it"
    raise ConfigError(message)


@contextmanager
def _opened(path: Path, raw: IO[bytes] | None = None) -> Iterator[IO[bytes]]:
    """Open the image; by its first bytes, not by its name, it is known as compressed."""
    with path.open("rb") as own:
        file = raw or own
        magic = file.read(6)
        file.seek(0)
        if magic.startswith(b"\x1f\x8b"):
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        elif magic == b"\xfd7zXZ\0":
            yield lzma.LZMAFile(file)  # noqa: SIM115 - it holds nothing but `file`
        elif magic.startswith((b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"7z\xbc\xaf")):
            message = f"{str(path)!r} is packed in a way that is not unpacked here: unpack it to .img, .img.gz or .img.xz"
            raise ConfigError(message)
        else:
            yield file


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        message = f"the image {str(path)!r} is damaged: {error}: download it again"
        raise ConfigError(message) from error
    except OSError as error:
        message = f"cannot read the image {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error


def _exactly(file: IO[bytes], size_bytes: int) -> bytes:
    """Return so many bytes, fewer only at the end."""
    piece = bytearray()
    while len(piece) < size_bytes and (more := file.read(size_bytes - len(piece))):
        piece += more
    return bytes(piece)
