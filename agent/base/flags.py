"""Flags that may be unknown."""

from collections.abc import Collection


def any_known(flags: Collection[bool | None]) -> bool | None:
    """Return whether any flag is set; None if all are unknown."""
    return True in flags or (False if False in flags else None)
