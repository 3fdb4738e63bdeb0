"""Times and devices' text for people."""

from datetime import datetime, timezone

from edgemeter.agent.base.nanoseconds import NS_PER_S


def stamp(taken_ns: int | None) -> str | None:
    """Return a time as ISO 8601, UTC."""
    if taken_ns is None:
        return None
    return datetime.fromtimestamp(taken_ns / NS_PER_S, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def plain(text: str) -> str:
    """Return a device's text for a terminal: on one line, without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
