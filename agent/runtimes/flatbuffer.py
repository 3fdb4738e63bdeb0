"""Reads tables of a FlatBuffer, every offset checked: a broken file ends as an error here, where C++ would end the process.

Source: https://flatbuffers.dev/internals: a table starts with the signed distance back to its vtable; the vtable holds its own size,
the table's size, and for each field its offset in the table, 0 when absent; vectors and strings start with their length.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap


class GarbledError(ValueError):
    """An offset leads outside the file, or to what cannot be there."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a FlatBuffer; fields are called by their number in the schema."""

    data: bytes | mmap
    at: int

    def check(self) -> "Table":
        """Return the table itself when it and its vtable lie inside the file.

        Raises:
            GarbledError: they do not.
        """
        vtable, size = self._vtable()
        _span(self.data, vtable, size)
        _span(self.data, self.at, _read(self.data, "<H", vtable + 2))
        return self

    def span(self, at: int, size: int) -> None:
        """Return when the file holds these bytes; raises GarbledError when it does not."""
        _span(self.data, at, size)

    def integer(self, field: int, code: str = "<i", default: int = 0) -> int:
        """Return a number; `code` is its struct format."""
        at = self._field(field)
        return default if at is None else _read(self.data, code, at)

    def table(self, field: int) -> "Table | None":
        """Return the table that a field points to, None when absent."""
        at = self._field(field)
        return None if at is None else Table(self.data, self._target(at)).check()

    def vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        """Return start and length of a vector or string; (0, 0) when absent.

        Raises:
            GarbledError: it does not lie inside the file.
        """
        at = self._field(field)
        if at is None:
            return 0, 0
        start = self._target(at)
        count = _read(self.data, "<I", start)
        _span(self.data, start + 4, count * item_bytes)
        return start + 4, count

    def tables(self, field: int) -> Iterator["Table"]:
        """Yield the tables of a vector of tables."""
        start, count = self.vector(field, 4)
        for at in range(start, start + 4 * count, 4):
            yield Table(self.data, self._target(at)).check()

    def integers(self, field: int) -> tuple[int, ...]:
        """Return a vector of 32-bit integers."""
        start, count = self.vector(field, 4)
        return struct.unpack_from(f"<{count}i", self.data, start)

    def floats(self, field: int) -> tuple[float, ...]:
        """Return a vector of 32-bit floats."""
        start, count = self.vector(field, 4)
        return struct.unpack_from(f"<{count}f", self.data, start)

    def bytes_at(self, field: int) -> bytes:
        """Return a vector of bytes."""
        start, count = self.vector(field, 1)
        return self.data[start : start + count]

    def text(self, field: int) -> str:
        """Return a string; what is not UTF-8 in it is replaced."""
        return self.bytes_at(field).decode("utf-8", "replace")

    def _vtable(self) -> tuple[int, int]:
        vtable = self.at - _read(self.data, "<i", self.at)
        return vtable, _read(self.data, "<H", vtable)

    def _field(self, field: int) -> int | None:
        vtable, size = self._vtable()
        slot = 4 + 2 * field
        offset = _read(self.data, "<H", vtable + slot) if slot + 2 <= size else 0
        return self.at + offset if offset else None

    def _target(self, at: int) -> int:
        return at + _read(self.data, "<I", at)


def root(data: bytes | mmap) -> Table:
    """Return the root table.

    Raises:
        GarbledError: there is none.
    """
    return Table(data, _read(data, "<I", 0)).check()


def _read(data: bytes | mmap, code: str, at: int) -> int:
    _span(data, at, struct.calcsize(code))
    value: int = struct.unpack_from(code, data, at)[0]
    return value


def _span(data: bytes | mmap, at: int, size: int) -> None:
    if at < 0 or at + size > len(data):
        message = f"bytes {at} to {at + size} of a file of {len(data)}"
        raise GarbledError(message)
