"""The part of a file that an HTTP request asks for. Source: RFC 9110, section 14."""

import re

_ONE_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


class UnsatisfiableError(ValueError):
    """The part lies beyond the end."""


def parse(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last; None for the whole, which also answers what is not understood.

    Raises:
        UnsatisfiableError: nothing of what is asked for is there.
    """
    parts = _ONE_RANGE.fullmatch(header.strip()) if header else None
    if parts is None or parts.groups() == ("", ""):
        # Several ranges, other units, nonsense: a server may send everything instead.
        return None
    first, last = parts.groups()
    if not first:
        if int(last) == 0 or size_bytes == 0:
            raise UnsatisfiableError
        return max(0, size_bytes - int(last)), size_bytes
    if last and int(last) < int(first):
        return None
    if int(first) >= size_bytes:
        raise UnsatisfiableError
    return int(first), min(size_bytes, int(last) + 1) if last else size_bytes
