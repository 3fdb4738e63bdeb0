"""What is to be on a boot partition: files put there and paths removed, with where each file's bytes come from."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of one file, read when they are needed."""

    size_bytes: int
    open: Callable[[], IO[bytes]]

    def chunks(self, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes, `size_bytes` at a time, fewer at the end."""
        with self.open() as file:
            while chunk := file.read(size_bytes):
                yield chunk


@dataclass(frozen=True, slots=True)
class Put:
    """A file that is to be there, its folders with it; whatever has that path gives way."""

    path: str
    content: Content


@dataclass(frozen=True, slots=True)
class Remove:
    """A file or folder that is to be gone."""

    path: str


Change = Put | Remove


def of_bytes(data: bytes) -> Content:
    """Return content that is at hand."""
    return Content(len(data), lambda: io.BytesIO(data))


def of_file(path: Path) -> Content:
    """Return the content of a file as it is now."""
    return Content(path.stat().st_size, lambda: path.open("rb"))
