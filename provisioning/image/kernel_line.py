"""`cmdline.txt`, what the firmware of a Pi hands to the kernel: one line, and only the first counts."""

from collections.abc import Callable, Sequence

NAME = "cmdline.txt"


def edited(text: str, drop: Callable[[str], bool], add: Sequence[str]) -> str:
    """Return the line without the words that `drop` says, with those of `add` at its end; exactly one line, however often it is done."""
    words = [word for word in text.replace("\0", " ").split() if not drop(word) and word not in add]
    return " ".join([*words, *add]) + "\n"
