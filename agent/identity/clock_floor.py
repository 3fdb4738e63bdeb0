"""The earliest that it can be: many boards have no clock of their own and wake up in some past year."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec


class _Built(msgspec.Struct):
    built_ns: Annotated[int, msgspec.Meta(ge=0)]


def floor_ns(seen_ns: int | None, release: Path = Path(sys.prefix)) -> int:
    """Return when the installed release was built, or when the fleet was last heard (`seen_ns`), whichever is later; 0 for unknown."""
    try:
        built_ns = msgspec.json.decode((release / "manifest.json").read_bytes(), type=_Built).built_ns
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        built_ns = 0
    return max(built_ns, seen_ns or 0)
