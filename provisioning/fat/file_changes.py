"""Changes of a boot partition: files put there and paths removed, with the sources of the files' bytes."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileContent:
    """The bytes of one file, read when they are needed."""

    size_bytes: int
    open: Callable[[], IO[bytes]]

    def chunks(self, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes, `size_bytes` at a time, fewer at the end."""
        with self.open() as file:
            while chunk := file.read(size_bytes):
                yield chunk


@dataclass(frozen=True, slots=True)
class PutFile:
    """A file to write, with its folders; it replaces what has that path."""

    path: str
    content: FileContent


@dataclass(frozen=True, slots=True)
class RemovePath:
    """A file or folder to remove."""

    path: str


Change = PutFile | RemovePath


def of_bytes(data: bytes) -> FileContent:
    """Return bytes as content."""
    return FileContent(len(data), lambda: io.BytesIO(data))


def put_text(path: str, text: str) -> PutFile:
    """Return the change that writes a text file."""
    return PutFile(path, of_bytes(text.encode()))
