"""What the pages share: Markdown tables, anchors, units by the ends of names, types in words."""

import re
from collections.abc import Iterable, Sequence

# The ends of names that state a unit; the longest that fits counts.
UNITS = {
    "_mj": "mJ", "_j": "J", "_ms": "ms", "_ns": "ns", "_s": "s", "_w": "W", "_v": "V", "_c": "°C", "_hz": "Hz", "_mb": "MB",
    "_bytes": "bytes",    "_ratio": "1", "_per_s": "1/s", "_minutes": "min", "_hours": "h", "_days": "days", "_percent": "%",
    "_ops": "operations", "_ohm": "ohm",
    "_mhz": "MHz", "_pixels": "pixels", "_tokens": "tokens", "_tokens_per_s": "tokens/s", "_mb_per_s": "MB/s",
}  # fmt: skip


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of two columns or more, without bars at its edges; a bar in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(" | ".join(" ".join(cell.split()).replace("|", chr(92) + "|") for cell in row).rstrip() + "\n" for row in lines)


def unit_of(name: str) -> str:
    """Return the unit in a field's name, empty without one."""
    ends = [end for end in UNITS if name.endswith(end)]
    return UNITS[max(ends, key=len)] if ends else ""


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as Markdown's table of contents makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
