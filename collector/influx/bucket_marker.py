"""The marker of a bucket: it tells the bucket that a ledger was drained to from another one of its name, with permission to write alone.

A field keeps its type: what was written as an integer refuses a boolean for as long as the bucket holds it, and a bucket that was made
anew accepts one. The field's name is of one claim, so that other ledgers' markers answer nothing here.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal

from edgemeter.collector.influx.client import PointsRejectedError

logger = logging.getLogger(__name__)

MEASUREMENT = "marker"
MarkerState = Literal["kept", "absent", "unknown"]
Post = Callable[[Sequence[str]], None]


def is_marker(identity: str) -> bool:
    """Return whether `identity` is the name of a marker."""
    return identity.startswith(f"{MEASUREMENT}-") and identity.count("-") == 2


def set_marker(post: Post) -> str | None:
    """Write a new marker by `post` and return its name; None where the server rejects it, or stores any type under one name."""
    name = f"{MEASUREMENT}-{secrets.token_hex(4)}-{time.time_ns() // 10**9}"
    try:
        post([_line(name, "1i")])
    except PointsRejectedError as error:
        logger.warning("the bucket cannot be marked, so that another one of its name would not be noticed: %s", error)
        return None
    return name if marker_state(post, name) == "kept" else None


def marker_state(post: Post, name: str) -> MarkerState:
    """Return whether the bucket of `post` has the marker; `unknown` where it rejects the question itself, as one before what it retains."""
    try:
        post([_line(name, "true")])
    except PointsRejectedError as error:
        # "field type conflict" of versions 1 and 2, "invalid column type" of 3.
        return "kept" if re.search(r"type conflict|column type", error.server_message) else "unknown"
    return "absent"


def _line(name: str, value: str) -> str:
    _, number, begun_s = name.split("-")
    return f"{MEASUREMENT} m{number}={value} {begun_s}000000000"
