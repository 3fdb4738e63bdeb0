"""Flags that may be unknown."""

from collections.abc import Iterable


def any_known(flags: Iterable[bool | None]) -> bool | None:
    """Return whether any flag is set; None if all are unknown."""
    reported = [flag for flag in flags if flag is not None]
    return any(reported) if reported else None
