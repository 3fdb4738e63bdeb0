"""How long work tells how far it is; who shows it decides how."""

from collections.abc import Callable

# Called with what is being done, how much of it is done, and how much there is.
Tell = Callable[[str, int, int], None]


def silent(step: str, done: int, total: int) -> None:
    """Take a report and show nothing."""
