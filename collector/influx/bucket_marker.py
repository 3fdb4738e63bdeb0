"""The marker of a bucket: it tells the bucket that a ledger was drained to from another one of its name, with permission to write alone.

A field keeps its type: what was written as an integer refuses a boolean for as long as the bucket holds it, and a bucket that was made
anew accepts one. The field's name is of one claim, so that other ledgers' markers answer nothing here.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal

from edgemeter.collector.influx.client import PointsRejectedError

MEASUREMENT = "marker"
_PREFIX = "marker"
MarkerState = Literal["kept", "absent", "expired"]
Post = Callable[[Sequence[str]], None]


def is_marker(identity: str) -> bool:
    """Return whether `identity` is the name of a marker."""
    return identity.startswith(f"{_PREFIX}-") and identity.count("-") == 2


def set_marker(post: Post) -> str | None:
    """Write a new marker by `post` and return its name; None where the server stores any type under one name."""
    name = f"{_PREFIX}-{secrets.token_hex(4)}-{time.time_ns() // 10**9}"
    post([_line(name, "1i")])
    return name if marker_state(post, name) == "kept" else None


def marker_state(post: Post, name: str) -> MarkerState:
    """Return whether the bucket of `post` has the marker; `expired`: its time is before what the bucket retains, so nobody knows."""
    try:
        post([_line(name, "true")])
    except PointsRejectedError as error:
        return "expired" if error.is_expired else "kept"
    return "absent"


def _line(name: str, value: str) -> str:
    _, number, begun_s = name.split("-")
    return f"{MEASUREMENT} m{number}={value} {begun_s}000000000"
