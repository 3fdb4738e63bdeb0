"""The steps of long work: how they are told, and a bar of them."""

from collections.abc import Callable

Tell = Callable[[str, int, int], None]  # Called with the step, the completed amount, and the total.


def no_progress(step: str, completed: int, total: int) -> None:
    """Report nothing."""


def bar(ratio: float, width: int = 24) -> str:
    """Return the share (0..1) of finished work as a bar."""
    return f"[{'=' * round(width * min(1.0, ratio)):{width}}]"
