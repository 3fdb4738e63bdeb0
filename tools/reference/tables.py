import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of two columns or more, without bars at its edges.

    A bar in a cell is escaped.
    """
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        " | ".join(" ".join(cell.split()).replace("|", chr(92) + "|") for cell in row).rstrip()
        + "\n"
        for row in lines
    )


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as Markdown's table of contents makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
